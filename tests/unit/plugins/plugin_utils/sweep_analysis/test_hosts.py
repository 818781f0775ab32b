# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether hosts that share a sweep are alike."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.analysis import analyse
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.sweep_analysis.synthetic_sweeps import (
    flat,
    results,
)


def host(name, factor=1.0, baseline=True):
    rows = []
    if baseline:
        rows.append(flat({1: [100 * factor, 101 * factor, 102 * factor]}, host=name))
    rows.append(flat({1: [120 * factor, 121 * factor, 122 * factor]}, steps=3, host=name))
    return rows


@pytest.mark.parametrize(
    ("factor", "alike", "words"),
    [
        (1.0, True, "The baselines of a and b do not differ, so the hosts are alike."),
        (1.2, False, "The hosts are not alike: the baseline of a has 0.83 times"),
    ],
)
def test_by_their_baselines(factor, alike, words):
    analysis = analyse(results(*host("a"), *host("b", factor)))
    assert analysis["hosts"]["alike"] is alike
    assert analysis["hosts"]["message"].startswith(words)
    assert [one["hosts"] for one in analysis["hosts"]["pairs"]] == [["a", "b"]]
    assert ("hosts" in [one["what"] for one in analysis["conditions"]]) is not alike


def test_each_is_compared_with_its_own_baseline():
    speedups = analyse(results(*host("a"), *host("b", 2.0)))["speedups"]
    assert [(one["configuration"], one["baseline"], one["ratio"]) for one in speedups] == [
        ("eagle3-steps3 (a)", "baseline (a)", 1.198),
        ("eagle3-steps3 (b)", "baseline (b)", 1.198),
    ]


def test_without_a_baseline_on_each():
    analysis = analyse(results(*host("a"), *host("b", baseline=False)))
    assert analysis["hosts"]["alike"] is None
    assert analysis["hosts"]["without_baseline"] == ["b"]
    assert "No baseline was measured on b" in analysis["hosts"]["message"]
    assert [one["baseline"] for one in analysis["speedups"]] == ["baseline", "baseline"]
    assert "hosts" in [one["what"] for one in analysis["conditions"]]


def test_single_repeats_do_not_tell():
    rows = [flat({1: 100}, repeats=1, host=name) for name in "ab"]
    assert analyse(results(*rows))["hosts"]["message"] == "Whether a and b are alike is not known."


def test_one_host():
    analysis = analyse(results(*host("a")))
    assert (analysis["hosts"]["alike"], analysis["hosts"]["message"]) == (None, "One host.")


def test_nothing():
    assert analyse(results())["hosts"]["message"] == "Nothing was measured."
