# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""In which state a server is, judged from its manager, its port, one answer of /health and its log: pure, no I/O.

`serving` means that /health of this very process answered 200.  What cannot be told is `unknown`, with the reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Callable, List, Optional, Pattern, Sequence, Union

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import (
    Answer,
    HttpError,
    Refused,
    TimedOut,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.managers.unit_state import UnitState
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.ports import PortOwner
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.running import Running
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.start_progress import progress_of

SERVING = "serving"
STARTING = "starting"
DRAINING = "draining"
FAILED = "failed"
STOPPED = "stopped"
UNKNOWN = "unknown"

# What comes of a request.
Outcome = Union[Answer, HttpError]

_RESTARTING = ("auto-restart", "auto-restart-queued")
# What SGLang logs when it begins, when it is up, and when it was told to end.
_BEGINS = re.compile(r"\bserver_args=")
_IS_UP = re.compile(r"ready to roll")
_ENDS = re.compile(r"SIGTERM received|Gracefully exiting")


@dataclass(frozen=True)
class State:
    """A state, its reason as a code ("" where the state says it all), and both in a sentence with the remedy."""

    state: str
    reason: str = ""
    message: str = ""


# -- without a question to the server


def state_without_process(running: Running, deployed: bool) -> State:
    """The state of an instance whose main process does not run; deployed: it has a current release."""
    if running.state is not None:
        return _state_of_unit(running.state, running.launcher is not None, deployed)
    found = running.found
    if found is None or found.record is None:
        if not deployed:
            return State(STOPPED, "not_deployed", "There is no such instance on this host.")
        return State(STOPPED, "", "It was stopped, or never started.")
    if found.leftovers:
        pids = ", ".join(str(process.pid) for process in found.leftovers[:8])
        message = "Its main process %d has ended, and workers of it are left (PID %s): stop it, then start it again."
        return State(FAILED, "died", message % (found.record.pid, pids))
    if "booted" in found.stale:
        return State(STOPPED, "booted", "It was not started since the host was booted.")
    return State(FAILED, "died", "It ended by itself: %s. Its log has the reason." % found.stale)


def _state_of_unit(unit: UnitState, launched: bool, deployed: bool) -> State:
    if not unit.exists:
        if not deployed:
            return State(STOPPED, "not_deployed", "There is no such instance on this host.")
        message = "systemd has no unit %s (%s): deploy the instance again." % (unit.name, unit.load)
        return State(STOPPED if unit.load == "not-found" else FAILED, "no_unit", message)
    told = unit.describe()
    if unit.sub in _RESTARTING:
        message = "It dies, and systemd starts it again and again (%d times so far): %s. Its log has the reason."
        return State(FAILED, "restarts", message % (unit.restarts, told))
    if unit.active == "failed":
        return State(FAILED, "died", "%s. Its log has the reason." % _sentence(told))
    if unit.active == "inactive":
        return State(STOPPED, "", "%s." % _sentence(told))
    if unit.active == "deactivating":
        return State(DRAINING, "", "%s." % _sentence(told))
    if launched or unit.active in ("activating", "reloading", "active"):
        return State(STARTING, "", "%s, and its main process does not run yet." % _sentence(told))
    return State(UNKNOWN, "unknown_unit_state", "%s." % _sentence(told))


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


# -- with its answer


def state_of_process(
    running: Running,
    health: Outcome,
    owner: PortOwner,
    alive: bool,
    log: Callable[[], Sequence[str]],
    remote: bool = False,
) -> State:
    """The state of a server whose main process was found running.

    alive: it still ran after it was asked.  log reads the cleaned lines of its log, which is done only where
    the answer alone does not tell.  remote: not this process was asked but rank 0 of its server.
    """
    if not alive:
        return State(FAILED, "died", "Its main process ended while it was looked at. Its log has the reason.")
    if running.state is not None and running.state.active == "deactivating":
        return State(DRAINING, "", "It was told to stop, and finishes its requests.")
    if owner.foreign and not remote:
        return State(STARTING, "port_taken", "%s, and not this server: it cannot serve." % owner.foreign)
    if isinstance(health, Answer) and health.status == 200:
        if remote or owner.known:
            return State(SERVING)
        return State(
            UNKNOWN,
            "unknown_listener",
            "/health answered 200, but it cannot be seen whose socket listens there: run as root.",
        )
    if isinstance(health, TimedOut):
        return State(UNKNOWN, "health_timeout", "%s: it is busy, or hangs." % _sentence(str(health)))
    refused = isinstance(health, Refused)
    if not refused and not (isinstance(health, Answer) and health.status == 503):
        told = "/health answered %d" % health.status if isinstance(health, Answer) else str(health)
        return State(UNKNOWN, "unexpected_answer", "%s: that is no answer of an SGLang server." % _sentence(told))
    if remote:
        what = "does not listen" if refused else "answers /health with 503"
        return State(UNKNOWN, "rank_zero_not_ready", "Rank 0 of this server %s: look at the host of rank 0." % what)
    return _state_by_log(list(log()), refused)


def _state_by_log(lines: List[str], refused: bool) -> State:
    last = _last_event(lines)
    if last is _ENDS:
        return State(DRAINING, "", "It was told to stop, and finishes its requests.")
    if last is _IS_UP:
        if refused:
            return State(UNKNOWN, "not_listening", "It was up, and does not listen any more although it lives.")
        message = "It was up, and now answers /health with 503: it could not generate a token in time."
        return State(FAILED, "unhealthy", message)
    if refused:
        # Nothing listens while the model is loaded, and a log that says nothing yet is one of a start.
        return State(STARTING, progress_of(lines).phase, "It loads: %s." % _where(lines))
    if last is _BEGINS:
        return State(STARTING, "warming_up", "It warms up: /health answers 503.")
    return State(
        UNKNOWN, "not_healthy", "/health answers 503, and its log does not tell whether it starts, drains or hangs."
    )


def _where(lines: Sequence[str]) -> str:
    return progress_of(lines).where.replace("_", " ")


def _last_event(lines: Sequence[str]) -> Optional[Pattern[str]]:
    for line in reversed(lines):
        for event in (_ENDS, _IS_UP, _BEGINS):
            if event.search(line):
                return event
    return None


def state_of_rank(rank: int) -> State:
    """The state of a node whose own /health proves nothing, where nobody said where rank 0 is."""
    message = (
        "It is the node of rank %d of a server on several hosts: its /health answers 200 whatever becomes of the "
        "server. Give rank_zero, the HOST:PORT of rank 0."
    )
    return State(UNKNOWN, "rank_unprovable", message % rank)
