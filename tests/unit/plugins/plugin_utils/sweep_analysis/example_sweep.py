# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sweep of example_results.json: what the report is shown and tested with.

python3 -m ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.sweep_analysis.example_sweep
writes the file anew, from a folder in which ansible_collections can be imported.
"""

from __future__ import annotations

import json
import math
import pathlib
import random

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.analysis import analyse
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.sweep_analysis.synthetic_sweeps import (
    Truth,
    failed_point,
    noisy,
    point,
    repeat,
    results,
    row,
)

FILE = pathlib.Path(__file__).with_name("example_results.json")
CONCURRENCIES = (1, 4, 16, 64)
TRUTH = Truth(p=0.7, verified_token=0.4)
NOISE = 0.008


def example():
    """Five configurations, of which one does not start, one is adaptive, and some have what happens in practice."""
    baseline, one_step, three_steps = (noisy(TRUTH, steps, CONCURRENCIES, NOISE, seed=5) for steps in (0, 1, 3))
    _disturb(one_step, concurrency=4)
    _starve(three_steps, concurrency=64, reached=56.9)
    for configuration in (one_step, three_steps):
        _count_drafts(configuration)
    return results(baseline, one_step, three_steps, _does_not_start(), _adaptive(), expected_concurrency=16)


def _disturb(configuration, concurrency):
    """Make the last repeat an outlier."""
    index = CONCURRENCIES.index(concurrency)
    repeats = configuration["points"][index]["repeats"]
    slow = repeat(repeats[2]["output_throughput"] * 0.7, concurrency, repeats[2]["accept_length"])
    configuration["points"][index] = point(concurrency, [*repeats[:2], slow])


def _starve(configuration, concurrency, reached):
    """Let fewer requests be open than asked for."""
    index = CONCURRENCIES.index(concurrency)
    repeats = [{**one, "concurrency": reached} for one in configuration["points"][index]["repeats"]]
    configuration["points"][index] = point(concurrency, repeats)
    text = "On average %.0f of %d requests were open: give more prompts." % (reached, concurrency)
    configuration["points"][index]["warnings"] = [text]


def _count_drafts(configuration):
    steps = configuration["settings"]["num_steps"]
    for each in configuration["points"]:
        for one in each["repeats"]:
            shares = [TRUTH.p**accepted * (1 - TRUTH.p) for accepted in range(steps)] + [TRUTH.p**steps]
            one["correct_drafts_histogram"] = [round(one["verify_steps"] * share) for share in shares]


def _does_not_start():
    message = "The server died while it captured CUDA graphs: not enough memory. Lower mem_fraction_static."
    return row(
        "eagle3-steps5", 5, state="failed", reason="out_of_memory", message=message, effective={}, ready_after=None
    )


def _adaptive():
    chance = random.Random(9)
    points = []
    for concurrency in CONCURRENCIES[:3]:
        best = max(TRUTH.throughput(concurrency, steps) for steps in (0, 1, 3))
        repeats = [repeat(0.985 * best * math.exp(chance.gauss(0, NOISE)), concurrency, 2.3) for _number in range(3)]
        points.append(point(concurrency, repeats))
    points.append(failed_point(64, "server_died", "The server died during the second repeat."))
    configuration = row("adaptive", 3, points=points, adaptive=True)
    configuration["settings"]["adaptive"] = True
    configuration["effective"]["speculative_adaptive"] = True
    return configuration


if __name__ == "__main__":
    made = example()
    made["analysis"] = analyse(made)
    FILE.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
