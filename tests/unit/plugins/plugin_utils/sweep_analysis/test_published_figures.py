# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What operators have published, and what was measured on an H200."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.analysis import analyse
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.sweep_analysis.synthetic_sweeps import (
    flat,
    results,
)

NCCL = {"NCCL_ALGO": "Ring"}


def around(value, noise):
    """Three repeats."""
    return [value * (1 - noise), value, value * (1 + noise)]


def one_stream(repeats):
    """In tok/s: the baseline 90; 5 steps 71; 10 steps 60; 2 steps with settings of NCCL 94."""
    return [
        flat({1: repeats(90)}),
        flat({1: repeats(94)}, steps=2, environment=NCCL),
        flat({1: repeats(71)}, steps=5),
        flat({1: repeats(60)}, steps=10),
    ]


def verdicts(analysis):
    return {one["configuration"]: one["verdict"] for one in analysis["speedups"]}


def test_one_stream_measured_once():
    """A single number proves little: 94 against 90 nothing at all."""
    analysis = analyse(results(*one_stream(lambda value: [value])))
    assert verdicts(analysis) == {"eagle3-steps2": "unknown", "eagle3-steps5": "unknown", "eagle3-steps10": "slower"}
    assert [one["configuration"] for one in analysis["decision"]["ranges"]] == ["baseline"]
    assert analysis["decision"]["ranges"][0]["confirmed"] is False


@pytest.mark.parametrize(
    ("noise", "verdict", "choice"),
    [(0.005, "faster", "eagle3-steps2"), (0.03, "no_difference", "baseline")],
)
def test_one_stream_with_repeats(noise, verdict, choice):
    """94 against 90 is 4 %: a gain with quiet repeats, and none with repeats that differ by 3 %."""
    analysis = analyse(results(*one_stream(lambda value: around(value, noise))))
    assert verdicts(analysis) == {"eagle3-steps2": verdict, "eagle3-steps5": "slower", "eagle3-steps10": "slower"}
    assert [one["configuration"] for one in analysis["decision"]["ranges"]] == [choice]
    assert "NCCL_ALGO" in [one["what"] for one in analysis["conditions"]]


def test_steps_cost_more_than_they_bring():
    analysis = analyse(results(*one_stream(lambda value: around(value, 0.005))))
    group = next(one for one in analysis["marginal"] if "eagle3-steps10" in one["configurations"])
    assert [(one["from_steps"], one["to_steps"], one["verdict"]) for one in group["gains"]] == [
        (0, 5, "slower"),
        (5, 10, "slower"),
    ]
    assert group["pays"][0]["steps"] == 0


@pytest.mark.parametrize(("noise", "verdict"), [(0.001, "faster"), (0.02, "no_difference")])
def test_elsewhere_96_against_93(noise, verdict):
    analysis = analyse(results(flat({1: around(93, noise)}), flat({1: around(96, noise)}, steps=2)))
    assert verdicts(analysis) == {"eagle3-steps2": verdict}


@pytest.mark.parametrize("repeats", [[1.0], [0.95, 1.0, 1.05]])
def test_at_saturation_the_baseline_has_twice_the_throughput(repeats):
    """773 against 354 tok/s, with one repeat or three; without a limit for both it is not the whole truth."""
    rows = [
        flat({250: [factor * 773 for factor in repeats]}),
        flat({250: [factor * 354 for factor in repeats]}, steps=3),
    ]
    for one, limit in zip(rows, (None, 48)):
        one["settings"].pop("max_running_requests")
        one["max_running_requests"] = None
        one["effective"] = {"speculative_num_steps": one["settings"].get("num_steps"), "max_running_requests": limit}
    analysis = analyse(results(*rows))
    assert verdicts(analysis) == {"eagle3-steps3": "slower"}
    assert [one["configuration"] for one in analysis["decision"]["ranges"]] == ["baseline"]
    assert "capped_by_speculation" in [one["what"] for one in analysis["conditions"]]
    assert "At concurrency 250: 354 against 773 tok/s, 0.46 times" in analysis["speedups"][0]["reason"]


@pytest.mark.parametrize("accepted", [2.72, 2.87])
def test_tiny_models_on_an_h200(accepted):
    """EAGLE-3 (3/1/4): 123 against 113 tok/s with one stream, 399 against 719 with eight; 2.90 tokens expected."""
    baseline = flat({1: around(113, 0.005), 8: around(719, 0.005)})
    eagle = flat({1: around(123, 0.005), 8: around(399, 0.005)}, steps=3, accept_length=accepted)
    one_step = flat({1: around(118, 0.005), 8: around(520, 0.005)}, steps=1, accept_length=1.79)
    analysis = analyse(results(baseline, eagle, one_step))
    crossover = analysis["crossovers"][0]
    assert (crossover["state"], crossover["between"], crossover["interval"]) == ("crosses", [1, 8], [1, 8])
    assert crossover["estimate"] == pytest.approx(1.3, abs=0.05)
    assert crossover["reason"] == (
        "Faster below and slower above a concurrency of about 1.3; it is anywhere between the measured 1 and 8."
    )
    assert {one["verdict"] for one in analysis["acceptance"]["configurations"]} == {"as_expected"}
    ranges = analysis["decision"]["ranges"]
    assert [(one["from"], one["to"], one["configuration"]) for one in ranges] == [
        (1, 1, "eagle3-steps3"),
        (2, 8, "baseline"),
    ]
    assert analysis["adaptive"]["config"] == {"1": {"candidate_steps": [3]}, "2": {"candidate_steps": [0]}}
