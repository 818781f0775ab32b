# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which configuration for which concurrency."""

from __future__ import annotations

from typing import Any, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis import comparison, words
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.choice import Stretch, at, choose
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.measured import Configuration, whole
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.shapes import (
    FASTER,
    NO_DIFFERENCE,
    SLOWER,
    UNKNOWN,
    Best,
    Decision,
    Range,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.sweep import Sweep


def best_for(results: Mapping[str, Any], concurrency: int) -> Best:
    """The configuration for an expected concurrency.

    results as for analysis.analyse.  Outside what was measured the nearest range counts, "measured" is then False and
    the reason says so.  "configuration" is None where nothing was measured.  Raises ValueError for a concurrency
    below 1.
    """
    return _best(_ranges(Sweep(results)), concurrency)


def decide(sweep: Sweep) -> Decision:
    """The ranges, and the best for the concurrency that the sweep expects."""
    ranges = _ranges(sweep)
    expected = whole(sweep.settings.get("expected_concurrency"))
    if not ranges:
        reason = "Nothing was measured, so nothing can be said."
    elif len(ranges) == 1:
        reason = "%s for all measured concurrencies." % ranges[0]["configuration"]
    else:
        reason = "; ".join("%s from %d to %d" % (one["configuration"], one["from"], one["to"]) for one in ranges) + "."
    best = _best(ranges, expected) if expected is not None and expected >= 1 else None
    return {"ranges": ranges, "best": best, "reason": reason}


def candidates(sweep: Sweep) -> List[Configuration]:
    """All that were measured; of the baselines of several hosts the first."""
    first = next(iter(sweep.baselines.values()), None)
    return [
        one
        for one in sweep.configurations
        if one.points and (not sweep.is_reference(one) or (first is not None and one.index == first.index))
    ]


def _ranges(sweep: Sweep) -> List[Range]:
    among = candidates(sweep)
    return [_range(sweep, among, stretch) for stretch in choose(sweep, among)]


def _range(sweep: Sweep, among: Sequence[Configuration], stretch: Stretch) -> Range:
    one = stretch.choice
    ratios = []
    for concurrency in stretch.concurrencies:
        reference = sweep.reference(one)
        result = sweep.compare(one, reference, concurrency) if reference else None
        if result is not None and result.ratio is not None:
            ratios.append(result.ratio)
    confirmed, reason = _why(sweep, among, stretch)
    return {
        "from": stretch.first,
        "to": stretch.last,
        "configuration": one.label,
        "host": one.host,
        "num_steps": one.num_steps,
        "measured": list(stretch.concurrencies),
        "boundary": None if stretch.boundary is None else words.rounded(stretch.boundary, 4),
        "ratio": min(ratios) if ratios else None,
        "confirmed": confirmed,
        "reason": reason,
    }


def _why(sweep: Sweep, among: Sequence[Configuration], stretch: Stretch) -> Tuple[bool, str]:
    if not sweep.baselines:
        return False, "No baseline was measured: it is the simplest of those that no other is shown to be faster than."
    if sweep.is_reference(stretch.choice):
        return _why_the_baseline(sweep, among, stretch)
    return _why_not_the_baseline(sweep, among, stretch)


def _why_the_baseline(sweep: Sweep, among: Sequence[Configuration], stretch: Stretch) -> Tuple[bool, str]:
    unknown: List[str] = []
    nearest: Optional[comparison.Comparison] = None
    who = ""
    for concurrency in stretch.concurrencies:
        base = at(sweep, stretch.choice, concurrency)
        for other in among:
            if base is None or sweep.is_reference(other) or concurrency not in other.points:
                continue
            result = sweep.compare(other, base, concurrency)
            if result.verdict == UNKNOWN and other.label not in unknown:
                unknown.append(other.label)
            if result.log is not None and (nearest is None or nearest.log is None or result.log > nearest.log):
                nearest, who = result, "%s at concurrency %d" % (other.label, concurrency)
    if nearest is None or nearest.ratio is None:
        return False, "Nothing else was measured here."
    text = "Nothing is shown to be faster; the nearest is %s with %s its throughput." % (
        who,
        words.times(nearest.ratio, nearest.interval),
    )
    if unknown:
        return False, text + " Not known for %s: repeat these points more often." % words.names(unknown)
    return nearest.why != comparison.SINGLE_REPEAT, text


def _why_not_the_baseline(sweep: Sweep, among: Sequence[Configuration], stretch: Stretch) -> Tuple[bool, str]:
    one, reference = stretch.choice, sweep.reference(stretch.choice)
    shown: List[str] = []
    equal: List[str] = []
    unknown: List[str] = []
    confirmed = False
    for concurrency in stretch.concurrencies:
        result = sweep.compare(one, reference, concurrency) if reference else comparison.NOTHING
        if result.verdict == FASTER and result.ratio is not None:
            shown.append("%s at %d" % (words.times(result.ratio, result.interval), concurrency))
            confirmed = confirmed or result.half is not None
        elif result.verdict == NO_DIFFERENCE:
            equal.append(str(concurrency))
        else:
            unknown.append(str(concurrency))
    if not shown:
        return False, "Nothing is shown to be faster here, and nothing simpler was measured."
    ends = shown[:1] + shown[-1:] if len(shown) > 1 else shown
    text = "Against the throughput of %s: %s" % (reference.label if reference else "", words.names(ends))
    if equal:
        text += "; no difference at %s" % words.names(equal)
    if unknown:
        text += "; not known at %s" % words.names(unknown)
    ties = _no_faster(sweep, among, stretch)
    if ties:
        text += ". %s %s less simple, and not shown to be faster" % (
            words.names(ties),
            "is" if len(ties) == 1 else "are",
        )
    return confirmed, text + "."


def _no_faster(sweep: Sweep, among: Sequence[Configuration], stretch: Stretch) -> List[str]:
    """Those that are less simple, and here neither shown to be slower than the choice nor faster."""
    found = []
    for other in among:
        if other.complexity <= stretch.choice.complexity:
            continue
        verdicts = [sweep.compare(other, stretch.choice, one).verdict for one in stretch.concurrencies]
        if SLOWER not in verdicts:
            found.append(other.label)
    return found


def _best(ranges: Sequence[Range], concurrency: int) -> Best:
    if concurrency < 1:
        raise ValueError("The expected concurrency is %d: it must be at least 1." % concurrency)
    if not ranges:
        return {
            "concurrency": concurrency,
            "configuration": None,
            "host": "",
            "confirmed": False,
            "measured": False,
            "reason": "Nothing was measured.",
        }
    low, high = ranges[0]["from"], ranges[-1]["to"]
    nearest = min(max(concurrency, low), high)
    found = next(one for one in ranges if one["from"] <= nearest <= one["to"])
    reason = found["reason"]
    if nearest != concurrency:
        reason = "Concurrency %d was not measured (%d to %d were), so this is what holds at %d. %s" % (
            concurrency,
            low,
            high,
            nearest,
            reason,
        )
    return {
        "concurrency": concurrency,
        "configuration": found["configuration"],
        "host": found["host"],
        "confirmed": found["confirmed"] and nearest == concurrency,
        "measured": nearest == concurrency,
        "reason": reason,
    }
