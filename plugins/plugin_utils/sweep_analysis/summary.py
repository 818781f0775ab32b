# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What matters most, a sentence each."""

from __future__ import annotations

from typing import List

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.shapes import Analysis

# Of so many conditions the messages stand here; the others are counted.
_MOST_CONDITIONS = 3
_WRONG = frozenset(["nothing_accepted", "below", "above"])


def summary(analysis: Analysis) -> List[str]:
    """The sentences for the top of a report; analysis lacks nothing but these."""
    found = []
    decision = analysis["decision"]
    if decision["best"] is not None:
        best = decision["best"]
        found.append("For concurrency %d: %s. %s" % (best["concurrency"], best["configuration"], best["reason"]))
    for one in decision["ranges"]:
        reach = "concurrency %d" % one["from"] if one["from"] == one["to"] else "%d to %d" % (one["from"], one["to"])
        found.append("%s at %s. %s" % (one["configuration"], reach, one["reason"]))
    if not decision["ranges"]:
        found.append(decision["reason"])
    chosen = {one["configuration"] for one in decision["ranges"]}
    for crossover in analysis["crossovers"]:
        if crossover["configuration"] in chosen:
            found.append("%s against the baseline: %s" % (crossover["configuration"], crossover["reason"]))
    for accepted in analysis["acceptance"]["configurations"]:
        if accepted["verdict"] in _WRONG:
            found.append("Acceptance of %s: %s" % (accepted["configuration"], accepted["reason"]))
    failed = [row["configuration"] for row in analysis["configurations"] if row["state"] == "failed"]
    if failed:
        found.append("Not measured, because they failed: %s." % ", ".join(failed))
    shown = [condition["message"] for condition in analysis["conditions"][:_MOST_CONDITIONS]]
    found += shown
    if len(analysis["conditions"]) > len(shown):
        found.append("And %d more warnings about conditions." % (len(analysis["conditions"]) - len(shown)))
    if analysis["adaptive"]["config"] is not None:
        found.append("Adaptive speculation: %s" % analysis["adaptive"]["reason"])
    found.append(analysis["method"]["message"])
    return found
