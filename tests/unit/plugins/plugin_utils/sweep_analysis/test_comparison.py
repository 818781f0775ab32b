# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""When one is faster than another, and when nobody can say."""

from __future__ import annotations

import math

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.comparison import compare, sentence
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.noise import Level

NOISY = "not known: 1.1 times (0.7 to 1.6); the repeats differ too much, so repeat it more often."
SINGLE = "not known from a single repeat: 1.4 times, and below a factor of 1.4 it may be chance."


def levels(above, below, deviation=0.005, load=1.0):
    variance = None if deviation is None else deviation**2 / 2
    return [Level(math.log(above), variance, load=math.log(load))], [Level(math.log(below), variance)]


@pytest.mark.parametrize(
    ("above", "below", "deviation", "verdict", "words"),
    [
        (110, 100, 0.01, "faster", "1.10 times (1.08 to 1.12)."),
        (90, 100, 0.01, "slower", "0.90 times (0.88 to 0.92)."),
        (101, 100, 0.01, "no_difference", "no difference: 1.01 times (0.99 to 1.03)."),
        (102, 100, 0.002, "no_difference", "no difference that counts: 1.020 times (1.016 to 1.024), less than 3 %."),
        (98, 100, 0.002, "no_difference", "no difference that counts: 0.980 times (0.976 to 0.984), less than 3 %."),
        (110, 100, 0.2, "unknown", NOISY),
        (139, 100, None, "unknown", SINGLE),
        (60, 90, None, "slower", "0.67 times, from a single repeat: no interval, but more than chance explains."),
        (150, 100, None, "faster", "1.5 times, from a single repeat: no interval, but more than chance explains."),
    ],
)
def test_verdicts(above, below, deviation, verdict, words):
    result = compare(*levels(above, below, deviation), None if deviation is None else 2.0)
    assert result.verdict == verdict
    assert sentence(result, "") == words


def test_both_ways_say_the_same():
    up, down = compare(*levels(120, 100), 2.0), compare(*levels(100, 120), 2.0)
    assert up.log == -down.log
    assert up.half == down.half
    assert up.ratio * down.ratio == pytest.approx(1, abs=1e-4)


def test_what_is_missing_is_unknown():
    result = compare([None], levels(1, 1)[1], 2.0)
    assert (result.ratio, result.interval, result.verdict) == (None, None, "unknown")
    assert (
        sentence(result, "the baseline has no measurement there") == "not known: the baseline has no measurement there."
    )


def test_what_was_not_at_the_same_load_is_less_certain():
    """At 80 % of the load the throughput could be up to a quarter higher with all of it."""
    equal, starved = compare(*levels(90, 100), 2.0), compare(*levels(90, 100, load=0.8), 2.0)
    assert equal.verdict == "slower"
    assert starved.verdict == "no_difference"
    low, high = starved.interval
    assert low == pytest.approx(equal.interval[0], rel=1e-3)
    assert high == pytest.approx(equal.interval[1] / 0.8, rel=1e-3)
