# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides whether the servers of a replica group are switched to another profile: pure, no I/O.

What runs and since when is taken from the servers, so that nothing that somebody else did, and no controller that died,
makes it wrong.  What is remembered is only what no server can tell: how many runs have agreed, and what was tried last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.plugin_utils.guard_look import FOLLOWS, SERVING, STOPPED, Look
from ansible_collections.inferops.sglang.plugins.plugin_utils.guard_rules import Load, Rule, wanted_profile

# Why there is no switch; SWITCH says that there is one.
SWITCH = "switch"
AS_WANTED = "as_wanted"  # the profile that is wanted runs
NOT_YET = "not_yet"  # too few runs have agreed
TOO_SOON = "too_soon"  # the last start or switch is too recent
UNKNOWN_LOAD = "unknown_load"
UNKNOWN_AGE = "unknown_age"
NOT_SERVING = "not_serving"  # a server is neither stopped nor serving
NOTHING_SERVES = "nothing_serves"
UNKNOWN_PROFILE = "unknown_profile"  # a server runs none of the profiles, or it cannot be told which
MIXED = "mixed"  # they run different ones, and no switch of the guard's was under way
BUSY = "busy"  # another run of the guard is at work

# Runs that are closer to each other than this (seconds) count as one: two schedulers must not outvote one.
_APART = 10.0


@dataclass(frozen=True)
class Settings:
    """How a group is guarded.  min_interval and forget are in seconds."""

    rules: Tuple[Rule, ...]
    samples: int
    min_interval: float
    forget: float


@dataclass(frozen=True)
class Memory:
    """What is remembered of a group; times are seconds since the epoch on the controller.

    wanted: the profile that the last runs wanted; agreed: how many of them; seen: the last one.  target: the profile of
    the last switch that was begun, "" for none; begun: when.
    """

    wanted: str = ""
    agreed: int = 0
    seen: float = 0.0
    target: str = ""
    begun: float = 0.0


@dataclass(frozen=True)
class Verdict:
    """What comes of a group.  present and wanted: profiles, "" where not known; hosts: those that are switched.

    missing: runs that have yet to agree; left: seconds until a switch may be; detail: in words, where the reason alone
    does not say it.
    """

    reason: str
    memory: Memory
    present: str = ""
    wanted: str = ""
    load: Optional[Load] = None
    hosts: Tuple[str, ...] = ()
    unfinished: bool = False
    missing: int = 0
    left: float = 0.0
    detail: str = ""

    @property
    def switches(self) -> bool:
        """Whether there is something to do."""
        return self.reason == SWITCH


def decide(
    looks: Sequence[Look],
    running: Mapping[str, Sequence[str]],
    load: Optional[Load],
    settings: Settings,
    memory: Memory,
    now: float,
) -> Verdict:
    """The verdict for one group.

    running: for each serving host the profiles that it may be running.  load: of a server, None where not known.
    """
    memory = _healed(memory, now)
    idle = replace(memory, wanted="", agreed=0)
    unclear = [look for look in looks if look.state not in (SERVING, FOLLOWS, STOPPED)]
    if unclear:
        return Verdict(NOT_SERVING, idle, detail=_told(unclear))
    serving = [look for look in looks if look.state in (SERVING, FOLLOWS)]
    servers = [look for look in serving if look.node_rank == 0]
    if not servers:
        return Verdict(NOTHING_SERVES, idle)
    present, unfinished, verdict = _present(servers, running, memory, idle)
    if verdict is not None:
        return replace(verdict, load=load)
    if load is None:
        return Verdict(UNKNOWN_LOAD, idle, present)
    wanted = wanted_profile(settings.rules, present, load)
    found = Verdict(AS_WANTED, idle, present, wanted, load, unfinished=unfinished)
    if wanted == present and not unfinished:
        return found
    voted = _vote(memory, wanted, now, settings.forget)
    # What was begun was decided already.
    missing = 0 if unfinished and wanted == present else max(0, settings.samples - voted.agreed)
    if missing:
        return replace(found, reason=NOT_YET, memory=voted, missing=missing)
    left, unknown = _left(servers, memory, settings.min_interval, now)
    if unknown:
        return replace(found, reason=UNKNOWN_AGE, memory=voted, detail=", ".join(unknown))
    if left > 0:
        return replace(found, reason=TOO_SOON, memory=voted, left=left)
    return replace(
        found,
        reason=SWITCH,
        memory=Memory(target=wanted, begun=now),
        hosts=tuple(look.host for look in serving),
    )


def _healed(memory: Memory, now: float) -> Memory:
    """Without times that lie in the future: a clock that was set back must not silence the guard for ever."""
    seen = memory.seen if memory.seen <= now else 0.0
    return replace(memory, seen=seen, agreed=memory.agreed if seen else 0, begun=min(memory.begun, now))


def _present(
    servers: Sequence[Look], running: Mapping[str, Sequence[str]], memory: Memory, idle: Memory
) -> Tuple[str, bool, Optional[Verdict]]:
    """The profile that the group runs, whether a switch to it is unfinished, or why that cannot be told."""
    names: Dict[str, List[str]] = {}
    for look in servers:
        candidates = list(running.get(look.host, ()))
        if len(candidates) > 1 and memory.target in candidates:
            candidates = [memory.target]
        if len(candidates) != 1:
            told = "may run %s" % " or ".join(candidates) if candidates else "runs none of the profiles of the rules"
            return "", False, Verdict(UNKNOWN_PROFILE, idle, detail="%s %s" % (look.host, told))
        names.setdefault(candidates[0], []).append(look.host)
    if len(names) == 1:
        return next(iter(names)), False, None
    if memory.target in names:
        return memory.target, True, None
    told = "; ".join("%s: %s" % (name, ", ".join(hosts)) for name, hosts in names.items())
    return "", False, Verdict(MIXED, idle, detail=told)


def _vote(memory: Memory, wanted: str, now: float, forget: float) -> Memory:
    """With this run counted."""
    since = now - memory.seen
    if memory.wanted != wanted or not memory.agreed or since > forget:
        return replace(memory, wanted=wanted, agreed=1, seen=now)
    if since < _APART:
        return memory
    return replace(memory, agreed=memory.agreed + 1, seen=now)


def _left(servers: Sequence[Look], memory: Memory, least: float, now: float) -> Tuple[float, List[str]]:
    """Seconds until the group may be switched, and the hosts of which nobody knows since when they run."""
    unknown = [look.host for look in servers if look.uptime is None]
    ages = [look.uptime for look in servers if look.uptime is not None]
    if memory.target:
        ages.append(now - memory.begun)
    return max(0.0, least - min(ages, default=0.0)), unknown


def _told(looks: Sequence[Look]) -> str:
    return "; ".join("%s is %s (%s)" % (look.host, look.state, look.why.rstrip(". ")) for look in looks)
