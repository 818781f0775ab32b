# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of a sweep get their shape, whatever they were, and nothing that is good gets lost."""

from __future__ import annotations

import json

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report import document
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.document import DocumentError, shaped
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.sweep_report import samples


def test_good_results_stay_what_they_are():
    raw = samples.usual()
    found, problems = shaped(raw)
    assert problems == []
    assert shaped(found) == (found, [])
    assert found["sweep"] == raw["sweep"]
    for row, was in zip(found["configurations"], raw["configurations"]):
        assert {name: row[name] for name in was if name != "points"} == {k: v for k, v in was.items() if k != "points"}
        assert [point["repeats"] for point in row["points"]] == [point["repeats"] for point in was["points"]]


def test_what_others_need_is_kept():
    adaptive = {"1": {"candidate_steps": [1, 3]}, "8": {"candidate_steps": [0]}}
    row = samples.row("a", 3, levels=(1,), profile="fast", extra_args=["--x", "1"])
    row["settings"]["adaptive_config"] = adaptive
    row["points"][0]["took"] = 12.5
    row["points"][0]["repeats"][0]["std_ttft_ms"] = 3.5
    ((found,), _problems) = (shaped(samples.document(row, expected_concurrency=8))[0]["configurations"], None)
    assert found["profile"] == "fast" and found["extra_args"] == ["--x", "1"]
    assert found["settings"]["adaptive_config"] == adaptive
    assert found["points"][0]["took"] == 12.5 and found["points"][0]["repeats"][0]["std_ttft_ms"] == 3.5


@pytest.mark.parametrize(
    "raw, words",
    [
        ([], "no object"),
        ({}, "does not say its format"),
        ({"format": "1", "configurations": []}, "does not say its format"),
        ({"format": True, "configurations": []}, "does not say its format"),
        ({"format": 2, "configurations": []}, "its format is 2"),
        ({"format": 10**40, "configurations": []}, "unknown"),
        ({"format": 1}, "no list of configurations"),
        ({"format": 1, "configurations": {}}, "no list of configurations"),
    ],
)
def test_what_is_no_result_is_refused(raw, words):
    with pytest.raises(DocumentError, match=words):
        shaped(raw)


def test_anything_hostile_gets_a_type_and_shows():
    found, problems = shaped(samples.hostile())
    text = json.dumps(found, allow_nan=False, ensure_ascii=False)
    assert len(text) < 100_000  # the message of megabytes is cut
    assert "\x1b" not in text and "\u202e" not in text and "\x07" not in text
    assert "secret_of_somebody" not in text and "secret-of-somebody" not in text and "********" in text
    hostile = found["configurations"][1]
    assert hostile["hardware"]["count"] is None and hostile["hardware"]["memory_total_mib"] is None
    assert hostile["points"][1]["repeats"][0]["output_throughput"] is None
    assert found["sweep"]["prompts"]["count"] is None
    assert [point["state"] for point in found["configurations"][3]["points"]] == ["failed"]
    assert problems[-1] == "Configuration 5 is no object, and was left out."
    assert sum("does not say its concurrency" in problem for problem in problems) == 3


def test_median_and_spread_are_those_of_the_repeats():
    row = samples.row("a", 0, levels=(1,))
    for repeat, value in zip(row["points"][0]["repeats"], (3.0, 1.0, 8.0)):
        repeat["output_throughput"] = value
        repeat["accept_length"] = None
    row["points"][0]["median"] = {"output_throughput": 99.0}
    point = shaped(samples.document(row))[0]["configurations"][0]["points"][0]
    assert point["median"]["output_throughput"] == 3.0
    assert point["spread"]["output_throughput"] == {"min": 1.0, "max": 8.0}
    assert point["median"]["accept_length"] is None and point["spread"]["accept_length"] == {"min": None, "max": None}


def test_names_are_unique_on_each_host():
    rows = [samples.row("a", 0), samples.row("a", 1), samples.row("a", 2, host="gpu-b"), samples.row("", 3, key="k")]
    found, problems = shaped(samples.document(*rows))
    assert [row["name"] for row in found["configurations"]] == ["a", "a (2)", "a", "k"]
    assert problems == ["Two configurations are called a; the later one is called a (2) here."]


def test_points_are_in_order_and_once():
    points = [samples.point(0, 8), samples.point(0, 1), samples.point(1, 8), samples.point(0, 2, repeats=0)]
    found, problems = shaped(samples.document(samples.row("a", 0, points=points)))
    (row,) = found["configurations"]
    assert [(point["concurrency"], point["state"]) for point in row["points"]] == [
        (1, "measured"),
        (2, "failed"),
        (8, "measured"),
    ]
    assert row["points"][1]["message"] == "It has no repeat."
    assert problems == ["Concurrency 8 of a is there twice; the first one counts."]


def test_too_many_are_counted():
    found, problems = shaped(samples.document(*({"name": "c%d" % n} for n in range(document.MOST_CONFIGURATIONS + 5))))
    assert len(found["configurations"]) == document.MOST_CONFIGURATIONS
    assert problems == ["Of 205 configurations only the first 200 are here."]


@pytest.mark.parametrize(
    "value, number, whole",
    [
        (3, 3, 3),
        (2.0, 2.0, 2),
        (1.5, 1.5, None),
        (-1, -1, None),
        (True, None, None),
        ("1", None, None),
        (None, None, None),
        (float("nan"), None, None),
        (float("inf"), None, None),
        (10**400, None, None),
    ],
)
def test_numbers(value, number, whole):
    assert document.number(value) == number and document.whole(value) == whole
