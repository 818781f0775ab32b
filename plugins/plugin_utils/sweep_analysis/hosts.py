# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether hosts that share a sweep are alike: by their baselines."""

from __future__ import annotations

from typing import List, Optional

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis import words
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.comparison import Comparison, compare
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.shapes import (
    FASTER,
    NO_DIFFERENCE,
    SLOWER,
    HostPair,
    Hosts,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.sweep import Sweep


def hosts(sweep: Sweep) -> Hosts:
    """The baselines of each two hosts at each concurrency that both were measured at."""
    names = sorted({one.host for one in sweep.configurations if one.points})
    without = [name for name in names if name not in sweep.baselines]
    pairs: List[HostPair] = []
    apart: List[str] = []
    for index, first in enumerate(names):
        for second in names[index + 1 :]:
            found = _pairs(sweep, first, second)
            pairs += found
            different = [pair for pair in found if pair["verdict"] in (FASTER, SLOWER)]
            if different:
                worst = max(different, key=lambda pair: abs((pair["ratio"] or 1.0) - 1))
                apart.append(
                    "the baseline of %s has %s the throughput of that of %s at concurrency %d"
                    % (first, words.times(worst["ratio"] or 1.0, worst["interval"]), second, worst["concurrency"])
                )
    alike = _alike(names, without, pairs, apart)
    return {
        "names": names,
        "without_baseline": without,
        "alike": alike,
        "pairs": pairs,
        "message": _message(names, without, alike, apart),
    }


def _pairs(sweep: Sweep, first: str, second: str) -> List[HostPair]:
    one, other = sweep.baselines.get(first), sweep.baselines.get(second)
    if one is None or other is None:
        return []
    found: List[HostPair] = []
    for concurrency in sorted(one.points.keys() & other.points.keys()):
        # As they are: each divided by its own baseline would be 1.
        result: Comparison = compare([sweep.level(one, concurrency)], [sweep.level(other, concurrency)], sweep.critical)
        found.append(
            {
                "hosts": [first, second],
                "concurrency": concurrency,
                "ratio": result.ratio,
                "interval": result.interval,
                "verdict": result.verdict,
            }
        )
    return found


def _alike(names: List[str], without: List[str], pairs: List[HostPair], apart: List[str]) -> Optional[bool]:
    if len(names) < 2:
        return None
    if apart:
        return False
    return True if not without and pairs and all(pair["verdict"] == NO_DIFFERENCE for pair in pairs) else None


def _message(names: List[str], without: List[str], alike: Optional[bool], apart: List[str]) -> str:
    if len(names) < 2:
        return "One host." if names else "Nothing was measured."
    text = []
    if apart:
        text.append(
            "The hosts are not alike: %s. Configurations of different hosts are compared by their speedups."
            % "; ".join(apart)
        )
    elif alike:
        text.append("The baselines of %s do not differ, so the hosts are alike." % words.names(names))
    else:
        text.append("Whether %s are alike is not known." % words.names(names))
    if without:
        text.append(
            "No baseline was measured on %s: its configurations are compared with the baseline of another host."
            % words.names(without)
        )
    return " ".join(text)
