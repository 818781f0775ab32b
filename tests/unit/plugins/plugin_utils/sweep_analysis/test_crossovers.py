# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a configuration and the baseline are equally fast, if anywhere."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.crossovers import crossovers
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.sweep import Sweep
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.sweep_analysis.synthetic_sweeps import (
    Truth,
    flat,
    noisy,
    results,
)


def crossover(ratios, repeats=3, spread=0.004):
    """The crossover of a configuration with such a ratio at each concurrency."""
    baseline = {concurrency: 100.0 * concurrency for concurrency in ratios}
    other = {concurrency: ratio * baseline[concurrency] for concurrency, ratio in ratios.items()}
    around = [1 - spread, 1, 1 + spread, 1 - spread / 2, 1 + spread / 2][:repeats]
    rows = [
        {concurrency: [value * part for part in around] for concurrency, value in values.items()}
        for values in (baseline, other)
    ]
    return crossovers(Sweep(results(flat(rows[0]), flat(rows[1], steps=3))))[0]


@pytest.mark.parametrize(
    ("ratios", "state", "between", "words"),
    [
        ({1: 1.3, 4: 1.2, 16: 0.8}, "crosses", [4, 16], "Faster below and slower above a concurrency of about 7.5"),
        ({1: 0.8, 4: 0.9, 16: 1.2}, "crosses", [4, 16], "Slower below and faster above a concurrency of about 6.6"),
        ({1: 0.9, 4: 0.7}, "below_lowest", [None, 1], "Slower already at 1, the lowest measured concurrency"),
        ({1: 1.9, 4: 1.2}, "above_highest", [4, None], "Faster still at 4, the highest measured concurrency"),
        ({1: 1.0, 4: 1.01, 8: 0.99}, "no_difference", [None, None], "No difference from the baseline from 1 to 8"),
        ({1: 1.0, 4: 0.8}, "never_faster", [None, 4], "Never shown to be faster; slower at 4"),
        ({1: 1.2, 4: 1.0, 8: 1.01}, "fades", [1, None], "Faster up to 1; above, up to 8, no difference is shown"),
        ({1: 1.0, 4: 1.2}, "above_highest", [4, None], "Faster still at 4"),
        ({1: 1.0}, "no_difference", [None, None], "No difference from the baseline at 1,"),
    ],
)
def test_all_that_can_be(ratios, state, between, words):
    found = crossover(ratios)
    assert (found["state"], found["between"]) == (state, between)
    assert found["reason"].startswith(words)


def test_without_a_shared_concurrency():
    found = crossovers(Sweep(results(flat({1: 100}), flat({4: 300}, steps=3))))[0]
    assert found["state"] == "unknown"
    assert found["reason"].startswith("Nothing to compare")


def test_several():
    found = crossover({1: 0.8, 2: 1.3, 4: 1.3, 8: 0.8, 16: 0.8})
    assert [(one["to"], one["between"]) for one in found["crossings"]] == [("faster", [1, 2]), ("slower", [4, 8])]
    assert found["estimate"] == found["crossings"][0]["estimate"]
    assert found["reason"].count("concurrency of about") == 2


def test_an_equal_point_lies_between_those_that_differ():
    found = crossover({1: 1.3, 2: 1.0, 4: 0.7, 8: 0.6})
    assert found["between"] == [1, 4]
    assert found["interval"][0] < found["estimate"] < found["interval"][1]
    assert found["estimate"] == pytest.approx(2, rel=0.05)


def test_with_two_points_it_is_anywhere_between():
    found = crossover({1: 1.2, 8: 0.6})
    assert found["interval"] == [1, 8]
    assert found["estimate"] == pytest.approx(1.7, rel=0.05)
    assert found["reason"].endswith("it is anywhere between the measured 1 and 8.")


def test_without_repeats_there_is_no_interval():
    found = crossover({1: 1.6, 8: 1.5, 64: 0.5}, repeats=1)
    assert found["state"] == "crosses"
    assert found["interval"] is None
    assert found["reason"].endswith("between the measured 8 and 64.")


def test_single_repeats_do_not_show_small_differences():
    found = crossover({1: 1.1, 8: 0.9}, repeats=1)
    assert found["state"] == "unknown"
    assert found["reason"].startswith("Not known")


def test_the_bend_widens_the_interval():
    """With the same noise a curve is known less well than a straight line."""
    straight = crossover({1: 1.44, 4: 1.2, 16: 1.0 / 1.2, 64: 1 / 1.44}, spread=0.001)
    bent = crossover({1: 1.21, 4: 1.2, 16: 1.0 / 1.2, 64: 0.2}, spread=0.001)
    assert straight["estimate"] == bent["estimate"]
    widths = [one["interval"][1] / one["interval"][0] for one in (straight, bent)]
    assert widths[1] > 1.2 * widths[0]


def test_the_truth_is_found():
    truth = Truth(p=0.7, verified_token=0.4)
    rows = [noisy(truth, steps, (1, 4, 8, 16, 32, 64), 0.005, seed=2) for steps in (0, 3)]
    found = crossovers(Sweep(results(*rows)))[0]
    assert found["estimate"] == pytest.approx(truth.crossover(3), rel=0.1)


def test_a_point_counts_where_it_was():
    """64 was asked for, and 32 reached by both: so the crossing lies below 32."""
    rows = [
        flat({1: [100, 101, 102], 64: [1000, 1010, 1020]}),
        flat({1: [200, 201, 202], 64: [500, 501, 502]}, steps=3),
    ]
    for one in rows:
        for repeat in one["points"][1]["repeats"]:
            repeat["concurrency"] = 32.0
    assert crossovers(Sweep(results(*rows)))[0]["between"] == [1, 32]
