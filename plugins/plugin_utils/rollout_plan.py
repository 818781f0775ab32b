# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans a rollout: which servers are replaced together, and how many go on serving meanwhile: pure, no I/O.

A unit is what is replaced as one: the hosts of one server.  A replica group is the units that can answer for each
other.  A wave is the units that are replaced at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_settings import (
    DEFAULT_RAMP,
    RolloutError,
    Share,
    names,
)

# What becomes of a unit.
KEEP = "keep"  # it runs what is wanted, proven: it goes through the rollout untouched
VACANT = "vacant"  # nothing of it runs: starting it takes nothing away from anybody
REPLACE = "replace"  # a server is taken down
OUTSIDE = "outside"  # it is not part of this run, and counts while it serves


@dataclass(frozen=True)
class Unit:
    """A server.  hosts: all that stop and start together; the first one is asked whether it serves."""

    hosts: Tuple[str, ...]
    fate: str

    @property
    def name(self) -> str:
        """How messages call it."""
        return self.hosts[0]


@dataclass(frozen=True)
class Group:
    """Replicas of one another.

    units: all of them, those outside the run too, in the order in which they are to be replaced.
    min_serving: the floor as it is set, None where it is not.
    """

    name: str
    units: Tuple[Unit, ...]
    min_serving: Optional[Share] = None
    ramp: Tuple[Share, ...] = DEFAULT_RAMP

    @property
    def floor(self) -> int:
        """How many units must serve at any time.

        Half of them, where nothing is set; but then never all, so that a server that is alone can be replaced.
        """
        if self.min_serving is None:
            return min(Share(50, True).at_least(len(self.units)), len(self.units) - 1)
        return self.min_serving.at_least(len(self.units))


@dataclass(frozen=True)
class Plan:
    """A whole rollout.  waves: in their order; each is units with the names of their groups."""

    groups: Tuple[Group, ...]
    waves: Tuple[Tuple[Tuple[str, Unit], ...], ...]


def make_plan(groups: Sequence[Group], at_a_time: int = 1) -> Plan:
    """Plan all groups, so many at a time.  Raises RolloutError for a floor that can never be kept.

    Units that are kept go with the first wave: they are nobody's loss, and need no place.
    """
    lanes = [[[(group.name, unit) for unit in wave] for wave in waves_of(group)] for group in groups]
    waves = list(_side_by_side(lanes, at_a_time))
    kept = [(group.name, unit) for group in groups for unit in group.units if unit.fate == KEEP]
    if kept:
        waves[:1] = [kept + (waves[0] if waves else [])]
    return Plan(tuple(groups), tuple(tuple(wave) for wave in waves))


def waves_of(group: Group) -> List[List[Unit]]:
    """The units of one group that are started or replaced, wave by wave.

    What serves nobody goes first: it costs nothing, and serves while the others are replaced.  Raises RolloutError.
    """
    to_do = [unit for unit in group.units if unit.fate == VACANT]
    to_replace = [unit for unit in group.units if unit.fate == REPLACE]
    if to_replace and group.floor > len(group.units) - 1:
        raise RolloutError(_impossible(group, to_replace))
    serving = len(group.units) - len(to_do)
    to_do += to_replace
    sizes = _sizes(group.ramp, len(to_do))
    waves: List[List[Unit]] = []
    while to_do:
        wave = _next_wave(to_do, next(sizes), spare=serving - group.floor)
        serving += sum(1 for unit in wave if unit.fate == VACANT)
        to_do = to_do[len(wave) :]
        waves.append(wave)
    return waves


def _next_wave(to_do: Sequence[Unit], size: int, spare: int) -> List[Unit]:
    """The first so many units, of which as many may be taken down as the floor can spare."""
    wave: List[Unit] = []
    for unit in to_do[:size]:
        if unit.fate == REPLACE:
            if spare < 1:
                break
            spare -= 1
        wave.append(unit)
    return wave


def _sizes(ramp: Sequence[Share], total: int) -> Iterator[int]:
    for step in ramp:
        yield step.at_most(total)
    while True:
        yield ramp[-1].at_most(total)


def _side_by_side(lanes: List[List[List[Any]]], at_a_time: int) -> Iterator[List[Any]]:
    """Waves out of the waves of several groups: the next group begins when one is done."""
    waiting = [lane for lane in lanes if lane]
    active: List[List[List[Any]]] = []
    while waiting or active:
        while waiting and len(active) < at_a_time:
            active.append(list(waiting.pop(0)))
        yield [unit for lane in active for unit in lane.pop(0)]
        active = [lane for lane in active if lane]


def _impossible(group: Group, to_replace: Sequence[Unit]) -> str:
    total = len(group.units)
    return (
        "sglang_min_serving is %s for the replica group %s, which has %d %s: %d must serve all the time, so %s can "
        "never be restarted. Nothing was stopped. Set sglang_min_serving to %d at most for this group, or add replicas "
        "to it (sglang_replica_group)."
        % (
            group.min_serving,
            group.name,
            total,
            "replica" if total == 1 else "replicas",
            group.floor,
            names([unit.name for unit in to_replace]),
            total - 1,
        )
    )


def as_facts(plan: Plan, asked: Mapping[str, Mapping[str, str]]) -> Dict[str, Any]:
    """A plan in plain values, for variables.

    asked: what the first host of each unit is asked about, for the gate.  hosts are those of all waves in order, sizes
    how many of them each wave has: what a play's hosts and serial take.
    """
    number = {unit: index for index, wave in enumerate(plan.waves, 1) for _group, unit in wave}
    waves = [[host for _group, unit in wave for host in unit.hosts] for wave in plan.waves]
    return {
        "hosts": [host for wave in waves for host in wave],
        "sizes": [len(wave) for wave in waves],
        "groups": {
            group.name: {
                "floor": group.floor,
                "units": [
                    {
                        "hosts": list(unit.hosts),
                        "fate": unit.fate,
                        # Of what is kept it does not matter when it goes through.
                        "wave": 0 if unit.fate in (KEEP, OUTSIDE) else number[unit],
                        "ask": dict(asked[unit.name]),
                    }
                    for unit in group.units
                ],
            }
            for group in plan.groups
        },
    }
