# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the reset itself, and makes sense of what nvidia-smi says about it.

What it says comes line by line for each GPU, success first, and its exit status is that of a failure where
any GPU was not reset.

Sources: nvidia-smi(1); its output as users show it (drivers 535 to 580).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Callable, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import printable
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_plan import Command
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_traits import bus_id
from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import Completed

DONE = "done"
IN_USE = "in_use"
NOT_SUPPORTED = "not_supported"
NO_PERMISSION = "no_permission"
PEERS = "nvlink_peers"
LOST = "lost"
HUNG = "hung"
MISSING = "nvidia_smi_missing"
FAILED = "reset_failed"

# What may have passed a moment later: a monitor that was asking, a daemon on its way out, an error without a name.
RETRIED = frozenset([IN_USE, FAILED])
_ATTEMPTS = 2
# Seconds between the two.
_PAUSE = 3.0

_BUS = re.compile(r"\b((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", re.IGNORECASE)
_SUCCESS = re.compile(r"^\s*GPU\s+(\S+?):?\s+was successfully reset", re.IGNORECASE)
_REFUSAL = re.compile(r"^\s*GPU\s+([0-9a-f:.]+?):\s+(\S.*)$", re.IGNORECASE)
RunTool = Callable[[Sequence[str], float], Completed]


@dataclass(frozen=True)
class Attempt:
    """One run of nvidia-smi.  done: the UUIDs that it has reset; outcome: done, or why not all were; missing: bus
    ids of GPUs that it wants to be in the same command.
    """

    command: Command
    number: int
    rc: Optional[int]
    outcome: str
    message: str
    done: Tuple[str, ...]
    seconds: float
    missing: Tuple[str, ...] = ()


def reset(
    commands: Sequence[Command],
    buses: Mapping[str, str],
    run: RunTool,
    timeout: float,
    ready: Callable[[], bool],
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> List[Attempt]:
    """Carry out the commands, until one has failed for good.

    buses: the bus id of each UUID; timeout: seconds for one run; ready: asked before each run whether to go
    on.  A GPU is never tried a third time.
    """
    attempts: List[Attempt] = []
    for command in commands:
        left = command
        for number in range(1, _ATTEMPTS + 1):
            if not ready():
                return attempts
            attempt = _run(left, number, buses, run, timeout, clock)
            attempts.append(attempt)
            if attempt.outcome == DONE:
                break
            if attempt.outcome not in RETRIED or number == _ATTEMPTS:
                return attempts
            left = Command(tuple(uuid for uuid in left.uuids if uuid not in attempt.done), left.bus)
            sleep(_PAUSE)
    return attempts


def _run(
    command: Command,
    number: int,
    buses: Mapping[str, str],
    run: RunTool,
    timeout: float,
    clock: Callable[[], float],
) -> Attempt:
    began = clock()
    completed = run(command.arguments, timeout)
    seconds = round(clock() - began, 3)
    judged = judge(completed, command, buses, timeout)
    return Attempt(command, number, completed.rc, judged.code, judged.message, judged.done, seconds, judged.missing)


@dataclass(frozen=True)
class Judged:
    """What a run means: see `Attempt`."""

    code: str
    message: str = ""
    done: Tuple[str, ...] = ()
    missing: Tuple[str, ...] = ()


def judge(completed: Completed, command: Command, buses: Mapping[str, str], timeout: float) -> Judged:
    """Make sense of a run.  buses: the bus id of each UUID; timeout: the seconds that it had."""
    text = "%s\n%s" % (completed.out, completed.err)
    mine = {bus_id(buses[uuid]): uuid for uuid in command.uuids}
    said_done = {bus_id(match.group(1)) for match in map(_SUCCESS.match, text.splitlines()) if match}
    done = tuple(uuid for bus, uuid in mine.items() if bus in said_done)
    if completed.timed_out:
        return Judged(HUNG, "it did not end within %g s" % timeout, done)
    if completed.missing:
        return Judged(MISSING, completed.reason)
    refused = [match.groups() for match in map(_REFUSAL.match, text.splitlines()) if match and not _is_done(match)]
    lowered = text.lower()
    if completed.ok and not refused and "could not be reset" not in lowered:
        # Older drivers say no more than that all is done.
        return Judged(DONE, "", command.uuids)
    outcome = (
        IN_USE
        if "in use by another client" in lowered or "currently being used" in lowered
        else NO_PERMISSION
        if "insufficient permission" in lowered
        else NOT_SUPPORTED
        if "not supported" in lowered
        else LOST
        if "gpu is lost" in lowered
        else PEERS
        if "nvlink" in lowered or "peer" in lowered
        else FAILED
    )
    words = "; ".join("GPU %s: %s" % (bus, said) for bus, said in refused) or completed.reason
    missing = frozenset(bus_id(found) for found in _BUS.findall(text)) - frozenset(mine) if outcome == PEERS else ()
    return Judged(outcome, printable(" ".join(words.split()), 400), done, tuple(sorted(missing)))


def _is_done(match: re.Match[str]) -> bool:
    return "successfully reset" in match.group(2).lower()


def names_of(uuids: FrozenSet[str], buses: Mapping[str, str]) -> str:
    """GPUs for a sentence."""
    return ", ".join("%s (%s)" % (uuid, buses.get(uuid, "?")) for uuid in sorted(uuids))
