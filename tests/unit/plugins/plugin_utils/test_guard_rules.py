# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which profile is wanted at which load, and that noise around a threshold never flaps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferops.sglang.plugins.plugin_utils.guard_rules import (
    GuardError,
    Load,
    Rule,
    margin,
    read_rules,
    rules_of,
    wanted_profile,
)

THREE = (Rule(0, 0, "wide"), Rule(8, 6, "narrow"), Rule(32, 24, "baseline"))


def test_rules_as_they_are_written():
    found = read_rules([{"from": 0, "profile": "a"}, {"from": "16", "profile": "b"}], 0.25)
    assert found == (Rule(0, 0, "a"), Rule(16, 12, "b"))
    found = read_rules([{"from": 0, "profile": "a"}, {"from": 16, "back": 15, "profile": "b"}], 0.25)
    assert found[1].back == 15


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "is no list of 1 to 50 rules"),
        ("baseline", "is no list"),
        ([{"from": 0}], "rule 1 has no profile"),
        ([5], "rule 1 has no profile"),
        ([{"from": 0, "profile": "a", "to": 8}], "has to, which nobody reads"),
        ([{"profile": "a"}], "from is None"),
        ([{"from": True, "profile": "a"}], "from is True"),
        ([{"from": -1, "profile": "a"}], "from is -1"),
        ([{"from": "nan", "profile": "a"}], "from is 'nan'"),
        ([{"from": 4, "profile": "a"}], "the first rule is from 4 on"),
        ([{"from": 0, "profile": "a"}, {"from": 0, "profile": "b"}], "order them by from"),
        ([{"from": 0, "profile": "a"}, {"from": 8, "profile": "a"}], "like the one before"),
        ([{"from": 0, "profile": "a"}, {"from": 8, "back": 8, "profile": "b"}], "it would flap"),
        ([{"from": 0, "profile": "a"}, {"from": 8, "back": "x", "profile": "b"}], "back is 'x'"),
    ],
)
def test_rules_that_cannot_be_are_refused_by_name(value, words):
    with pytest.raises(GuardError) as error:
        read_rules(value, 0.25)
    assert str(error.value).startswith("sglang_guard_rules: ") and words in str(error.value)


def test_rules_of_a_sweep():
    decision = [
        {"from": 1, "to": 7, "configuration": "wide"},
        {"from": 8, "to": 15, "configuration": "wide"},
        {"from": 16, "to": None, "configuration": "baseline"},
    ]
    assert rules_of(decision, 0.5, "/s") == (Rule(0, 0, "wide"), Rule(16, 8, "baseline"))
    with pytest.raises(GuardError, match="the sweep in /s does not say"):
        rules_of([], 0.5, "/s")


@pytest.mark.parametrize("value", [0, 1, -0.1, "x", True, None, "nan"])
def test_a_margin_that_is_none(value):
    with pytest.raises(GuardError, match="it would flap"):
        margin("sglang_guard_margin", value)


@pytest.mark.parametrize(
    ("present", "load", "wanted"),
    [
        ("wide", 0, "wide"),
        ("wide", 7.9, "wide"),
        ("wide", 8, "narrow"),
        ("wide", 100, "baseline"),
        ("narrow", 6, "narrow"),
        ("narrow", 5.9, "wide"),
        ("narrow", 31.9, "narrow"),
        ("baseline", 24, "baseline"),
        ("baseline", 23.9, "narrow"),
        ("baseline", 7, "wide"),
        ("", 7, "wide"),
        ("another", 40, "baseline"),
    ],
)
def test_a_profile_stays_until_the_load_has_come_back_far_enough(present, load, wanted):
    assert wanted_profile(THREE, present, Load(load)) == wanted


@pytest.mark.parametrize(
    ("present", "load", "wanted"),
    [
        ("wide", 2, "wide"),
        ("wide", 40, "baseline"),
        ("narrow", 0, "narrow"),
        ("baseline", 0, "baseline"),
        ("baseline", 40, "baseline"),
    ],
)
def test_a_load_of_which_only_the_least_is_known_wants_nothing_of_smaller_loads(present, load, wanted):
    assert wanted_profile(THREE, present, Load(load, complete=False)) == wanted


def test_a_profile_may_be_wanted_at_two_places():
    rules = (Rule(0, 0, "a"), Rule(8, 6, "b"), Rule(32, 24, "a"))
    assert [wanted_profile(rules, "a", Load(load)) for load in (0, 7, 8, 23, 32)] == ["a", "a", "b", "b", "a"]
    # It cannot be told from which of the two it comes, so the margin of the upper one holds in any case.
    assert wanted_profile(rules, "a", Load(25)) == "a"
    assert wanted_profile(rules, "a", Load(40, complete=False)) == "a"


@st.composite
def rule_sets(draw):
    starts = draw(st.lists(st.integers(1, 500), min_size=1, max_size=5, unique=True).map(sorted))
    part = draw(st.floats(0.01, 0.9))
    given_rules = [{"from": start, "profile": "p%d" % number} for number, start in enumerate([0, *starts])]
    return read_rules(given_rules, part)


@given(rules=rule_sets(), load=st.floats(0, 600), present=st.integers(0, 6))
def test_what_is_wanted_at_a_load_stays_wanted_at_that_load(rules, load, present):
    first = wanted_profile(rules, "p%d" % present, Load(load))
    assert wanted_profile(rules, first, Load(load)) == first


@given(rules=rule_sets(), data=st.data())
def test_noise_within_the_margin_of_a_threshold_switches_once_at_most(rules, data):
    number = data.draw(st.integers(1, len(rules) - 1))
    rule = rules[number]
    upper = rules[number + 1].start if number + 1 < len(rules) else rule.start * 2
    below = max(rule.back, rules[number - 1].start)
    # From the point where the profile below is wanted still to where this one is.
    trace = data.draw(st.lists(st.floats(below, upper, exclude_max=True), max_size=40))
    present, switches = rules[number - 1].profile, 0
    for load in trace:
        wanted = wanted_profile(rules, present, Load(load))
        switches += wanted != present
        present = wanted
    assert switches <= 1


@given(rules=rule_sets(), present=st.integers(0, 5), load=st.floats(0, 600))
def test_an_incomplete_load_never_wants_less(rules, present, load):
    place = min(present, len(rules) - 1)
    wanted = wanted_profile(rules, rules[place].profile, Load(load, complete=False))
    assert [rule.profile for rule in rules].index(wanted) >= place
