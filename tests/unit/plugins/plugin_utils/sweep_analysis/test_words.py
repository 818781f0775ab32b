# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers for operators: no digit too many."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis import words


@pytest.mark.parametrize(
    ("value", "uncertainty", "text"),
    [
        (1.0876, 0.04, "1.09"),
        (1.0876, 0.4, "1.1"),
        (1.0876, 0.0004, "1.088"),
        (1.0876, None, "1.1"),
        (1.0876, 3.0, "1"),
        (12345.6, 20.0, "12350"),
        (12345.6, None, "12000"),
        (0.0345, None, "0.035"),
        (99.7, 5.0, "100"),
        (0.0, None, "0"),
        (0.0, 0.1, "0.0"),
        (-0.12, 0.01, "-0.12"),
    ],
)
def test_the_uncertainty_says_how_many_digits(value, uncertainty, text):
    assert words.number(value, uncertainty) == text


def test_ratios():
    assert words.times(1.0876, [1.05, 1.13]) == "1.09 times (1.05 to 1.13)"
    assert words.times(0.5547, None) == "0.55 times"


@pytest.mark.parametrize(("value", "text"), [(113.4, "113 tok/s"), (1427.0, "1430 tok/s"), (9.876, "9.88 tok/s")])
def test_throughput_has_its_unit(value, text):
    assert words.throughput(value) == text


def test_throughput_with_an_interval():
    assert words.throughput(1427.3, [1300, 1500]) == "1400 tok/s"


@pytest.mark.parametrize(("letters", "text"), [("", ""), ("a", "a"), ("ab", "a and b"), ("abc", "a, b and c")])
def test_lists(letters, text):
    assert words.names(list(letters)) == text


@pytest.mark.parametrize(("amount", "text"), [(0, "no speculation"), (1, "1 step"), (3, "3 steps")])
def test_steps(amount, text):
    assert words.steps(amount) == text


@pytest.mark.parametrize(("value", "text"), [(8.0, "8"), (57.855, "58"), (1.234, "1.2")])
def test_concurrencies(value, text):
    assert words.concurrency(value) == text
