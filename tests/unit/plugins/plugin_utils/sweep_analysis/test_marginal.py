# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each further step brings."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.marginal import marginal
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.sweep import Sweep
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.sweep_analysis.synthetic_sweeps import (
    Truth,
    flat,
    noisy,
    results,
)

TRUTH = Truth(p=0.7, verified_token=0.4)
CONCURRENCIES = (1, 16, 64)


@pytest.fixture(scope="module")
def group():
    rows = [noisy(TRUTH, steps, CONCURRENCIES, 0.004, seed=4) for steps in (5, 0, 3, 1)]
    (found,) = marginal(Sweep(results(*rows)))
    return found


def test_the_group(group):
    assert group["configurations"] == ["baseline", "eagle3-steps1", "eagle3-steps3", "eagle3-steps5"]
    assert group["group"] == "EAGLE3, top-k 1, draft /models/draft"


def test_each_step_at_each_concurrency(group):
    steps = [(one["concurrency"], one["from_steps"], one["to_steps"]) for one in group["gains"]]
    assert steps == [(each, *pair) for each in CONCURRENCIES for pair in ((0, 1), (1, 3), (3, 5))]


def test_intervals_hold_the_truth(group):
    for one in group["gains"]:
        speeds = [TRUTH.throughput(one["concurrency"], one[end]) for end in ("to_steps", "from_steps")]
        assert one["interval"][0] <= speeds[0] / speeds[1] <= one["interval"][1]
        assert one["per_step"] ** (one["to_steps"] - one["from_steps"]) == pytest.approx(one["gain"], rel=1e-3)


def test_from_where_on_it_does_not_pay(group):
    assert [(one["concurrency"], one["steps"]) for one in group["pays"]] == [(1, 3), (16, 1), (64, 0)]
    words = [one["reason"] for one in group["pays"]]
    assert words[0].startswith("At concurrency 1 steps beyond 3 do not pay: with 5 steps the throughput is 0.96")
    assert words[2].startswith("At concurrency 64 speculation does not pay: with 1 step the throughput is 0.9")


def test_every_step_pays():
    rows = [noisy(TRUTH, steps, (1,), 0.004, seed=4) for steps in (0, 1, 3)]
    (found,) = marginal(Sweep(results(*rows)))
    assert found["pays"][0]["reason"] == "At concurrency 1 every measured step pays, up to 3 steps."


def test_nothing_is_known():
    rows = [flat({4: 100}, repeats=1), flat({4: 110}, steps=1, repeats=1)]
    (found,) = marginal(Sweep(results(*rows)))
    assert found["pays"][0]["steps"] is None
    assert "not known" in found["pays"][0]["reason"]


def test_other_settings_make_another_group():
    rows = [flat({4: 100}), flat({4: 110}, steps=1), flat({4: 120}, steps=3, environment={"NCCL_ALGO": "Ring"})]
    found = marginal(Sweep(results(*rows)))
    assert [one["configurations"] for one in found] == [["baseline", "eagle3-steps1"], ["baseline", "eagle3-steps3"]]
    assert found[1]["group"].endswith(", NCCL_ALGO=Ring")


def test_no_speculation_with_the_same_environment_is_the_start():
    ring = {"NCCL_ALGO": "Ring"}
    rows = [flat({4: 100}), flat({4: 105}, name="ring", environment=ring), flat({4: 120}, steps=3, environment=ring)]
    (found,) = marginal(Sweep(results(*rows)))
    assert found["configurations"] == ["ring", "eagle3-steps3"]


def test_adaptive_and_trees_are_apart():
    rows = [
        flat({4: 100}),
        flat({4: 110}, steps=1),
        flat({4: 120}, steps=3, adaptive=True),
        flat({4: 130}, steps=3, topk=4),
    ]
    found = marginal(Sweep(results(*rows)))
    assert [len(one["configurations"]) for one in found] == [2, 2]


def test_without_a_baseline_one_configuration_has_nothing_to_gain_on():
    assert marginal(Sweep(results(flat({4: 110}, steps=1)))) == []
