# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tokens per verify step, against 1 + p + p^2 + ... + p^n."""

from __future__ import annotations

import random

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.acceptance import (
    acceptance,
    expected_length,
    fitted_p,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.sweep import Sweep
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.sweep_analysis.synthetic_sweeps import (
    flat,
    results,
)


def measured(lengths, **more):
    """The acceptance of configurations by their steps: {3: 2.9, ...}."""
    rows = [flat({1: 100.0, 8: 800.0})]
    rows += [flat({1: 120.0, 8: 700.0}, steps=steps, accept_length=length, **more) for steps, length in lengths.items()]
    return acceptance(Sweep(results(*rows)))


@pytest.mark.parametrize("p", [0.0, 0.2, 0.5, 0.79, 0.95])
@pytest.mark.parametrize("steps", [1, 3, 7, 10])
def test_the_fit_is_the_inverse(p, steps):
    assert fitted_p(expected_length(p, steps), steps) == pytest.approx(p, abs=1e-6)


def test_the_published_expectation():
    """2.90 tokens per verify step of 3 steps."""
    assert expected_length(0.7935, 3) == pytest.approx(2.92, abs=0.02)


@pytest.mark.parametrize("p", [0.3, 0.6, 0.8])
def test_p_is_found_over_steps(p):
    chance = random.Random(p)
    lengths = {steps: expected_length(p, steps) * (1 + chance.gauss(0, 0.01)) for steps in (1, 2, 3, 5, 7)}
    found = measured(lengths)
    (draft,) = found["drafts"]
    assert draft["p"] == pytest.approx(p, abs=0.03)
    assert draft["interval"][0] <= draft["p"] <= draft["interval"][1]
    assert {one["verdict"] for one in found["configurations"]} == {"as_expected"}


def test_a_falling_chance_is_no_alarm():
    """Real drafts are worse the further they reach: 0.8, 0.75, 0.7, 0.68, 0.66 by position."""
    found = measured({1: 1.8, 2: 2.4, 3: 2.82, 5: 3.29})
    assert {one["verdict"] for one in found["configurations"]} == {"as_expected"}


@pytest.mark.parametrize(("length", "verdict"), [(1.02, "nothing_accepted"), (1.5, "below"), (3.6, "above")])
def test_one_that_is_not_like_the_others(length, verdict):
    found = measured({1: 1.75, 2: 2.31, 3: length, 5: 3.29})
    verdicts = {one["num_steps"]: one["verdict"] for one in found["configurations"]}
    assert verdicts == {1: "as_expected", 2: "as_expected", 3: verdict, 5: "as_expected"}
    odd = next(one for one in found["configurations"] if one["num_steps"] == 3)
    assert odd["difference"] == pytest.approx(length - odd["expected"], abs=0.01)
    assert odd["reason"].startswith(("1.0", "1.5", "3.6"))
    assert "tokens per verify step" in odd["reason"]


def test_a_single_one_has_nothing_to_be_held_against():
    found = measured({3: 2.9})
    assert found["configurations"][0]["verdict"] == "as_expected"
    assert "nothing to hold it against" in found["configurations"][0]["reason"]
    assert "from eagle3-steps3 alone" in found["drafts"][0]["reason"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"topk": 4}, "top-k 4 drafts a tree"),
        ({"adaptive": True}, "its number of steps changes with the load"),
    ],
)
def test_where_it_does_not_apply(more, words):
    (found,) = measured({3: 2.9}, **more)["configurations"]
    assert (found["applies"], found["verdict"], found["expected"]) == (False, "does_not_apply", None)
    assert words in found["reason"]
    assert found["measured"] == 2.9


def test_ngram_drafts_otherwise():
    rows = [flat({1: 100.0}, steps=3, accept_length=1.9)]
    rows[0]["settings"]["algorithm"] = rows[0]["effective"]["speculative_algorithm"] = "NGRAM"
    assert "NGRAM does not draft" in acceptance(Sweep(results(*rows)))["configurations"][0]["reason"]


def test_nothing_measured():
    (found,) = measured({3: None})["configurations"]
    assert (found["verdict"], found["measured"], found["reason"]) == ("unknown", None, "No acceptance was measured.")


def test_drafts_are_apart():
    rows = [flat({1: 100.0}, steps=3, name=name, accept_length=length) for name, length in (("a", 2.9), ("b", 1.6))]
    rows[1]["settings"]["draft_model_path"] = rows[1]["effective"]["speculative_draft_model_path"] = "/models/other"
    found = acceptance(Sweep(results(*rows)))
    assert [(one["draft"], one["configurations"]) for one in found["drafts"]] == [
        ("/models/draft", ["a"]),
        ("/models/other", ["b"]),
    ]


def test_it_should_not_change_with_the_load():
    row = flat({1: 100.0, 8: 700.0}, steps=3, accept_length=2.9)
    for one in row["points"][1]["repeats"]:
        one["accept_length"] = 2.1
    (found,) = acceptance(Sweep(results(row)))["configurations"]
    assert "It differs between the concurrencies" in found["reason"]


def test_by_position():
    row = flat({1: 100.0}, steps=3, accept_length=2.0)
    for one in row["points"][0]["repeats"]:
        # Of 100 verify steps 50 accept none, 20 one, 10 two, 20 three: 1 + 1.0 tokens.
        one["correct_drafts_histogram"] = [50, 20, 10, 20]
    (found,) = acceptance(Sweep(results(row)))["configurations"]
    assert found["by_position"] == [0.5, 0.6, 0.667]


@pytest.mark.parametrize("counts", [[10, 20, 30, 900], [], [0, 0], "text", [None, 1]])
def test_counts_that_do_not_fit_are_left_out(counts):
    row = flat({1: 100.0}, steps=3, accept_length=2.0)
    for one in row["points"][0]["repeats"]:
        one["correct_drafts_histogram"] = counts
    (found,) = acceptance(Sweep(results(row)))["configurations"]
    assert found["by_position"] == []


def test_where_it_comes_from():
    row = flat({1: 100.0, 8: 700.0}, steps=3, accept_length=2.9)
    row["points"][1]["repeats"][0]["accept_length_source"] = "server"
    (found,) = acceptance(Sweep(results(row)))["configurations"]
    assert found["source"] == "mixed"
