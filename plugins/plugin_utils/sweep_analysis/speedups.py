# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each configuration against the baseline."""

from __future__ import annotations

from typing import List, Optional

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis import comparison, words
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.measured import Configuration
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.shapes import Speedup
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.sweep import Sweep


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
    if other is not None:
        where += "%s against %s, " % (words.throughput(own).split()[0], words.throughput(other))
    return {
        "configuration": one.label,
        "host": one.host,
        "baseline": reference.label,
        "concurrency": concurrency,
        "counts_as": words.rounded(sweep.position(concurrency, one, reference)),
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
