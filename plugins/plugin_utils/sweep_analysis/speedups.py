# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each configuration against the baseline."""

from __future__ import annotations

from typing import List, Optional

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis import comparison, words
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.measured import Configuration
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.shapes import Speedup
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.sweep import Sweep

# The share of the concurrency above which it counts as reached in words.
_REACHED = 0.98


def speedups(sweep: Sweep) -> List[Speedup]:
    """A comparison for each configuration and each concurrency at which it was measured."""
    found = []
    for one in sweep.configurations:
        reference = sweep.reference(one)
        if reference is not None:
            found += [_speedup(sweep, one, reference, concurrency) for concurrency in sorted(one.points)]
    return found


def _speedup(sweep: Sweep, one: Configuration, reference: Configuration, concurrency: int) -> Speedup:
    result = sweep.compare(one, reference, concurrency)
    own, other = one.points[concurrency].throughput, _throughput(reference, concurrency)
    reason = comparison.sentence(result, "%s has no measurement there" % reference.label)
    where = "At concurrency %d: " % concurrency
    position = sweep.position(concurrency, one, reference)
    if other is not None:
        # Where the two were not under the same load, the factor is not that of the two figures.
        link = ", " if position > _REACHED * concurrency else "; at the %d that was reached, " % round(position)
        where += "%s against %s%s" % (words.throughput(own).split()[0], words.throughput(other), link)
    return {
        "configuration": one.label,
        "host": one.host,
        "baseline": reference.label,
        "concurrency": concurrency,
        "counts_as": words.rounded(position),
        "throughput": words.rounded(own),
        "baseline_throughput": None if other is None else words.rounded(other),
        "ratio": result.ratio,
        "interval": result.interval,
        "verdict": result.verdict,
        "reason": where + reason,
    }


def _throughput(one: Configuration, concurrency: int) -> Optional[float]:
    point = one.points.get(concurrency)
    return None if point is None else point.throughput
