# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A sweep that is ready to be compared: levels, baselines, and one interval that holds for all comparisons at once."""

from __future__ import annotations

import math
import statistics
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis import student
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.comparison import (
    NOTHING,
    SAME,
    THRESHOLD,
    Comparison,
    compare,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.measured import Configuration, read
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.noise import Level, estimate, level
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.shapes import Method
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.words import number, rounded

CONFIDENCE = 0.95


class Sweep:
    """The configurations of a sweep with everything that a comparison needs."""

    def __init__(self, results: Mapping[str, Any]) -> None:
        self.configurations, self.excluded = read(results)
        given = results.get("sweep")
        self.settings: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        self.noise = estimate(point for one in self.configurations for point in one.points.values())
        self._levels: Dict[Tuple[int, int], Level] = {
            (one.index, concurrency): level(point, self.noise)
            for one in self.configurations
            for concurrency, point in one.points.items()
        }
        self.concurrencies = sorted({concurrency for one in self.configurations for concurrency in one.points})
        self.baselines = self._baselines()
        self.comparisons = self._count()
        self.critical = self._critical(self.comparisons)

    def level(self, one: Configuration, concurrency: int) -> Optional[Level]:
        return self._levels.get((one.index, concurrency))

    def compare(self, above: Configuration, below: Configuration, concurrency: int) -> Comparison:
        """above in units of below.  Of two hosts each is first divided by the baseline of its own host."""
        a, b = self.level(above, concurrency), self.level(below, concurrency)
        if a is None or b is None:
            return NOTHING
        if above.index == below.index:
            return SAME
        if above.host != below.host:
            own, other = self.baselines.get(above.host), self.baselines.get(below.host)
            by_own = self.level(own, concurrency) if own else None
            by_other = self.level(other, concurrency) if other else None
            if own and other and by_own and by_other:
                # A baseline divided by itself is 1, and has no noise.
                up = [] if own.index == above.index else [(a, by_own)]
                down = [] if other.index == below.index else [(b, by_other)]
                if not up and not down:
                    return SAME
                return compare(
                    [one for one, _base in up] + [base for _one, base in down],
                    [base for _one, base in up] + [one for one, _base in down],
                    self.critical,
                )
        return compare([a], [b], self.critical)

    def reference(self, one: Configuration) -> Optional[Configuration]:
        """The baseline that a configuration is compared with: that of its host, else the first one."""
        if self.is_reference(one):
            return None
        return self.baselines.get(one.host) or next(iter(self.baselines.values()), None)

    def is_reference(self, one: Configuration) -> bool:
        """Whether it is the baseline of its host."""
        baseline = self.baselines.get(one.host)
        return baseline is not None and baseline.index == one.index

    def position(self, concurrency: int, *among: Configuration) -> float:
        """The concurrency that points asked for concurrency count at, where some did not reach it."""
        found = [one.points[concurrency].counts_as for one in among or self.configurations if concurrency in one.points]
        return statistics.median(found) if found else float(concurrency)

    def own_interval(self, one: Configuration, concurrency: int) -> Optional[List[float]]:
        """The interval of a point by itself, in tok/s."""
        found = self.level(one, concurrency)
        critical = self._critical(1)
        if found is None or found.variance is None or critical is None:
            return None
        half = critical * math.sqrt(found.variance)
        return [rounded(math.exp(found.log - half)), rounded(math.exp(found.log + half))]

    def _baselines(self) -> Dict[str, Configuration]:
        """The baseline of each host: the first one that was measured."""
        found: Dict[str, Configuration] = {}
        for one in self.configurations:
            if one.baseline and one.points:
                found.setdefault(one.host, one)
        return found

    def _count(self) -> int:
        """How many comparisons are made: with the baseline, each number of steps with the next, host with host."""
        total = 0
        for one in self.configurations:
            reference = self.reference(one)
            if reference is not None:
                shared = len(one.points.keys() & reference.points.keys())
                total += shared if one.adaptive or not one.algorithm else 2 * shared
        hosts = list(self.baselines.values())
        total += sum(len(a.points.keys() & b.points.keys()) for index, a in enumerate(hosts) for b in hosts[:index])
        return max(total, 1)

    def _critical(self, comparisons: int) -> Optional[float]:
        if not self.noise.degrees:
            return None
        return student.quantile(1 - (1 - CONFIDENCE) / (2 * comparisons), self.noise.degrees)

    def method(self) -> Method:
        """The numbers behind the verdicts."""
        deviation = self.noise.deviation
        if deviation is None:
            message = (
                "Each point has a single repeat, so there are no intervals: repeat each point at least three times."
            )
        else:
            message = (
                "Repeats of a point differ by %s %% (standard deviation); all intervals hold at once with %d %%."
                % (
                    number(100 * deviation),
                    round(100 * CONFIDENCE),
                )
            )
        return {
            "confidence": CONFIDENCE,
            "comparisons": self.comparisons,
            "noise": None if deviation is None else rounded(deviation, 3),
            "degrees_of_freedom": self.noise.degrees,
            "critical": None if self.critical is None else rounded(self.critical, 4),
            "threshold": THRESHOLD,
            "message": message,
        }
