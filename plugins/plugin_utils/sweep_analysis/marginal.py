# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each further draft step brings."""

from __future__ import annotations

import math
from typing import List, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis import comparison, words
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.choice import acceptable
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.measured import Configuration
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.shapes import Gain, Marginal, Pays
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.step_groups import (
    step_groups,
    title,
    without_steps,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.sweep import Sweep


def marginal(sweep: Sweep) -> List[Marginal]:
    """The gains of each group of configurations that differ in their steps alone, the baseline as 0 steps."""
    found: List[Marginal] = []
    for group in step_groups(sweep):
        zero = without_steps(sweep, group)
        members = ([zero] if zero else []) + group
        if len(members) < 2:
            continue
        gains = [
            _gain(sweep, below, above, concurrency)
            for concurrency in sweep.concurrencies
            for below, above in _neighbours(members, concurrency)
        ]
        pays = [_pays(sweep, members, concurrency) for concurrency in sweep.concurrencies]
        found.append(
            {
                "group": title(group),
                "configurations": [one.label for one in members],
                "gains": gains,
                "pays": [one for one in pays if one is not None],
            }
        )
    return found


def _neighbours(members: Sequence[Configuration], concurrency: int) -> List[Tuple[Configuration, Configuration]]:
    here = [one for one in members if concurrency in one.points]
    return list(zip(here, here[1:]))


def _gain(sweep: Sweep, below: Configuration, above: Configuration, concurrency: int) -> Gain:
    result = sweep.compare(above, below, concurrency)
    fewer, more = below.num_steps or 0, above.num_steps or 0
    return {
        "concurrency": concurrency,
        "from_steps": fewer,
        "to_steps": more,
        "from_configuration": below.label,
        "to_configuration": above.label,
        "gain": result.ratio,
        "per_step": None if result.log is None else words.rounded(math.exp(result.log / max(more - fewer, 1))),
        "interval": result.interval,
        "verdict": result.verdict,
        "reason": "At concurrency %d, %s against %s: %s"
        % (concurrency, words.steps(more), words.steps(fewer), comparison.sentence(result, "no measurement")),
    }


def _pays(sweep: Sweep, members: Sequence[Configuration], concurrency: int) -> Optional[Pays]:
    here = [one for one in members if concurrency in one.points]
    if len(here) < 2:
        return None
    at = "At concurrency %d" % concurrency
    results = [sweep.compare(one, here[0], concurrency) for one in here[1:]]
    if all(result.verdict == "unknown" for result in results):
        return {
            "concurrency": concurrency,
            "steps": None,
            "reason": at + " it is not known which number of steps pays.",
        }
    best = min(acceptable(sweep, here, concurrency), key=lambda one: one.complexity)
    steps = best.num_steps or 0
    more = [one for one in here if (one.num_steps or 0) > steps]
    if not more:
        reason = "%s every measured step pays, up to %s." % (at, words.steps(steps))
    else:
        result = sweep.compare(more[0], best, concurrency)
        reason = "%s speculation does not pay" % at if not steps else "%s steps beyond %d do not pay" % (at, steps)
        if result.ratio is not None:
            reason += ": with %s the throughput is %s that with %s" % (
                words.steps(more[0].num_steps),
                words.times(result.ratio, result.interval),
                words.steps(steps),
            )
        reason += "."
    return {"concurrency": concurrency, "steps": steps, "reason": reason}
