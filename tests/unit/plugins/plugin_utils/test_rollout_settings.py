# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of a rollout, as YAML and -e make them."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_settings import (
    RolloutError,
    Share,
    agreed,
    names,
    number,
    ramp,
    seconds,
    share,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, Share(0, False)), ("3", Share(3, False)), ("50%", Share(50, True)), (" 5 % ", Share(5, True))],
)
def test_a_share(value, expected):
    assert share("sglang_min_serving", value, 0) == expected


@pytest.mark.parametrize("value", [-1, "x", "101%", "1.5", 1.5, True, None, [], "50 percent", "%", ""])
def test_what_is_no_share_is_named(value):
    with pytest.raises(RolloutError, match=r"sglang_min_serving: .*whole number from 0 on nor a percentage"):
        share("sglang_min_serving", value, 0)


@pytest.mark.parametrize(
    ("percent", "total", "at_least", "at_most"), [(50, 5, 3, 2), (100, 4, 4, 4), (1, 3, 1, 1), (0, 9, 0, 1)]
)
def test_a_floor_is_rounded_up_and_a_step_down(percent, total, at_least, at_most):
    assert (Share(percent, True).at_least(total), Share(percent, True).at_most(total)) == (at_least, at_most)
    assert (Share(7, False).at_least(total), Share(7, False).at_most(total)) == (7, 7)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2, (Share(2, False),)),
        ("2", (Share(2, False),)),
        ("25%", (Share(25, True),)),
        ([1, "2", "50%"], (Share(1, False), Share(2, False), Share(50, True))),
    ],
)
def test_a_ramp(value, expected):
    assert ramp("sglang_ramp", value) == expected


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "the list is empty"),
        ("[1, 2]", "is a text and no list: give it as -e"),
        ([1, 0], "from 1 on"),
        ("0%", "from 1"),
    ],
)
def test_what_is_no_ramp_is_named_with_the_remedy(value, words):
    with pytest.raises(RolloutError, match="sglang_ramp: ") as caught:
        ramp("sglang_ramp", value)
    assert words in str(caught.value)


def test_numbers_and_seconds():
    assert (number("n", "2", 1), seconds("s", "1.5"), seconds("s", 0)) == (2, 1.5, 0.0)
    for value in (0, "x", True, 1.5, None):
        with pytest.raises(RolloutError, match="n: "):
            number("n", value, 1)
    for value in (-1, "x", True, float("nan"), float("inf"), None):
        with pytest.raises(RolloutError, match="s: "):
            seconds("s", value)


def whole(name, value):
    return number(name, value, 0)


def test_hosts_that_agree():
    assert agreed("n", {"a": 2, "b": "2"}, whole, "the run") == 2
    assert agreed("n", {"a": None, "b": None}, whole, "the run") is None


def test_hosts_that_do_not_agree_are_named():
    with pytest.raises(RolloutError) as caught:
        agreed("n", {"a": 1, "b": 2, "c": None, "d": 1}, whole, "the replica group chat")
    assert str(caught.value) == (
        "n must be the same for all hosts of the replica group chat: a, d has 1; b has 2; c does not set it."
    )


def test_a_value_that_cannot_be_is_told_with_its_host():
    with pytest.raises(RolloutError, match=r"n: 'x' is no whole number from 0 on\. It is set for b\."):
        agreed("n", {"a": 1, "b": "x"}, whole, "the run")


def test_many_hosts_are_counted():
    assert names(["a", "b"]) == "a, b"
    assert names(list("abcdefghi")) == "a, b, c, d, e, f, g, h, i"
    assert names(list("abcdefghij")) == "a, b, c, d, e, f, g, h and 2 more"
