# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a configuration and the baseline are equally fast.

Between two measured concurrencies the logarithm of the ratio is taken for a straight line over the logarithm of the
concurrency.  How far that may be wrong is estimated from the bend that the next measured point shows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis import words
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.comparison import Comparison
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.measured import Configuration
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.shapes import (
    FASTER,
    NO_DIFFERENCE,
    SLOWER,
    UNKNOWN,
    Crossing,
    Crossover,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.sweep import Sweep


@dataclass(frozen=True)
class _Place:
    """A comparison at a concurrency; x is its logarithm."""

    x: float
    log: float
    half: Optional[float]
    verdict: str

    @property
    def concurrency(self) -> float:
        return words.rounded(math.exp(self.x))


def crossovers(sweep: Sweep) -> List[Crossover]:
    """The crossover of each configuration that has a baseline to be compared with."""
    found = []
    for one in sweep.configurations:
        reference = sweep.reference(one)
        if reference is not None and one.points:
            found.append(_crossover(sweep, one, reference))
    return found


def straight_root(x1: float, y1: float, x2: float, y2: float) -> Optional[float]:
    """Where the line through two points is 0, if that lies between them."""
    if y1 == y2 or y1 * y2 > 0:
        return None
    return x1 + (x2 - x1) * y1 / (y1 - y2)


def _crossover(sweep: Sweep, one: Configuration, reference: Configuration) -> Crossover:
    places = _places(sweep, one, reference)
    shown = [index for index, place in enumerate(places) if place.verdict in (FASTER, SLOWER)]
    crossings = [
        _crossing(places, first, second)
        for first, second in zip(shown, shown[1:])
        if places[first].verdict != places[second].verdict
    ]
    between: List[Optional[float]] = [None, None]
    if crossings:
        state, between, reason = "crosses", crossings[0]["between"], " ".join(map(_told, crossings))
    else:
        state, between, reason = _without_crossing(places, shown)
    return {
        "configuration": one.label,
        "host": one.host,
        "state": state,
        "between": between,
        "estimate": crossings[0]["estimate"] if crossings else None,
        "interval": crossings[0]["interval"] if crossings else None,
        "crossings": crossings,
        "reason": reason,
    }


def _places(sweep: Sweep, one: Configuration, reference: Configuration) -> List[_Place]:
    """The comparisons in the order of the concurrency that was reached, each higher than the one before."""
    found: List[_Place] = []
    for concurrency in sorted(one.points):
        result: Comparison = sweep.compare(one, reference, concurrency)
        x = math.log(sweep.position(concurrency, one, reference))
        if result.log is not None and (not found or x > found[-1].x + 1e-9):
            found.append(_Place(x, result.log, result.half, result.verdict))
    return found


def _crossing(places: Sequence[_Place], first: int, second: int) -> Crossing:
    part = places[first : second + 1]
    sign = 1.0 if part[0].verdict == FASTER else -1.0
    roots: List[Tuple[float, int]] = []
    for index, (left, right) in enumerate(zip(part, part[1:])):
        root = straight_root(left.x, left.log, right.x, right.log)
        if root is not None:
            roots.append((root, first + index))
    middle = (roots[0][0] + roots[-1][0]) / 2
    return {
        "to": SLOWER if sign > 0 else FASTER,
        "between": [part[0].concurrency, part[-1].concurrency],
        "estimate": words.rounded(math.exp(middle), 4),
        "interval": _interval(places, part, sign, roots),
    }


def _interval(
    places: Sequence[_Place], part: Sequence[_Place], sign: float, roots: Sequence[Tuple[float, int]]
) -> Optional[List[float]]:
    if any(place.half is None for place in part):
        return None
    low, high = part[0].x, part[-1].x
    bends = [_bend(places, root, index) for root, index in roots]
    if None not in bends:
        bend = max(one for one in bends if one is not None)
        low = max(low, _first_below(part, sign) - bend)
        high = min(high, -_first_below([_mirrored(place) for place in reversed(part)], -sign) + bend)
    # Without a third point nothing is known of the bend: anywhere between the two.
    return [words.rounded(math.exp(low), 4), words.rounded(math.exp(high), 4)]


def _mirrored(place: _Place) -> _Place:
    return _Place(-place.x, place.log, place.half, place.verdict)


def _first_below(part: Sequence[_Place], sign: float) -> float:
    """Where the near edge of the interval first reaches 0, from a place on whose side of 0 it lies (sign)."""
    edges = [(place.x, sign * place.log - (place.half or 0.0)) for place in part]
    for (x1, y1), (x2, y2) in zip(edges, edges[1:]):
        if y2 <= 0:
            root = straight_root(x1, y1, x2, y2)
            return x1 if root is None else root
    return edges[-1][0]


def _bend(places: Sequence[_Place], root: float, index: int) -> Optional[float]:
    """How far the root lies from those of the parabolas through a third point; None where there is no third point."""
    left, right = places[index], places[index + 1]
    others = [places[other] for other in (index - 1, index + 2) if 0 <= other < len(places)]
    if not others:
        return None
    return max(abs(_parabola_root(left, right, third) - root) for third in others)


def _parabola_root(left: _Place, right: _Place, third: _Place) -> float:
    slope = (right.log - left.log) / (right.x - left.x)
    other = (third.log - left.log) / (third.x - left.x)
    bend = (other - slope) / (third.x - right.x)

    def value(x: float) -> float:
        return left.log + (x - left.x) * (slope + bend * (x - right.x))

    low, high = left.x, right.x
    for _step in range(60):
        middle = (low + high) / 2
        if value(middle) * left.log > 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _told(crossing: Crossing) -> str:
    order = "Faster below and slower" if crossing["to"] == SLOWER else "Slower below and faster"
    low, high = (words.concurrency(one or 0.0) for one in crossing["between"])
    estimate, interval = crossing["estimate"] or 0.0, crossing["interval"]
    text = "%s above a concurrency of about %s" % (order, words.number(estimate))
    if interval is None:
        return "%s, between the measured %s and %s." % (text, low, high)
    if interval == crossing["between"]:
        return "%s; it is anywhere between the measured %s and %s." % (text, low, high)
    return "%s (%s to %s)." % (text, words.number(interval[0]), words.number(interval[1]))


def _without_crossing(places: Sequence[_Place], shown: Sequence[int]) -> Tuple[str, List[Optional[float]], str]:
    if not places:
        return UNKNOWN, [None, None], "Nothing to compare: there is no concurrency that both were measured at."
    lowest, highest = (words.concurrency(place.concurrency) for place in (places[0], places[-1]))
    everywhere = "from %s to %s" % (lowest, highest) if len(places) > 1 else "at %s" % lowest
    rest = [place for index, place in enumerate(places) if index not in shown]
    if not shown:
        if all(place.verdict == NO_DIFFERENCE for place in rest):
            return (
                NO_DIFFERENCE,
                [None, None],
                "No difference from the baseline %s, so there is no crossover." % everywhere,
            )
        return (
            UNKNOWN,
            [None, None],
            "Not known: no difference is shown, and the measurements are too few or too noisy.",
        )
    first, last = places[shown[0]], places[shown[-1]]
    if first.verdict == FASTER:
        if shown[-1] == len(places) - 1:
            return (
                "above_highest",
                [last.concurrency, None],
                ("Faster still at %s, the highest measured concurrency: the crossover, if any, lies above." % highest),
            )
        state = "fades" if _all_equal(places[shown[-1] + 1 :]) else UNKNOWN
        return (
            state,
            [last.concurrency, None],
            (
                "Faster up to %s; above, up to %s, no difference is shown: the crossover, if any, lies above %s."
                % (words.concurrency(last.concurrency), highest, words.concurrency(last.concurrency))
            ),
        )
    if shown[0] == 0:
        return (
            "below_lowest",
            [None, first.concurrency],
            ("Slower already at %s, the lowest measured concurrency: the crossover, if any, lies below." % lowest),
        )
    state = "never_faster" if _all_equal(places[: shown[0]]) else UNKNOWN
    return (
        state,
        [None, first.concurrency],
        (
            "Never shown to be faster; slower at %s, so the crossover, if any, lies below."
            % words.concurrency(first.concurrency)
        ),
    )


def _all_equal(places: Sequence[_Place]) -> bool:
    return all(place.verdict == NO_DIFFERENCE for place in places)
