# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers as an operator reads them: with a unit, and with no more digits than they are sure of."""

from __future__ import annotations

import math
from typing import Optional, Sequence

# Of a number whose uncertainty is not known so many digits are shown.
_DIGITS = 2


def rounded(value: float, digits: int = 5) -> float:
    """A number for JSON: so many digits that none is lost that counts."""
    return float("%.*g" % (digits, value)) if math.isfinite(value) else value


def number(value: float, uncertainty: Optional[float] = None) -> str:
    """A number whose last digit is that of the first digit of its uncertainty: 1.0876 with 0.04 is 1.09."""
    if value == 0 and not uncertainty:
        return "0"
    first = math.floor(math.log10(abs(value))) if value else 0
    last = math.floor(math.log10(uncertainty)) if uncertainty else first - _DIGITS + 1
    if value:
        # At least one digit, and never more than four.
        last = max(min(last, first), first - 3)
    shown = round(value, -last)
    return "%.*f" % (max(0, -last), shown)


def half_width(interval: Optional[Sequence[float]]) -> Optional[float]:
    """Half of what an interval spans."""
    return (interval[1] - interval[0]) / 2 if interval else None


def times(ratio: float, interval: Optional[Sequence[float]]) -> str:
    """A ratio with its interval: "1.09 times (1.05 to 1.13)"."""
    half = half_width(interval)
    text = "%s times" % number(ratio, half)
    return text + (" (%s)" % span(interval) if interval else "")


def span(interval: Sequence[float]) -> str:
    """An interval: "1.05 to 1.13"."""
    half = half_width(interval)
    return "%s to %s" % (number(interval[0], half), number(interval[1], half))


def throughput(value: float, interval: Optional[Sequence[float]] = None) -> str:
    """A throughput of output tokens; without an interval with three digits at most."""
    half = half_width(interval) or 10 ** (math.floor(math.log10(value)) - 2)
    return "%s tok/s" % number(value, half)


def concurrency(value: float) -> str:
    """A concurrency: a whole number as it is, one that was computed with two digits."""
    return str(round(value)) if abs(value - round(value)) < 1e-9 or value >= 10 else number(value)


def names(words: Sequence[str], last: str = "and") -> str:
    """Names in a sentence: "a, b and c"."""
    if len(words) < 2:
        return "".join(words)
    return "%s %s %s" % (", ".join(words[:-1]), last, words[-1])


def steps(amount: Optional[int]) -> str:
    """A number of draft steps."""
    if amount == 0:
        return "no speculation"
    return "%s step%s" % (amount, "" if amount == 1 else "s")
