# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The analysis of a sweep: from its results to what an operator should know.  Pure: no I/O, no clock, no chance."""

from __future__ import annotations

from typing import Any, List, Mapping

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis import words
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.acceptance import acceptance
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.adaptive_config import adaptive_config
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.conditions import conditions
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.crossovers import crossovers
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.decision import decide
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.hosts import hosts
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.marginal import marginal
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.noise import outlier_words
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.shapes import Analysis, PointSummary, Row
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.speedups import speedups
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.summary import summary
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.sweep import Sweep

FORMAT = 1


def analyse(results: Mapping[str, Any]) -> Analysis:
    """Everything that is computed from the results of a sweep.

    results is a results.json, with or without "analysis": {"sweep": {...}, "configurations": [row, ...]}.  Rows may
    be pending, failed, or lack points, and numbers may be missing or null: what cannot be computed is None with a
    reason.  Nothing in results is changed.  Raises ValueError where results has no list of configurations.
    """
    sweep = Sweep(results)
    alike = hosts(sweep)
    analysis: Analysis = {
        "format": FORMAT,
        "method": sweep.method(),
        "configurations": _rows(sweep),
        "points": _points(sweep),
        "excluded": sweep.excluded,
        "conditions": conditions(sweep, alike),
        "hosts": alike,
        "speedups": speedups(sweep),
        "crossovers": crossovers(sweep),
        "acceptance": acceptance(sweep),
        "marginal": marginal(sweep),
        "decision": decide(sweep),
        "adaptive": adaptive_config(sweep),
        "summary": [],
    }
    analysis["summary"] = summary(analysis)
    return analysis


def _rows(sweep: Sweep) -> List[Row]:
    found: List[Row] = []
    for one in sweep.configurations:
        reference = sweep.reference(one)
        found.append(
            {
                "configuration": one.label,
                "name": one.name,
                "key": one.key,
                "host": one.host,
                "baseline": one.baseline,
                "reference": None if reference is None else reference.label,
                "adaptive": one.adaptive,
                "num_steps": one.num_steps,
                "eagle_topk": one.topk,
                "state": one.state,
                "reason": one.reason,
            }
        )
    return found


def _points(sweep: Sweep) -> List[PointSummary]:
    found: List[PointSummary] = []
    for one in sweep.configurations:
        for concurrency, point in sorted(one.points.items()):
            level = sweep.level(one, concurrency)
            reached = point.reached
            found.append(
                {
                    "configuration": one.label,
                    "host": one.host,
                    "concurrency": concurrency,
                    "reached": None if reached is None else words.rounded(reached, 4),
                    "counts_as": words.rounded(point.counts_as, 4),
                    "repeats": len(point.repeats),
                    "throughput": words.rounded(point.throughput),
                    "interval": sweep.own_interval(one, concurrency),
                    "outliers": outlier_words(point, level.outliers) if level else [],
                    "warnings": list(point.warnings),
                }
            )
    return found
