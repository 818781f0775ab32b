# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every inequality is a warning that names both values."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.analysis import analyse
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.sweep_analysis.synthetic_sweeps import (
    flat,
    point,
    repeat,
    results,
)


def pair(**concurrencies):
    near = {1: [100, 101, 102], 8: [800, 801, 802], **concurrencies}
    return [flat(near), flat(near, steps=3, accept_length=2.9)]


def found(rows, **more):
    return {one["what"]: one for one in analyse(results(*rows, **more))["conditions"]}


def test_equal_conditions_have_no_warnings():
    assert found(pair()) == {}


@pytest.mark.parametrize(
    ("place", "name", "value", "words"),
    [
        ("effective", "model_path", "/models/other", "nothing measured with them can be compared"),
        ("effective", "tp_size", 2, "nothing measured with them can be compared"),
        ("effective", "mem_fraction_static", 0.7, "throughput under load"),
        ("effective", "attention_backend", "triton", "all throughputs, as the kernels differ"),
        ("effective", "disable_radix_cache", True, "prefill"),
        ("hardware", "gpu", "NVIDIA H100", "nothing measured with them can be compared"),
        ("hardware", "driver", "570.1", "small differences"),
        ("hardware", "memory_total_mib", None, "throughput under load"),
    ],
)
def test_what_differs(place, name, value, words):
    rows = pair()
    before = rows[1][place].get(name)
    rows[1][place][name] = value
    warning = found(rows)[name]
    first = "unset" if before is None else str(before)
    second = "not known" if value is None else str(value)
    assert warning["values"] == {first: ["baseline"], second: ["eagle3-steps3"]}
    assert "%s for baseline; %s for eagle3-steps3" % (first, second) in warning["message"]
    assert "This makes incomparable: %s" % words in warning["message"]


def test_workers_that_do_not_overlap():
    """SGLang 0.5.12 takes another worker for a tree, and says nothing; the baseline always overlaps."""
    rows = [*pair(), flat({1: [130, 131, 132]}, steps=3, topk=4, name="tree")]
    for row, disabled in zip(rows, (False, True, True)):
        row["effective"]["disable_overlap_schedule"] = disabled
    assert found(rows) == {}
    rows[1]["effective"]["disable_overlap_schedule"] = False
    assert "False for eagle3-steps3; True for tree" in found(rows)["disable_overlap_schedule"]["message"]


def test_versions():
    rows = pair()
    rows[1]["version"] = "0.5.12"
    assert "0.5.23 for baseline; 0.5.12 for eagle3-steps3" in found(rows)["version"]["message"]


def test_an_unknown_version_is_not_the_same():
    rows = pair()
    rows[1]["version"] = None
    assert "not known for eagle3-steps3" in found(rows)["version"]["message"]


def unlimited(row, limit):
    """Nobody set max_running_requests, and the server has chosen this."""
    row["settings"].pop("max_running_requests")
    row["max_running_requests"] = None
    row["effective"].pop("effective_max_running_requests_per_dp")
    row["effective"]["max_running_requests"] = limit
    return row


@pytest.mark.parametrize("limit", [48, None])
def test_speculation_without_a_limit_is_capped(limit):
    rows = pair()
    unlimited(rows[0], None)
    unlimited(rows[1], limit)
    warnings = found(rows)
    assert "SGLang runs at most 48 requests at a time for eagle3-steps3" in warnings["capped_by_speculation"]["message"]
    assert "as many as fit for baseline" in warnings["capped_by_speculation"]["message"]
    assert warnings["effective_max_running_requests"]["values"] == {"not known": ["baseline"], "48": ["eagle3-steps3"]}
    # Asked for was the same: nothing.
    assert "max_running_requests" not in warnings


def test_a_limit_that_was_asked_for_is_no_cap():
    rows = pair()
    for row in rows:
        row["settings"]["max_running_requests"] = row["max_running_requests"] = 48
        row["effective"].update(max_running_requests=48, effective_max_running_requests_per_dp=48)
    assert found(rows) == {}


def test_a_limit_of_48_that_stands_in_the_row_alone():
    """Of the baseline nobody doubts it; of the other it may be SGLang's own, which is the same."""
    rows = pair()
    for row in rows:
        del row["settings"]["max_running_requests"]
        row["max_running_requests"] = 48
        row["effective"].update(max_running_requests=48, effective_max_running_requests_per_dp=48)
    assert found(rows) == {}


def test_extra_arguments():
    rows = pair()
    rows[1]["extra_args"] = ["--enable-mixed-chunk"]
    assert "none for baseline; --enable-mixed-chunk for eagle3-steps3" in found(rows)["extra_args"]["message"]


def test_limits_that_differ():
    rows = pair()
    rows[1]["settings"]["max_running_requests"] = rows[1]["max_running_requests"] = 64
    rows[1]["effective"]["effective_max_running_requests_per_dp"] = 64
    warnings = found(rows)
    assert warnings["max_running_requests"]["values"] == {"256": ["baseline"], "64": ["eagle3-steps3"]}
    assert warnings["effective_max_running_requests"]["values"] == {"256": ["baseline"], "64": ["eagle3-steps3"]}


def test_what_the_server_made_of_equal_limits_counts():
    rows = pair()
    rows[1]["effective"]["effective_max_running_requests_per_dp"] = 40
    assert "256 for baseline; 40 for eagle3-steps3" in found(rows)["effective_max_running_requests"]["message"]


def test_replicas_have_their_limits_together():
    rows = pair()
    for row in rows:
        row["effective"].update(dp_size=2, effective_max_running_requests_per_dp=128)
    assert found(rows) == {}


def test_requests_that_wait():
    rows = pair()
    for row in rows:
        row["effective"]["effective_max_running_requests_per_dp"] = 4
    assert found(rows)["queued"]["message"] == (
        "At concurrency 8 baseline and eagle3-steps3 run at most 4 requests at a time, and the others wait."
    )


def test_environments():
    rows = pair()
    rows[1]["environment"] = {"NCCL_ALGO": "Ring"}
    assert found(rows)["NCCL_ALGO"]["message"] == (
        "NCCL_ALGO is not the same: unset for baseline; Ring for eagle3-steps3. "
        "A speedup between these is also that of this variable."
    )


def test_acceptance_that_is_made_up():
    rows = pair()
    for row in rows:
        row["environment"] = {"SGLANG_SIMULATE_ACC_LEN": "3"}
    assert "acceptance is made up" in found(rows)["SGLANG_SIMULATE_ACC_LEN"]["message"]


def test_prompts():
    rows = pair()
    rows[0]["prompts"], rows[1]["prompts"] = {"sha256": "aa"}, {"sha256": "bb"}
    assert "aa for baseline; bb for eagle3-steps3" in found(rows)["prompts"]["message"]


def test_number_of_prompts():
    rows = pair()
    rows[1]["points"][1] = point(8, [repeat(800 + more, 8, 2.9, num_prompts=64) for more in range(3)])
    assert "32 for baseline; 64 for eagle3-steps3" in found(rows)["num_prompts"]["message"]


def test_output_lengths():
    rows = pair()
    for one in rows[1]["points"][0]["repeats"]:
        one["total_output_tokens"] *= 0.8
    assert "256 tokens for baseline; 205 tokens for eagle3-steps3" in found(rows)["output_length"]["message"]


def test_a_loop_that_is_not_closed():
    rows = pair()
    for one in rows[1]["points"][1]["repeats"]:
        one["concurrency"] = 5.5
    message = found(rows)["concurrency_not_reached"]["message"]
    assert message.startswith("At concurrency 8 fewer requests were open on average than asked for (below 90 %): 6 for")


def test_single_repeats():
    rows = [flat({1: 100}, repeats=1), flat({1: [120, 121]}, steps=3)]
    assert found(rows)["repeats"]["values"] == {"1": ["baseline"]}


def test_no_baseline():
    assert "not known whether speculation pays" in found(pair()[1:])["baseline"]["message"]


def test_what_was_not_measured_has_no_conditions():
    rows = pair()
    rows[1].update(points=[], state="failed", version="0.4.0", hardware={})
    assert found(rows) == {}
