# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole analysis: its example, and that nothing breaks it."""

from __future__ import annotations

import copy
import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.analysis import analyse
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.decision import best_for
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.shapes import Analysis
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.sweep_analysis.example_sweep import (
    FILE,
    example,
)
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.sweep_analysis.synthetic_sweeps import (
    flat,
    results,
)

SCALARS = (
    st.none() | st.booleans() | st.integers(-5, 300) | st.floats() | st.sampled_from(["", "failed", "EAGLE3", "x"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def test_the_example_is_that_of_the_file():
    """Otherwise write the file anew, as example_sweep.py says."""
    stored = json.loads(FILE.read_text(encoding="utf-8"))
    analysis = stored.pop("analysis")
    assert stored == json.loads(json.dumps(example()))
    assert analysis == json.loads(json.dumps(analyse(stored)))


def test_it_has_what_its_shape_says():
    analysis = analyse(example())
    assert list(analysis) == list(Analysis.__annotations__)
    assert analysis["summary"][0].startswith("For concurrency 16: adaptive.")
    assert "Not measured, because they failed: eagle3-steps5." in analysis["summary"]


def test_it_changes_nothing_and_is_the_same_again():
    given_results = example()
    before = copy.deepcopy(given_results)
    assert analyse(given_results) == analyse(given_results)
    assert given_results == before


def test_an_older_analysis_does_not_count():
    first = example()
    second = {**first, "analysis": {"anything": 1}}
    assert analyse(first) == analyse(second)


def test_warm_up_is_no_repeat():
    """Only what stands in repeats counts."""
    rows = [flat({1: [100, 101, 102]}), flat({1: [120, 121, 122]}, steps=3)]
    expected = analyse(results(*rows))
    for one in rows:
        one["points"][0]["warmup"] = {"output_throughput": 3.0}
    assert analyse(results(*rows)) == expected


def test_numbers_have_units_and_no_needless_digits():
    """No sentence has a number with more than four digits that count."""
    analysis = analyse(example())
    sentences = [*analysis["summary"], *(one["reason"] for one in analysis["speedups"] + analysis["crossovers"])]
    for sentence in sentences:
        for word in sentence.replace("(", " ").replace(")", " ").replace(",", " ").split():
            digits = word.rstrip(".;:").replace(".", "", 1)
            if digits.isdigit():
                assert len(digits.strip("0")) <= 4, sentence


def changed(sample):
    """A mapping like the sample, in which some values are anything."""
    return st.dictionaries(st.sampled_from(sorted(sample)), VALUES, max_size=3).map(lambda odd: {**sample, **odd})


SAMPLE = flat({1: [100.0, 101.0], 8: [700.0, 710.0]}, steps=3, accept_length=2.9)
ROWS = st.builds(
    lambda row, odd, repeat: {**row, "points": [{**odd, "repeats": [repeat, *SAMPLE["points"][0]["repeats"]]}]},
    changed(SAMPLE),
    changed(SAMPLE["points"][0]),
    changed(SAMPLE["points"][0]["repeats"][0]),
) | changed(SAMPLE)


@settings(max_examples=60, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(ROWS, max_size=3))
def test_whatever_stands_in_a_row_it_is_analysed(rows):
    baseline = flat({1: [90.0, 91.0], 8: [800.0, 805.0]})
    found = analyse({"sweep": {}, "configurations": [baseline, *rows]})
    json.dumps(found, allow_nan=False)
    ranges = found["decision"]["ranges"]
    assert all(one["from"] <= one["to"] for one in ranges)
    assert all(one["to"] + 1 == other["from"] for one, other in zip(ranges, ranges[1:]))
    assert best_for({"configurations": [baseline, *rows]}, 4)["configuration"]
