# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark import results
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.results import (
    ResultError,
    failed_point,
    measured_point,
    medians,
    repeat_of,
    spreads,
)

SECRET = "kq-2f5d81aa"
# As the script leaves the line of the client: numbers, of which each release has others.
EARLY = {
    "max_concurrency": 8,
    "duration": 4.00009,
    "completed": 4,
    "total_input_tokens": 48,
    "total_output_tokens": 128,
    "request_throughput": 1.0,
    "output_throughput": 31.99999,
    "mean_ttft_ms": 10.0,
    "median_ttft_ms": 9.0,
    "p99_ttft_ms": 20.0,
    "mean_tpot_ms": 3.0,
    "median_tpot_ms": 3.1,
    "p99_tpot_ms": 4.0,
    "mean_e2e_latency_ms": 100.0,
    "median_e2e_latency_ms": 99.0,
    "p99_e2e_latency_ms": 120.0,
    "concurrency": 3.9,
    "accept_length": 2.9,
    "p90_ttft_ms": 18.0,
}
HEARD = {
    "listened": True,
    "requests": 4,
    "succeeded": 4,
    "heard": 4,
    "verified": 4,
    "verify_steps": 44,
    "verified_tokens": 128,
    "histogram": [9, 7, 6, 22],
    "errors": [],
    "flush": 200,
}


def event(result=None, **heard):
    return {"event": "repeat", "result": {**EARLY, **(result or {})}, "requests": {**HEARD, **heard}}


def test_a_repeat():
    found = repeat_of(event(), 4, True)
    assert found == {
        "completed": 4,
        "failed": 0,
        "total_input_tokens": 48,
        "total_output_tokens": 128,
        "duration": 4.0001,
        "output_throughput": 32.0,
        "request_throughput": 1.0,
        **{name: EARLY[name] for name in EARLY if name.endswith("_ms") and not name.startswith("p90")},
        "concurrency": 3.9,
        "accept_length": 2.9091,
        "accept_length_source": "requests",
        "verify_steps": 44,
        "server_accept_length": 2.9,
        "correct_drafts_histogram": [9, 7, 6, 22],
    }
    assert set(results.NUMBERS) | {"accept_length_source", "correct_drafts_histogram"} == set(found)


@pytest.mark.parametrize(
    ("result", "heard", "speculates", "acceptance"),
    [
        # without speculation there is none, also where the server still has an average
        ({"accept_length": None}, {"verify_steps": 0, "verified": 0, "histogram": []}, False, (None, "", None)),
        ({}, {"verify_steps": 0}, False, (None, "", None)),
        # one that says it does not speculate, and does
        ({}, {}, False, (2.9091, "requests", 44)),
        # adaptive speculation that is off at this load
        ({"accept_length": None}, {"verify_steps": 0, "verified": 0}, True, (None, "requests", 0)),
        # nobody could listen
        ({}, {"listened": False, "requests": 0, "heard": 0, "verify_steps": 0}, True, (2.9, "server", None)),
        ({}, {"heard": 3}, True, (2.9, "server", None)),
        ({"accept_length": None}, {"listened": False, "heard": 0}, True, (None, "", None)),
        ({"accept_length": 0}, {"listened": False, "heard": 0}, True, (None, "", None)),
        ({}, {"verify_steps": -5}, True, (None, "requests", 0)),
        ({}, {"verify_steps": True}, True, (None, "requests", 0)),
    ],
)
def test_where_the_acceptance_comes_from(result, heard, speculates, acceptance):
    found = repeat_of(event(result, **heard), 4, speculates)
    assert (found["accept_length"], found["accept_length_source"], found["verify_steps"]) == acceptance


@pytest.mark.parametrize("histogram", [None, [], "x", [0, 0], [-1, True]])
def test_a_histogram_that_is_none(histogram):
    assert repeat_of(event(histogram=histogram), 4, True)["correct_drafts_histogram"] is None


@pytest.mark.parametrize("name", ["mean_ttft_ms", "p99_e2e_latency_ms", "concurrency"])
@pytest.mark.parametrize("value", [None, math.inf, math.nan, -1, "3", True])
def test_a_figure_that_is_no_number_is_null(name, value):
    assert repeat_of(event({name: value}), 4, True)[name] is None


@pytest.mark.parametrize("name", ["completed", "duration", "output_throughput", "request_throughput"])
@pytest.mark.parametrize("value", [None, math.inf, "x"])
def test_without_the_most_important_ones_there_is_no_result(name, value):
    with pytest.raises(ResultError, match=name) as error:
        repeat_of(event({name: value}), 4, True)
    assert error.value.reason == "no_result"


@pytest.mark.parametrize("broken", [{}, {"result": None}, {"result": []}, {"result": None, "requests": 3}])
def test_no_result_at_all(broken):
    with pytest.raises(ResultError) as error:
        repeat_of(broken, 4, True)
    assert error.value.reason == "no_result"


@pytest.mark.parametrize(
    ("result", "heard", "reason", "words"),
    [
        (
            {"completed": 3},
            {"errors": ["503: busy"]},
            "requests_failed",
            "1 of 4 requests were not completed: 503: busy",
        ),
        ({"completed": 0}, {"listened": False}, "requests_failed", "4 of 4"),
        ({"completed": 5}, {}, "requests_failed", "-1 of 4"),
        ({"completed": 3}, {"requests": 3}, "prompts_dropped", "3 of 4"),
    ],
)
def test_not_every_request_was_completed(result, heard, reason, words):
    with pytest.raises(ResultError) as error:
        repeat_of(event(result, **heard), 4, True)
    assert error.value.reason == reason and words in str(error.value)


def test_nothing_but_the_known_names_is_kept():
    line = {"server_info": {"api_key": SECRET}, "launch_command": SECRET, "tag": SECRET, "errors": [SECRET]}
    assert SECRET not in json.dumps(repeat_of(event(line), 4, True))


def repeats(*throughputs, **rest):
    return [{**repeat_of(event(), 4, True), "output_throughput": value, **rest} for value in throughputs]


def test_medians_and_spread():
    found = repeats(90.0, 110.0, 95.0)
    assert medians(found)["output_throughput"] == 95 and medians(found[:2])["output_throughput"] == 100
    assert spreads(found)["output_throughput"] == {"min": 90.0, "max": 110.0}
    assert set(medians(found)) == set(results.NUMBERS) == set(spreads(found))


def test_a_number_that_one_repeat_does_not_have_has_no_median():
    found = repeats(90.0) + repeats(110.0, p99_ttft_ms=None)
    assert medians(found)["p99_ttft_ms"] is None and "p99_ttft_ms" not in spreads(found)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=7))
def test_a_median_lies_within_the_spread(values):
    found = repeats(*values)
    spread = spreads(found)["output_throughput"]
    assert spread["min"] - 1e-4 <= medians(found)["output_throughput"] <= spread["max"] + 1e-4


def test_points_have_the_same_keys():
    good = measured_point(8, 4, repeats(90.0), ["w"])
    bad = failed_point(8, 4, "timeout", "Too slow.", repeats(90.0), ["w"], ["line"])
    assert set(good) == set(bad)
    assert (good["state"], good["reason"], good["median"]["output_throughput"]) == ("measured", "", 90)
    assert (bad["state"], bad["reason"], bad["median"], bad["spread"]) == ("failed", "timeout", {}, {})
    assert len(bad["repeats"]) == 1 and bad["warnings"] == ["w"] and bad["log_tail"] == ["line"]
