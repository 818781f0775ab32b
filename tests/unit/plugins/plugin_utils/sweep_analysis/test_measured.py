# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What counts of a sweep's rows, and why the rest does not."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.measured import read
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.sweep_analysis.synthetic_sweeps import (
    failed_point,
    flat,
    point,
    repeat,
    results,
    row,
)


@pytest.mark.parametrize("given", [{}, {"configurations": None}, {"configurations": {}}, {"configurations": [1]}])
def test_no_results(given):
    with pytest.raises(ValueError, match="list of dictionaries"):
        read(given)


def test_a_failed_point_is_excluded_with_its_reason():
    configurations, excluded = read(results(flat({1: 100}) | {"points": [failed_point(4, "timeout", "Too slow.")]}))
    assert not configurations[0].points
    assert excluded == [
        {
            "configuration": "baseline",
            "host": "gpu-a",
            "concurrency": 4,
            "repeat": None,
            "reason": "timeout",
            "message": "Too slow.",
        }
    ]
    assert configurations[0].state == "failed"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"failed": 2}, "requests_failed"),
        ({"completed": 15}, "requests_missing"),
        ({"output_throughput": 0}, "no_throughput"),
        ({"output_throughput": None}, "no_throughput"),
        ({"output_throughput": float("nan")}, "no_throughput"),
        ({"output_throughput": True}, "no_throughput"),
    ],
)
def test_a_repeat_with_failures_does_not_count(change, reason):
    measured = point(4, [repeat(100.0, 4), repeat(101.0, 4), repeat(999.0, 4)])
    measured["repeats"][2].update(change)
    configurations, excluded = read(results(row("baseline", points=[measured])))
    assert configurations[0].points[4].throughput == 100.5
    assert [(one["repeat"], one["reason"]) for one in excluded] == [(3, reason)]
    assert configurations[0].state == "measured"


def test_a_point_without_a_repeat_that_counts():
    measured = point(4, [repeat(100.0, 4)])
    measured["repeats"][0]["failed"] = 1
    configurations, excluded = read(results(row("baseline", points=[measured, point(8, [repeat(180.0, 8)])])))
    assert list(configurations[0].points) == [8]
    assert [(one["concurrency"], one["reason"]) for one in excluded] == [(4, "requests_failed"), (4, "no_repeat")]
    assert configurations[0].state == "partly"


def test_a_configuration_that_did_not_start():
    configurations, excluded = read(results(row("steps5", 5, state="failed", reason="out_of_memory", message="")))
    assert configurations[0].state == "failed"
    assert excluded[0]["concurrency"] is None
    assert excluded[0]["message"] == "out_of_memory"


def test_a_pending_one_is_not_failed():
    configurations, excluded = read(results(row("steps5", 5, state="pending")))
    assert configurations[0].state == "pending"
    assert not excluded


@pytest.mark.parametrize(("reached", "counts_as"), [(63.0, 64), (57.6, 64), (57.5, 57.5), (40.0, 40), (None, 64)])
def test_below_ninety_percent_a_point_counts_at_what_was_reached(reached, counts_as):
    measured = point(64, [repeat(900.0, 64)])
    measured["repeats"][0]["concurrency"] = reached
    assert read(results(row("baseline", points=[measured])))[0][0].points[64].counts_as == counts_as


def test_labels_are_unique():
    rows = [row("a", host="x"), row("a", host="y"), row("b"), row("a", host="y", key="k1"), row("", host="")]
    rows[1]["key"] = "k2"
    labels = [one.label for one in read(results(*rows))[0]]
    assert labels == ["a (x)", "a (y) (k2)", "b", "a (y) (k1)", "configuration 5"]


def test_equal_rows_get_numbers():
    rows = [row("a", key="k"), row("a", key="k")]
    assert [one.label for one in read(results(*rows))[0]] == ["a (gpu-a) (k) (1)", "a (gpu-a) (k) (2)"]


def test_the_server_is_believed_and_not_the_request():
    configuration = row("steps3", 3)
    configuration["effective"]["speculative_num_steps"] = 5
    assert read(results(configuration))[0][0].num_steps == 5


@pytest.mark.parametrize("algorithm", [None, "", "none", "NONE"])
def test_without_an_algorithm_there_are_no_steps(algorithm):
    configuration = row("odd", 3, effective={})
    configuration["settings"]["algorithm"] = algorithm
    assert read(results(configuration))[0][0].num_steps == 0


def test_the_simpler_comes_first():
    rows = [row("tree", 3, 4), row("adaptive", 1, adaptive=True), row("steps5", 5), row("steps3", 3), row("baseline")]
    found = sorted(read(results(*rows))[0], key=lambda one: one.complexity)
    assert [one.name for one in found] == ["baseline", "steps3", "tree", "steps5", "adaptive"]


def test_results_are_left_alone():
    given = results(flat({1: 100, 4: [300, 310]}), flat({1: 120}, steps=3))
    before = copy.deepcopy(given)
    read(given)
    assert given == before
