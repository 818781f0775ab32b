# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much repeats of the same point differ, and what that makes of each point.

All of it is in natural logarithms: a difference of 0.02 is one of 2 %.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Iterable, List, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis import words
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.measured import Point, Repeat
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.shapes import Outlier

# Repeats that agree better than this agree by chance.
LEAST_NOISE = 0.005
# A repeat so many standard deviations, and at the least so far, from its point's median is shown as an outlier.
OUTLIER_DEVIATIONS = 5.0
OUTLIER_LEAST = math.log(1.05)
# The median of the absolute difference of two normal values, in standard deviations.
_MEDIAN_DIFFERENCE = 0.9539
# The variance of the median of so many normal values, as a part of that of one of them.
_MEDIAN_VARIANCE = {1: 1.0, 2: 0.5, 3: 0.4487, 4: 0.2982, 5: 0.2868, 6: 0.2147, 7: 0.2104}


@dataclass(frozen=True)
class Noise:
    """The standard deviation of a repeat, over all points of a sweep; None where no point has two repeats."""

    deviation: Optional[float]
    degrees: int
    robust: Optional[float]


@dataclass(frozen=True)
class Level:
    """A point as a logarithm with its variance; the variance is None where there is one repeat."""

    log: float
    variance: Optional[float]
    outliers: Tuple[Repeat, ...] = ()
    # The logarithm of the concurrency that the point counts at, as part of that asked for.
    load: float = 0.0


def estimate(points: Iterable[Point]) -> Noise:
    """The noise of a sweep, without the outliers: one bad repeat must not blur all points."""
    measured = list(points)
    robust = _robust(measured)
    if robust is None:
        return Noise(None, 0, None)
    squares, degrees = 0.0, 0
    for point in measured:
        found = _outliers(point, robust)
        good = [math.log(repeat.throughput) for repeat in point.repeats if repeat not in found]
        if len(good) > 1:
            squares += _squares(good)
            degrees += len(good) - 1
    if not degrees:
        return Noise(None, 0, robust)
    return Noise(max(math.sqrt(squares / degrees), LEAST_NOISE), degrees, robust)


def level(point: Point, noise: Noise) -> Level:
    """A point's median, and how sure it is: by the noise of the sweep, or its own where that is larger."""
    log = math.log(point.throughput)
    load = math.log(point.counts_as / point.concurrency)
    found = tuple(_outliers(point, noise.robust)) if noise.robust is not None else ()
    amount = len(point.repeats)
    if amount < 2 or noise.deviation is None:
        return Level(log, None, found, load)
    majority = amount > 2 * len(found)
    counted = [repeat for repeat in point.repeats if not majority or repeat not in found]
    logs = [math.log(repeat.throughput) for repeat in counted]
    own = math.sqrt(_squares(logs) / (len(logs) - 1)) if len(logs) > 1 else 0.0
    factor = _MEDIAN_VARIANCE.get(amount, math.pi / 2 / amount)
    if found and majority:
        # Outliers on one side move the median towards the edge of the others.
        factor = math.pi / 2 / (amount - 2 * len(found))
    return Level(log, factor * max(own, noise.deviation) ** 2, found, load)


def outlier_words(point: Point, found: Tuple[Repeat, ...]) -> List[Outlier]:
    """The outliers of a point for a report."""
    others = [repeat.throughput for repeat in point.repeats if repeat not in found]
    told: List[Outlier] = []
    for repeat in found:
        if len(point.repeats) > 2 * len(found):
            apart = abs(repeat.throughput / statistics.median(others) - 1)
            message = "Repeat %d: %s, %s %% %s than the others of its point. It stays in the data." % (
                repeat.number,
                words.throughput(repeat.throughput),
                words.number(100 * apart),
                "less" if repeat.throughput < statistics.median(others) else "more",
            )
        else:
            message = "Repeat %d: %s. The repeats of this point do not agree, and which is right is not known." % (
                repeat.number,
                words.throughput(repeat.throughput),
            )
        told.append({"repeat": repeat.number, "throughput": words.rounded(repeat.throughput), "message": message})
    return told


def _squares(values: Sequence[float]) -> float:
    """The sum of the squared distances from the mean."""
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values)


def _robust(points: Iterable[Point]) -> Optional[float]:
    """The noise from the median difference of two repeats of a point, which a few bad repeats do not move."""
    differences = []
    for point in points:
        logs = [math.log(repeat.throughput) for repeat in point.repeats]
        differences += [abs(a - b) for index, a in enumerate(logs) for b in logs[:index]]
    return max(statistics.median(differences) / _MEDIAN_DIFFERENCE, LEAST_NOISE) if differences else None


def _outliers(point: Point, robust: float) -> List[Repeat]:
    """The repeats far from the median; of two that differ much both, as nobody knows which is right."""
    median = math.log(point.throughput)
    limit = max(OUTLIER_DEVIATIONS * robust, OUTLIER_LEAST)
    if len(point.repeats) == 2:
        # The median lies in the middle between them.
        limit /= 2
    return [repeat for repeat in point.repeats if abs(math.log(repeat.throughput) - median) > limit]
