# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which configuration for which concurrency: few ranges, each with its reason."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.analysis import analyse
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.decision import best_for
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.sweep_analysis.synthetic_sweeps import (
    failed_point,
    flat,
    point,
    results,
    row,
)


def near(values, spread=0.005):
    return {key: [value * (1 - spread), value, value * (1 + spread)] for key, value in values.items()}


def rows(**ratios):
    """The baseline, and configurations by their ratios to it: steps3={1: 1.3, ...}."""
    concurrencies = sorted({concurrency for one in ratios.values() for concurrency in one})
    found = [flat(near({concurrency: 100.0 * concurrency for concurrency in concurrencies}))]
    for name, values in ratios.items():
        throughputs = near({concurrency: ratio * 100 * concurrency for concurrency, ratio in values.items()})
        found.append(flat(throughputs, steps=int(name[-1]), name=name, adaptive=name.startswith("adaptive")))
    return found


def ranges(given):
    return [(one["from"], one["to"], one["configuration"]) for one in analyse(given)["decision"]["ranges"]]


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        # The simplest thing: faster, then slower; 2.83 is the middle of 1 and 8 where both differ by as much.
        ({"steps3": {1: 1.25, 8: 0.8}}, [(1, 2, "steps3"), (3, 8, "baseline")]),
        ({"steps3": {1: 1.25, 8: 1.2}}, [(1, 8, "steps3")]),
        ({"steps3": {1: 0.8, 8: 0.7}}, [(1, 8, "baseline")]),
        ({"steps3": {1: 1.0, 8: 1.01}}, [(1, 8, "baseline")]),
        # A tie goes to fewer steps.
        ({"steps3": {1: 1.25, 8: 1.2}, "steps5": {1: 1.26, 8: 1.21}}, [(1, 8, "steps3")]),
        ({"steps3": {1: 1.25, 8: 1.2}, "steps5": {1: 1.4, 8: 1.21}}, [(1, 8, "steps5")]),
        # At the high end a tie goes to the baseline, and between it makes no range of its own.
        ({"steps3": {1: 1.25, 8: 1.2, 16: 1.0, 32: 1.01}}, [(1, 15, "steps3"), (16, 32, "baseline")]),
        ({"steps3": {1: 1.25, 8: 1.0, 16: 1.2}}, [(1, 16, "steps3")]),
        ({"steps3": {1: 1.0, 8: 1.2, 16: 1.2}}, [(1, 16, "steps3")]),
        # Three ranges; a tie between two of them makes no fourth.
        (
            {
                "steps1": {1: 1.2, 4: 1.3, 16: 1.2, 64: 0.9},
                "steps3": {1: 1.5, 4: 1.31, 16: 1.0, 64: 0.7},
            },
            [(1, 3, "steps3"), (4, 38, "steps1"), (39, 64, "baseline")],
        ),
        # Adaptive speculation is one configuration for two ranges.
        (
            {"steps3": {1: 1.4, 8: 1.2, 64: 0.7}, "adaptive3": {1: 1.39, 8: 1.19, 64: 0.995}},
            [(1, 16, "steps3"), (17, 64, "baseline")],
        ),
        (
            {"steps1": {1: 1.1, 8: 1.2}, "steps3": {1: 1.4, 8: 0.8}, "adaptive3": {1: 1.39, 8: 1.19}},
            [(1, 8, "adaptive3")],
        ),
    ],
)
def test_ranges(ratios, expected):
    assert ranges(results(*rows(**ratios))) == expected


def test_what_is_not_measured_is_not_chosen():
    """steps3 has no point at 64: halfway to it the known baseline takes over."""
    given = rows(steps3={1: 1.3, 16: 1.2, 64: 1.2})
    given[1]["points"].pop()
    found = analyse(results(*given))["decision"]["ranges"]
    assert [(one["from"], one["to"], one["configuration"]) for one in found] == [
        (1, 31, "steps3"),
        (32, 64, "baseline"),
    ]
    assert found[1]["confirmed"] is False
    assert found[1]["reason"] == "Nothing else was measured here."


def test_where_the_baseline_is_missing_nothing_is_decided():
    """It failed at 64, which does not make what was slower at 16 the best there."""
    given = rows(steps3={1: 1.3, 16: 0.8, 64: 0.7})
    given[0]["points"][2] = failed_point(64, "timeout", "It took too long.")
    found = analyse(results(*given, expected_concurrency=64))["decision"]
    assert [(one["configuration"], one["measured"]) for one in found["ranges"]] == [("steps3", [1]), ("baseline", [16])]
    assert (found["best"]["configuration"], found["best"]["measured"]) == ("baseline", False)


def test_reasons_name_numbers():
    found = analyse(results(*rows(steps3={1: 1.3, 8: 1.2, 64: 0.7}, steps5={1: 1.31, 8: 1.2, 64: 0.6})))["decision"]
    first, second = found["ranges"]
    assert first["reason"].startswith("Against the throughput of baseline: 1.30 times (1.2")
    assert "steps5 is less simple, and not shown to be faster." in first["reason"]
    assert second["reason"].startswith(
        "Nothing is shown to be faster; the nearest is steps3 at concurrency 64 with 0.70"
    )
    assert first["confirmed"] and second["confirmed"]
    assert first["boundary"] is None
    assert second["boundary"] == pytest.approx(16.5, rel=0.05)
    assert found["reason"] == "steps3 from 1 to 16; baseline from 17 to 64."


def test_single_repeats_are_not_enough():
    given = results(flat({1: 100, 8: 800}, repeats=1), flat({1: 120, 8: 700}, steps=3, repeats=1))
    found = analyse(given)["decision"]["ranges"]
    assert [one["configuration"] for one in found] == ["baseline"]
    assert found[0]["confirmed"] is False
    assert "Not known for eagle3-steps3" in found[0]["reason"]


def test_single_repeats_show_large_differences():
    given = results(flat({1: 100, 64: 773}, repeats=1), flat({1: 180, 64: 354}, steps=3, repeats=1))
    found = analyse(given)["decision"]["ranges"]
    assert [(one["configuration"], one["confirmed"]) for one in found] == [
        ("eagle3-steps3", False),
        ("baseline", False),
    ]


def test_without_a_baseline_the_fastest_wins():
    given = rows(steps3={1: 1.3, 8: 1.2}, steps5={1: 1.1, 8: 0.9})[1:]
    found = analyse(results(*given))["decision"]["ranges"]
    assert [one["configuration"] for one in found] == ["steps3"]
    assert found[0]["confirmed"] is False
    assert found[0]["reason"].startswith("No baseline was measured")


@pytest.mark.parametrize("given", [[], [row("baseline")], [row("steps3", 3, state="failed", reason="timeout")]])
def test_nothing_measured(given):
    found = analyse(results(*given, expected_concurrency=8))["decision"]
    assert found["ranges"] == []
    assert found["reason"] == "Nothing was measured, so nothing can be said."
    assert found["best"]["configuration"] is None


class TestBest:
    RESULTS = results(*rows(steps3={2: 1.25, 32: 0.8}), expected_concurrency=4)

    @pytest.mark.parametrize(
        ("concurrency", "name", "measured"),
        [
            (1, "steps3", False),
            (2, "steps3", True),
            (7, "steps3", True),
            (9, "baseline", True),
            (200, "baseline", False),
        ],
    )
    def test_by_concurrency(self, concurrency, name, measured):
        found = best_for(self.RESULTS, concurrency)
        assert (found["configuration"], found["measured"], found["concurrency"]) == (name, measured, concurrency)
        assert ("was not measured (2 to 32 were)" in found["reason"]) is not measured

    def test_the_expected_one(self):
        assert analyse(self.RESULTS)["decision"]["best"] == best_for(self.RESULTS, 4)

    def test_without_an_expectation(self):
        assert analyse(results(*self.RESULTS["configurations"]))["decision"]["best"] is None

    @pytest.mark.parametrize("concurrency", [0, -3])
    def test_no_concurrency(self, concurrency):
        with pytest.raises(ValueError, match="at least 1"):
            best_for(self.RESULTS, concurrency)


def test_concurrencies_that_were_not_reached_are_one():
    """A client that cannot keep more than 30 requests open measured the same thing twice."""
    given = rows(steps3={1: 1.3, 32: 1.2, 64: 1.2})
    for one in given:
        repeats = [{**each, "concurrency": 30.0} for each in one["points"][2]["repeats"]]
        one["points"][2] = point(64, repeats)
    assert ranges(results(*given)) == [(1, 32, "steps3")]


def test_hosts_are_compared_by_their_own_baselines():
    """The second host is twice as fast, and the speedup of what runs on it is the smaller one."""
    first = rows(steps3={1: 1.4, 8: 1.3})
    second = rows(steps5={1: 1.2, 8: 1.1})
    for one in second:
        one["host"] = "gpu-b"
        for each in one["points"]:
            each["repeats"] = [{**r, "output_throughput": 2 * r["output_throughput"]} for r in each["repeats"]]
    assert ranges(results(*first, *second)) == [(1, 8, "steps3")]
