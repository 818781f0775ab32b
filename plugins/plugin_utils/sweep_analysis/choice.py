# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of several configurations is to be used from which concurrency on.

At each concurrency those count that nothing is shown to be better than.  Of them such are taken that the
configuration changes as rarely as possible, so that noise never makes a range, and then the simplest.  Only at the
high end a tie goes to the baseline at once: the gain of speculation falls as the load grows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.crossovers import straight_root
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.measured import Configuration
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.shapes import (
    FASTER,
    NO_DIFFERENCE,
    SLOWER,
    UNKNOWN,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.sweep import Sweep


@dataclass(frozen=True)
class Stretch:
    """Neighbouring concurrencies with the same choice."""

    choice: Configuration
    concurrencies: Tuple[int, ...]  # measured
    first: int  # from here on
    last: int
    boundary: Optional[float]  # where it and the one before are equally fast


def choose(sweep: Sweep, candidates: Sequence[Configuration]) -> List[Stretch]:
    """Contiguous stretches over all measured concurrencies; one baseline stands for those of all hosts."""
    ordered = sorted(candidates, key=lambda one: one.complexity)
    known: List[Tuple[int, _Verdict]] = []
    base = next((one for one in ordered if sweep.is_reference(one)), None)
    for concurrency in sweep.concurrencies:
        if base is not None and at(sweep, base, concurrency) is None:
            # That the baseline has no measurement makes nothing better than it.
            continue
        verdict = _judge(sweep, ordered, concurrency)
        # Two concurrencies of which not even the first was reached are one.
        if verdict.allowed and (not known or sweep.position(concurrency) > sweep.position(known[-1][0])):
            known.append((concurrency, verdict))
    allowed = [verdict.allowed for _concurrency, verdict in known]
    for index in range(1, len(known) - 1):
        # Noise at one concurrency is no reason to change there and back.
        around = {one.index for one in known[index - 1][1].allowed} & {one.index for one in known[index + 1][1].allowed}
        allowed[index] = allowed[index] + [one for one in known[index][1].doubtful if one.index in around]
    path = _fewest_changes(sweep, ordered, allowed)
    return _stretches(sweep, [concurrency for concurrency, _verdict in known], path)


def acceptable(sweep: Sweep, candidates: Sequence[Configuration], concurrency: int) -> List[Configuration]:
    """Those that nothing is shown to be better than.  Without proof that something is faster: the baseline."""
    return _judge(sweep, candidates, concurrency).allowed


@dataclass(frozen=True)
class _Verdict:
    allowed: List[Configuration]
    doubtful: List[Configuration]  # not among them, but not shown to be worse either


def _judge(sweep: Sweep, candidates: Sequence[Configuration], concurrency: int) -> _Verdict:
    here = [(one, found) for one in candidates if (found := at(sweep, one, concurrency)) is not None]
    if not here:
        return _Verdict([], [])
    base = next((pair for pair in here if sweep.is_reference(pair[0])), None)
    first = base or here[0]
    versus = {one.index: sweep.compare(found, first[1], concurrency) for one, found in here}
    pool = here if base is None else [pair for pair in here if versus[pair[0].index].verdict == FASTER]
    leader = max(pool or [first], key=lambda pair: _number(versus[pair[0].index].log))
    contenders = {one.index for one, _found in pool}
    allowed, doubtful = [], []
    for one, found in here:
        result = sweep.compare(found, leader[1], concurrency)
        proved = one.index in contenders and result.verdict != SLOWER
        equal = not pool and result.verdict == NO_DIFFERENCE
        if proved or equal or one.index == leader[0].index:
            allowed.append(one)
        elif result.verdict != SLOWER and UNKNOWN in (result.verdict, versus[one.index].verdict):
            doubtful.append(one)
    return _Verdict(allowed, doubtful)


def at(sweep: Sweep, one: Configuration, concurrency: int) -> Optional[Configuration]:
    """The row to compare at a concurrency: itself, or for the baseline one of the same on another host."""
    if concurrency in one.points:
        return one
    if sweep.is_reference(one):
        return next((other for other in sweep.baselines.values() if concurrency in other.points), None)
    return None


def _number(log: Optional[float]) -> float:
    return -math.inf if log is None else log


def _fewest_changes(
    sweep: Sweep, ordered: Sequence[Configuration], allowed: Sequence[List[Configuration]]
) -> List[Configuration]:
    rank = {one.index: place for place, one in enumerate(ordered)}
    by_index = {one.index: one for one in ordered}
    # From here on the baseline is as good as anything, up to the highest concurrency.
    end = len(allowed)
    while end and any(sweep.is_reference(one) for one in allowed[end - 1]):
        end -= 1
    # For each choice at the concurrency so far: its changes, the sum of its ranks, and the way there.
    ways: Dict[int, Tuple[int, int, Tuple[int, ...]]] = {}
    for place, found in enumerate(allowed):
        following = {}
        for one in found:
            free = place >= end and sweep.is_reference(one)
            best = min(
                (
                    (changes + (last != one.index and not free), ranks, way)
                    for last, (changes, ranks, way) in ways.items()
                ),
                default=(0, 0, ()),
            )
            following[one.index] = (best[0], best[1] + rank[one.index], (*best[2], one.index))
        ways = following
    if not ways:
        return []
    return [by_index[index] for index in min(ways.values())[2]]


def _stretches(sweep: Sweep, concurrencies: Sequence[int], path: Sequence[Configuration]) -> List[Stretch]:
    groups: List[Tuple[Configuration, List[int]]] = []
    for concurrency, one in zip(concurrencies, path):
        if groups and groups[-1][0].index == one.index:
            groups[-1][1].append(concurrency)
        else:
            groups.append((one, [concurrency]))
    starts: List[Tuple[int, Optional[float]]] = []
    for index, (one, measured) in enumerate(groups):
        if index:
            before, last = groups[index - 1][0], groups[index - 1][1][-1]
            starts.append(_start(sweep, before, one, last, measured[0]))
        else:
            starts.append((max(1, round(sweep.position(measured[0]))), None))
    end = max(1, round(sweep.position(concurrencies[-1]))) if concurrencies else 1
    lasts = [start - 1 for start, _boundary in starts[1:]] + [end]
    return [
        Stretch(one, tuple(measured), start, max(start, last), boundary)
        for (one, measured), (start, boundary), last in zip(groups, starts, lasts)
    ]


def _start(
    sweep: Sweep, before: Configuration, after: Configuration, last: int, first: int
) -> Tuple[int, Optional[float]]:
    """The first concurrency of a stretch, and where both are equally fast."""
    low, high = sweep.position(last), sweep.position(first)
    boundary = None
    begins = high
    values = []
    for concurrency in (last, first):
        one, other = at(sweep, after, concurrency), at(sweep, before, concurrency)
        values.append(sweep.compare(one, other, concurrency).log if one and other else None)
    if values[0] is None or values[1] is None:
        # One of them was not measured at both: nothing is known between.
        begins = math.sqrt(low * high)
    elif values[0] <= 0 <= values[1]:
        root = straight_root(math.log(low), values[0], math.log(high), values[1])
        boundary = None if root is None else math.exp(root)
        begins = high if boundary is None else boundary
    start = math.ceil(begins - 1e-9)
    return min(max(start, math.floor(low) + 1), max(math.ceil(high - 1e-9), math.floor(low) + 1)), boundary
