# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether one thing is faster than another, from their levels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis import words
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.noise import Level
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.shapes import (
    FASTER,
    NO_DIFFERENCE,
    SLOWER,
    UNKNOWN,
)

# A smaller difference is none: two starts of the same server can differ by as much.
THRESHOLD = 0.03
# An interval that holds 1, and reaches further than this, hides more than it says.
TOO_WIDE = 1.25
# A single repeat has no interval; only so large a factor is taken for a difference.
SINGLE = 1.4

MISSING = "missing"
SINGLE_REPEAT = "single"
NOISY = "noisy"
SMALL = "small"


@dataclass(frozen=True)
class Comparison:
    """The logarithm of a ratio with half the width of its interval; what is not known is None."""

    log: Optional[float]
    half: Optional[float]
    verdict: str
    why: str = ""

    @property
    def ratio(self) -> Optional[float]:
        return None if self.log is None else words.rounded(math.exp(self.log))

    @property
    def interval(self) -> Optional[List[float]]:
        if self.log is None or self.half is None:
            return None
        return [words.rounded(math.exp(self.log - self.half)), words.rounded(math.exp(self.log + self.half))]


NOTHING = Comparison(None, None, UNKNOWN, MISSING)
SAME = Comparison(0.0, 0.0, NO_DIFFERENCE)


def compare(
    above: Sequence[Optional[Level]], below: Sequence[Optional[Level]], critical: Optional[float]
) -> Comparison:
    """The product of levels above, divided by that of those below; critical is Student's t.

    Where one reached less of the concurrency than the other, it might have been faster with all of it, but not by more
    than the part that it lacked: the middle of what is possible counts, and the interval has room for all of it.
    """
    levels = [*above, *below]
    known = [one for one in levels if one is not None]
    if len(known) < len(levels):
        return NOTHING
    log = sum(one.log for one in above if one) - sum(one.log for one in below if one)
    lacking = sum(one.load for one in below if one) - sum(one.load for one in above if one)
    log += lacking / 2
    variances = [one.variance for one in known if one.variance is not None]
    if len(variances) < len(known) or critical is None:
        return Comparison(log, None, *_single(log))
    half = critical * math.sqrt(sum(variances)) + abs(lacking) / 2
    return Comparison(log, half, *_with_interval(log, half))


def _single(log: float) -> Tuple[str, str]:
    if abs(log) < math.log(SINGLE):
        return UNKNOWN, SINGLE_REPEAT
    return (FASTER if log > 0 else SLOWER), SINGLE_REPEAT


def _with_interval(log: float, half: float) -> Tuple[str, str]:
    if half < abs(log):
        if abs(log) < math.log1p(THRESHOLD):
            return NO_DIFFERENCE, SMALL
        return (FASTER if log > 0 else SLOWER), ""
    if abs(log) + half >= math.log(TOO_WIDE):
        return UNKNOWN, NOISY
    return NO_DIFFERENCE, ""


def sentence(comparison: Comparison, missing: str) -> str:
    """What a comparison says; missing names what has no measurement."""
    if comparison.ratio is None:
        return "not known: %s." % missing
    text = words.times(comparison.ratio, comparison.interval)
    if comparison.why == SINGLE_REPEAT:
        if comparison.verdict == UNKNOWN:
            return "not known from a single repeat: %s, and below a factor of %s it may be chance." % (text, SINGLE)
        return "%s, from a single repeat: no interval, but more than chance explains." % text
    if comparison.why == NOISY:
        return "not known: %s; the repeats differ too much, so repeat it more often." % text
    if comparison.why == SMALL:
        return "no difference that counts: %s, less than %d %%." % (text, round(100 * THRESHOLD))
    return "no difference: %s." % text if comparison.verdict == NO_DIFFERENCE else text + "."
