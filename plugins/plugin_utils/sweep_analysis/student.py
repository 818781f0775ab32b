# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Quantiles of Student's t: the standard library has only those of the normal distribution."""

from __future__ import annotations

import functools
import math

_TINY = 1e-300


@functools.lru_cache(maxsize=256)
def quantile(probability: float, degrees: int) -> float:
    """The t below which probability lies, for probability above one half."""
    if not 0.5 < probability < 1 or degrees < 1:
        raise ValueError("no quantile for probability %r and %r degrees of freedom" % (probability, degrees))
    low, high = 0.0, 1.0
    while _below(high, degrees) < probability:
        low, high = high, high * 2
    for _step in range(100):
        middle = (low + high) / 2
        if _below(middle, degrees) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _below(value: float, degrees: int) -> float:
    """The probability of less than value, for value from 0 up."""
    return 1 - 0.5 * _incomplete_beta(degrees / (degrees + value * value), degrees / 2, 0.5)


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    # The fraction converges fast on one side of the mean only.
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(x, a, b) / a
    return 1 - front * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, evaluated from its front (Lentz)."""
    c = 1.0
    d = 1 / _not_zero(1 - (a + b) * x / (a + 1))
    result = d
    for m in range(1, 500):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _not_zero(1 + term * d)
            c = _not_zero(1 + term / c)
            result *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return result


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
