# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many tokens a verify step gives, against what the draft should give."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Set, Tuple

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis import student, words
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.measured import Configuration, Repeat
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.shapes import (
    Acceptance,
    AcceptanceReport,
    DraftFit,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.sweep import CONFIDENCE, Sweep

# 1 + p + p^2 + ... takes each drafted token for as likely as the one before, which is true within about so much.
TOLERANCE = 0.10
# Nothing but the target model's own token.
NOTHING_ACCEPTED = 1.05
# Acceptance cannot be known better than this: prompts differ.
_LEAST_ERROR = 0.01
_ONE_AFTER_ANOTHER = frozenset(["EAGLE", "EAGLE3", "NEXTN", "STANDALONE"])


@dataclass(frozen=True)
class _Measured:
    """Tokens per verify step of a configuration, with half the width of its interval."""

    value: float
    half: float
    source: str
    lowest: float
    highest: float


def expected_length(p: float, steps: int) -> float:
    """1 + p + p^2 + ... + p^steps."""
    return sum(p**power for power in range(steps + 1))


def fitted_p(length: float, steps: int) -> float:
    """The p whose expectation is length, between 0 and 1."""
    low, high = 0.0, 1.0
    for _step in range(60):
        middle = (low + high) / 2
        if expected_length(middle, steps) < length:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def acceptance(sweep: Sweep) -> AcceptanceReport:
    """The fit of each draft, and each configuration against the fit of its draft."""
    speculating = [one for one in sweep.configurations if one.algorithm and one.points]
    measured = {one.index: found for one in speculating if (found := _measured(one)) is not None}
    drafts: Dict[Tuple[str, str], List[Configuration]] = {}
    for one in speculating:
        if not why_not(one) and one.index in measured:
            drafts.setdefault((one.algorithm, one.draft), []).append(one)
    fits = {name: _fit(name, members, measured) for name, members in drafts.items()}
    return {
        "drafts": list(fits.values()),
        "configurations": [
            _acceptance(one, measured.get(one.index), fits.get((one.algorithm, one.draft))) for one in speculating
        ],
    }


def why_not(one: Configuration) -> str:
    """Why the expectation does not hold for a configuration, "" if it does."""
    if one.algorithm not in _ONE_AFTER_ANOTHER:
        return "%s does not draft one token after another with a model" % one.algorithm
    if one.adaptive:
        return "its number of steps changes with the load"
    if one.topk != 1:
        return "top-k %s drafts a tree, and the formula is for one token a step" % (one.topk or "unknown")
    if not one.num_steps:
        return "its number of steps is not known"
    return ""


def _measured(one: Configuration) -> Optional[_Measured]:
    """The median over points of the medians over repeats."""
    values: List[float] = []
    sources: Set[str] = set()
    verified = 0.0
    for point in one.points.values():
        known = [repeat for repeat in point.repeats if repeat.accept_length is not None]
        if known:
            values.append(statistics.median(repeat.accept_length or 0.0 for repeat in known))
            sources.update(repeat.source for repeat in known)
            verified += sum(repeat.verify_steps or 0.0 for repeat in known)
    if not values:
        return None
    value = statistics.median(values)
    errors = [_LEAST_ERROR * value]
    if len(values) > 1:
        critical = student.quantile(1 - (1 - CONFIDENCE) / 2, len(values) - 1)
        errors.append(critical * statistics.stdev(values) / math.sqrt(len(values)))
    if verified and one.num_steps:
        errors.append(1.96 * _deviation(fitted_p(value, one.num_steps), one.num_steps) / math.sqrt(verified))
    source = sources.pop() if len(sources) == 1 else "mixed"
    return _Measured(value, max(errors), source, min(values), max(values))


def _deviation(p: float, steps: int) -> float:
    """The standard deviation of the tokens of one verify step."""
    chances = [p**accepted * (1 - p) for accepted in range(steps)] + [p**steps]
    mean = sum(chance * accepted for accepted, chance in enumerate(chances))
    return math.sqrt(sum(chance * (accepted - mean) ** 2 for accepted, chance in enumerate(chances)))


def _fit(name: Tuple[str, str], members: Sequence[Configuration], measured: Dict[int, _Measured]) -> DraftFit:
    """The median of the p of each configuration, so that one wrong configuration does not move it much."""
    single = [fitted_p(measured[one.index].value, one.num_steps or 1) for one in members]
    edges = [
        [fitted_p(measured[one.index].value + sign * measured[one.index].half, one.num_steps or 1) for one in members]
        for sign in (-1, 1)
    ]
    p = statistics.median(single)
    interval = [words.rounded(statistics.median(edge), 3) for edge in edges]
    labels = [one.label for one in members]
    text = "One drafted token is accepted with a chance of %s (%s)" % (
        words.number(p, words.half_width(interval)),
        words.span(interval),
    )
    if len(members) == 1:
        text += ", from %s alone, so there is nothing to hold it against." % labels[0]
    else:
        text += ", from %s." % words.names(labels)
    algorithm, draft = name
    return {
        "draft": draft,
        "algorithm": algorithm,
        "p": words.rounded(p, 3),
        "interval": interval,
        "configurations": labels,
        "reason": text,
    }


def _acceptance(one: Configuration, measured: Optional[_Measured], fit: Optional[DraftFit]) -> Acceptance:
    excuse = why_not(one)
    p = fit["p"] if fit and not excuse else None
    expected = None if p is None or not one.num_steps else expected_length(p, one.num_steps)
    difference = None if expected is None or measured is None else measured.value - expected
    verdict, reason = _verdict(one, measured, expected, fit, excuse)
    interval = None
    if measured is not None:
        interval = [words.rounded(max(1.0, measured.value - measured.half), 4)]
        interval.append(words.rounded(measured.value + measured.half, 4))
    return {
        "configuration": one.label,
        "host": one.host,
        "applies": not excuse,
        "num_steps": one.num_steps,
        "measured": None if measured is None else words.rounded(measured.value, 4),
        "interval": interval,
        "p": p,
        "expected": None if expected is None else words.rounded(expected, 4),
        "difference": None if difference is None else words.rounded(difference, 3),
        "by_position": _by_position(one, measured),
        "source": "" if measured is None else measured.source,
        "verdict": verdict,
        "reason": reason,
    }


def _verdict(
    one: Configuration,
    measured: Optional[_Measured],
    expected: Optional[float],
    fit: Optional[DraftFit],
    excuse: str,
) -> Tuple[str, str]:
    if measured is None:
        return "unknown", "No acceptance was measured."
    told = "%s tokens per verify step" % words.number(measured.value, measured.half)
    if measured.value < NOTHING_ACCEPTED:
        return "nothing_accepted", told + ": the draft is of no use. It is of another model, or wrong layers feed it."
    spread = ""
    if measured.highest > measured.lowest * (1 + TOLERANCE):
        spread = " It differs between the concurrencies (%s to %s), which it should not." % (
            words.number(measured.lowest, measured.half),
            words.number(measured.highest, measured.half),
        )
    if excuse:
        return "does_not_apply", "%s. There is no expectation: %s.%s" % (told, excuse, spread)
    if expected is None or fit is None:
        return "unknown", told + "." + spread
    if len(fit["configurations"]) == 1:
        return "as_expected", "%s; nothing else has this draft, so there is nothing to hold it against.%s" % (
            told,
            spread,
        )
    against = "%s, %s expected" % (told, words.number(expected, measured.half))
    if abs(measured.value - expected) <= max(measured.half, TOLERANCE * (expected - 1)):
        return "as_expected", against + "." + spread
    if measured.value > expected:
        return "above", against + ": this configuration is not like the others with this draft." + spread
    return "below", against + ": look at its draft and its layers, which the others seem not to share." + spread


def _by_position(one: Configuration, measured: Optional[_Measured]) -> List[float]:
    """The chance of each drafted token, once those before it are accepted, where the counts fit the length."""
    counts: List[float] = []
    for point in one.points.values():
        for repeat in point.repeats:
            counts = _added(counts, repeat)
    total = sum(counts)
    if measured is None or not total or why_not(one):
        return []
    mean = 1 + sum(accepted * amount for accepted, amount in enumerate(counts)) / total
    if abs(mean - measured.value) > 0.05 * measured.value:
        return []
    chances = []
    for position in range(1, min(len(counts), (one.num_steps or 0) + 1)):
        tried, accepted = sum(counts[position - 1 :]), sum(counts[position:])
        if not tried:
            break
        chances.append(words.rounded(accepted / tried, 3))
    return chances


def _added(counts: Sequence[float], repeat: Repeat) -> List[float]:
    longest = max(len(counts), len(repeat.histogram))
    padded = [list(one) + [0.0] * (longest - len(one)) for one in (counts, repeat.histogram)]
    return [a + b for a, b in zip(*padded)]
