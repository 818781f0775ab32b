# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records the signals that end_processes sends: before each one, and what came of them."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Optional, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.system.audit import BEGUN, SIGNAL, AuditLog, Event
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity, ProcessInfo
from ansible_collections.inferops.sglang.plugins.module_utils.system.termination import Outcome

# What is recorded of a process: the target, and the evidence.
Described = Tuple[Mapping[str, Any], Mapping[str, Any]]


class SignalAudit:
    """A witness for end_processes.  describe tells who a process is, and why it is ended."""

    def __init__(self, log: AuditLog, describe: Callable[[ProcessIdentity], Described]) -> None:
        self._log = log
        self._describe = describe
        self._events: Dict[ProcessIdentity, Event] = {}

    def sending(self, identity: ProcessIdentity, name: str) -> None:
        """Record that a signal is about to be sent; all of one process are one event."""
        if not self._log.enabled:
            return
        if identity not in self._events:
            # It is described while it lives: nothing tells who it was afterwards.
            self._events[identity] = self._log.event(SIGNAL, *self._describe(identity))
        self._events[identity].note(BEGUN, name)

    def ended(self, outcome: Outcome) -> None:
        """Record what became of a process that signals were meant for."""
        event = self._events.pop(outcome.identity, None)
        if event is None:
            return
        words = [", ".join(outcome.signals) or "no signal reached it", "%.3f s" % outcome.seconds]
        if outcome.state:
            words.append("state %s" % outcome.state)
        if outcome.error:
            words.append(outcome.error)
        event.note(outcome.action, "; ".join(words))


def process_target(process: Optional[ProcessInfo], identity: Optional[ProcessIdentity] = None) -> Dict[str, Any]:
    """A process as the target of an event; of one that is gone, no more than its identity.

    Its command line is left out: it may contain secrets.
    """
    if process is None:
        return {"pid": identity.pid, "start_ticks": identity.start_time} if identity is not None else {}
    return {
        "pid": process.pid,
        "start_ticks": process.start_time,
        "name": process.name,
        "exe": process.exe,
        "user": process.user,
        "unit": process.unit,
        "container": process.container.label if process.container is not None else None,
    }
