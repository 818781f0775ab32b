# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ends the processes of one server: the main process by its manager, then whatever is left.

SIGTERM goes to the main process alone: SGLang finishes its running requests with its workers and ends
them itself.  Signalled workers would die in the middle of that.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Callable, Dict, List, Mapping, Optional, Protocol, Sequence, Set, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.managers import unit_control
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.managers.unit_state import (
    UnitError,
    UnitState,
    read_unit,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.ownership import INHERITED, MAIN, Member
from ansible_collections.inferops.sglang.plugins.module_utils.system import stuck
from ansible_collections.inferops.sglang.plugins.module_utils.system.audit import NO_AUDIT, SIGNAL, AuditLog
from ansible_collections.inferops.sglang.plugins.module_utils.system.audit_signals import (
    Described,
    SignalAudit,
    process_target,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import (
    ProcessIdentity,
    ProcessInfo,
    ProcFs,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import Runner
from ansible_collections.inferops.sglang.plugins.module_utils.system.termination import Outcome, end_processes

# How often a main process is looked at while systemd stops it (seconds).
_POLL = 0.05
# systemd notices the end of a process a moment later than /proc shows it (seconds).
_SETTLE = 10.0
# An engine needs a moment more than the container itself (seconds).
_ENGINE_EXTRA = 10.0
# Workers that fork while they are being killed need another round.
_ROUNDS = 5


@dataclass(frozen=True)
class Ended:
    """One process that was dealt with; role is main, worker or orphan."""

    process: ProcessInfo
    role: str
    outcome: Outcome


@dataclass(frozen=True)
class Limits:
    """Seconds: grace from SIGTERM to SIGKILL, kill_timeout from SIGKILL to giving up."""

    grace: float
    kill_timeout: float


@dataclass(frozen=True)
class MainEnd:
    """How a main process ended.

    exit_status is as in a shell, None unknown; orderly is systemd's own judgement, None without one;
    problem says in a sentence why its manager could not end it; limit is the setting of its manager that had
    it killed before the grace was over, "" for none.
    """

    outcome: Optional[Outcome] = None
    exit_status: Optional[int] = None
    orderly: Optional[bool] = None
    problem: str = ""
    limit: str = ""


class Way(Protocol):
    """A way to end the main process of a server; how names it, for the audit log."""

    how: str

    def end(self, main: Optional[ProcessInfo], limits: Limits) -> MainEnd:
        """End it; main is None where only its manager has to be told."""


@dataclass
class Tools:
    """The host, and time.  instance: whose processes are ended, for the audit log."""

    procfs: ProcFs
    run: Runner
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    kill: Callable[..., List[Outcome]] = field(default=end_processes)
    audit: AuditLog = NO_AUDIT
    instance: str = ""

    def end(
        self,
        targets: Sequence[ProcessIdentity],
        grace: float,
        kill_timeout: float,
        evidence: Optional[Mapping[ProcessIdentity, str]] = None,
    ) -> List[Outcome]:
        """End processes together.  evidence: what shows that each is the instance's; without it, its main one."""
        found = evidence or {}

        def describe(identity: ProcessIdentity) -> Described:
            process = self.procfs.read(identity.pid)
            same = process is not None and process.identity == identity
            target = dict(process_target(process if same else None, identity), instance=self.instance)
            return target, {"found": found.get(identity, MAIN)}

        witness = SignalAudit(self.audit, describe)
        return self.kill(targets, grace, kill_timeout, self.procfs, clock=self.clock, sleep=self.sleep, witness=witness)


class BySignal:
    """A process that nobody manages but this collection."""

    how = "signal"

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    def end(self, main: Optional[ProcessInfo], limits: Limits) -> MainEnd:
        if main is None:
            return MainEnd()
        return MainEnd(self._tools.end([main.identity], limits.grace, limits.kill_timeout)[0])


class ByEngine:
    """A container that runs although its unit does not: its engine is told to stop it."""

    def __init__(self, tools: Tools, stop_words: Sequence[str]) -> None:
        self._tools = tools
        self._words = list(stop_words)
        self.how = " ".join(self._words)

    def end(self, main: Optional[ProcessInfo], limits: Limits) -> MainEnd:
        if main is None:
            return MainEnd()
        tools, began = self._tools, self._tools.clock()
        done = tools.run(self._words, limits.grace + _ENGINE_EXTRA)
        if not tools.procfs.alive(main.identity):
            return MainEnd(Outcome(main.identity, "terminated", ("SIGTERM",), tools.clock() - began))
        outcome = tools.end([main.identity], 0, limits.kill_timeout)[0]
        return MainEnd(outcome, problem="" if done.ok else "%s: %s" % (" ".join(self._words[:2]), done.reason))


class ByUnit:
    """A unit of systemd, which is told to stop it and watched; systemd itself signals as the unit says."""

    def __init__(self, tools: Tools, unit: str, members: Callable[[], List[Member]]) -> None:
        self._tools = tools
        self._unit = unit
        self._members = members
        self.how = "systemctl stop %s" % unit

    def end(self, main: Optional[ProcessInfo], limits: Limits) -> MainEnd:
        tools, began = self._tools, self._tools.clock()
        try:
            unit_control.request_stop(self._unit, tools.run)
            state = self._watch(main, began + limits.grace)
            killed = not state.idle
            if killed:
                # It may no longer be told to start again, so this is its end.
                self._kill(limits)
                state = unit_control.wait_until_idle(
                    self._unit, min(_SETTLE, limits.kill_timeout), tools.run, tools.clock, tools.sleep
                )
        except UnitError as error:
            return MainEnd(problem="%s: run as root" % error if "denied" in str(error).lower() else str(error))
        return self._judge(main, state, killed, tools.clock() - began)

    def _kill(self, limits: Limits) -> None:
        tools = self._tools
        why = {"why": "it did not stop within %g s" % limits.grace}
        with tools.audit.event(SIGNAL, {"unit": self._unit, "instance": tools.instance}, why) as event:
            unit_control.kill(self._unit, tools.run)
            event.outcome, event.detail = "sent", "SIGKILL to all of its processes, by systemd"
        found = {member.process.identity: member.evidence for member in self._members()}
        tools.end(list(found), 0, limits.kill_timeout, found)

    def _watch(self, main: Optional[ProcessInfo], deadline: float) -> UnitState:
        """Wait until the unit is idle, or the time is over: the process is looked at often, systemd seldom."""
        tools = self._tools
        ended_at: Optional[float] = None
        while True:
            alive = main is not None and tools.procfs.alive(main.identity)
            now = tools.clock()
            if not alive and ended_at is None:
                ended_at = now
            if not alive or now >= deadline:
                # What it does after the main process's end, such as killing the workers, has a time of its own.
                over = now >= (deadline if ended_at is None else max(deadline, ended_at + _SETTLE))
                try:
                    state = read_unit(self._unit, tools.run)
                    if state.idle or over:
                        return state
                except UnitError:
                    # It was told to stop, and does: one who is busy may answer later.
                    if over:
                        raise
            tools.sleep(_POLL if alive else 4 * _POLL)

    def _judge(self, main: Optional[ProcessInfo], state: UnitState, killed: bool, seconds: float) -> MainEnd:
        problem = "" if state.idle else "%s, although it was told to stop and killed" % state.describe()
        if main is None:
            return MainEnd(problem=problem)
        alive = self._tools.procfs.alive(main.identity)
        limit = ""
        if not killed and state.result == "timeout":
            killed, limit = True, "TimeoutStopSec of %s (it has %s)" % (state.name, state.stop_timeout or "less")
        signals: Tuple[str, ...] = ("SIGTERM", "SIGKILL") if killed else ("SIGTERM",)
        action = "survived" if alive else "killed" if killed else "terminated"
        letter = self._tools.procfs.state(main.identity) if alive else ""
        outcome = Outcome(main.identity, action, signals, seconds, letter)
        orderly = None if killed or alive else state.active == "inactive" and state.result in ("", "success")
        return MainEnd(outcome, state.exit_status, orderly, problem, limit)


@dataclass(frozen=True)
class Stopped:
    """What became of a server: the processes that were signalled, the main process first."""

    main: MainEnd
    ended: List[Ended]

    @property
    def survivors(self) -> List[Ended]:
        """Those that would not end."""
        return [item for item in self.ended if item.outcome.action == "survived"]


def stop(
    main: Optional[ProcessInfo],
    way: Way,
    members: Callable[[], List[Member]],
    limits: Limits,
    tools: Tools,
) -> Stopped:
    """End a server: its main process in a way, then everything that is left of it.

    members finds the processes of the server as it is then; those that were found before its end count
    afterwards too, because descent cannot be seen any more when the ancestor is gone.
    """
    before = members()
    end = way.end(main, limits)
    ended: List[Ended] = []
    if main is not None and end.outcome is not None:
        ended.append(Ended(main, MAIN, end.outcome))
    if main is not None and "SIGKILL" not in _signals(end) and tools.procfs.alive(main.identity):
        return Stopped(end, ended)  # it may not be signalled, so it still runs and needs its workers
    survivors: Set[ProcessIdentity] = set()
    for _round in range(_ROUNDS):
        rest = _rest(before, members(), main, survivors, tools.procfs)
        if not rest:
            break
        found = {member.process.identity: member.evidence for member in rest}
        outcomes = tools.end(list(found), 0, limits.kill_timeout, found)
        for member, outcome in zip(rest, outcomes):
            if outcome.action == "survived":
                survivors.add(outcome.identity)
            if outcome.signals or outcome.action == "survived":
                ended.append(Ended(member.process, role_of(member), outcome))
    return Stopped(end, ended)


def _signals(end: MainEnd) -> Tuple[str, ...]:
    return end.outcome.signals if end.outcome is not None else ()


def _rest(
    before: Sequence[Member],
    now: Sequence[Member],
    main: Optional[ProcessInfo],
    survivors: Set[ProcessIdentity],
    procfs: ProcFs,
) -> List[Member]:
    found: Dict[ProcessIdentity, Member] = {}
    for member in [*before, *now]:
        identity = member.process.identity
        if identity not in survivors and (main is None or identity != main.identity) and procfs.alive(identity):
            found.setdefault(identity, member)
    return sorted(found.values(), key=lambda member: member.process.pid)


def role_of(member: Member) -> str:
    """main, worker, or orphan for one that only its inherited variable tells."""
    if member.evidence == MAIN:
        return MAIN
    return "orphan" if member.evidence == INHERITED else "worker"


def describe_survivor(item: Ended, procfs: ProcFs) -> str:
    """One that would not end, with what is known of it and what helps."""
    outcome = item.outcome
    if outcome.error:
        why = "%s; run as root or as its user" % outcome.error
    else:
        why = stuck.explain(item.process, procfs) or "state %s after SIGKILL" % (outcome.state or "?")
    return "PID %d (%s, %s, state %s): %s" % (
        item.process.pid,
        item.process.name,
        item.role,
        outcome.state or "unknown",
        why,
    )
