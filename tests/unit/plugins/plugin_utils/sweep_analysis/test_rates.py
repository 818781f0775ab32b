# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The statistics keep what they promise: on many sweeps whose truth is known, all drawn from fixed seeds."""

from __future__ import annotations

import functools
import random
import statistics

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.analysis import analyse
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.crossovers import crossovers
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.decision import decide
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.speedups import speedups
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.sweep import Sweep
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.sweep_analysis.synthetic_sweeps import (
    Truth,
    noisy,
    point,
    repeat,
    results,
)

TRUTH = Truth(p=0.7, verified_token=0.4)
CONCURRENCIES = (1, 4, 16, 64)
SWEEPS = 40


def uneven(concurrency):
    """More noise with few requests."""
    return 0.02 if concurrency < 4 else 0.008


@functools.lru_cache(maxsize=None)
def sweeps(repeats, noise, steps=(0, 1, 3)):
    return [
        Sweep(results(*[noisy(TRUTH, each, CONCURRENCIES, noise, seed, repeats) for each in steps]))
        for seed in range(SWEEPS)
    ]


@pytest.mark.parametrize(
    ("repeats", "noise"),
    [(2, 0.01), (3, 0.01), (5, 0.01), (3, 0.03), (2, uneven), (3, uneven)],
    ids=["2-1%", "3-1%", "5-1%", "3-3%", "2-uneven", "3-uneven"],
)
def test_all_intervals_of_a_sweep_hold_at_once(repeats, noise):
    """In 95 % of the sweeps; of 40 seldom more than four fall short by chance."""
    kept = 0
    for sweep in sweeps(repeats, noise):
        kept += all(
            one["interval"][0] <= _truth(one["configuration"], one["concurrency"]) <= one["interval"][1]
            for one in speedups(sweep)
        )
    assert kept >= 36


def _truth(name, concurrency):
    return TRUTH.throughput(concurrency, int(name[-1])) / TRUTH.throughput(concurrency, 0)


@pytest.mark.parametrize(
    ("repeats", "noise"),
    [(2, 0.01), (3, 0.01), (5, 0.01), (3, 0.03), (2, uneven), (3, uneven)],
    ids=["2-1%", "3-1%", "5-1%", "3-3%", "2-uneven", "3-uneven"],
)
def test_crossovers_cover_the_truth(repeats, noise):
    found = [one for sweep in sweeps(repeats, noise) for one in crossovers(sweep) if one["state"] == "crosses"]
    kept = [
        one
        for one in found
        if one["interval"][0] <= TRUTH.crossover(int(one["configuration"][-1])) <= one["interval"][1]
    ]
    assert len(found) > 30
    assert len(kept) >= 0.95 * len(found)


def test_crossovers_are_narrower_than_what_was_measured():
    """The concurrencies next to each other differ by a factor of four."""
    found = [one for sweep in sweeps(3, 0.01) for one in crossovers(sweep) if one["state"] == "crosses"]
    assert statistics.median(one["interval"][1] / one["interval"][0] for one in found) < 1.7


@pytest.mark.parametrize("noise", [0.01, 0.03], ids=["1%", "3%"])
@pytest.mark.parametrize("repeats", [2, 3])
def test_equal_arms_are_not_told_apart(repeats, noise):
    """In at least 95 % of the sweeps nothing is called faster or slower, and the baseline stays everywhere."""
    quiet = 0
    for seed in range(SWEEPS):
        arms = [noisy(TRUTH, 0, CONCURRENCIES, noise, seed, repeats, name=name) for name in ("baseline", "b", "c")]
        for arm in arms[1:]:
            arm["baseline"] = False
        sweep = Sweep(results(*arms))
        verdicts = {one["verdict"] for one in speedups(sweep)}
        ranges = decide(sweep)["ranges"]
        quiet += not verdicts & {"faster", "slower"} and [one["configuration"] for one in ranges] == ["baseline"]
    assert quiet >= 0.95 * SWEEPS


@pytest.mark.parametrize(("repeats", "least"), [(2, 0.93), (3, 0.94), (5, 0.95)])
def test_the_best_is_found(repeats, least):
    """With 1 % noise no choice is slower than the best by more than the intervals let go."""
    for sweep in sweeps(repeats, 0.01):
        for concurrency in CONCURRENCIES:
            chosen = next(one for one in decide(sweep)["ranges"] if one["from"] <= concurrency <= one["to"])
            best = max(TRUTH.throughput(concurrency, steps) for steps in (0, 1, 3))
            assert TRUTH.throughput(concurrency, chosen["num_steps"]) > least * best


@pytest.mark.parametrize("factor", [0.3, 0.6, 0.85, 1.2, 2.0])
def test_a_single_noisy_repeat_never_flips_a_decision(factor):
    """Of three repeats at each of twelve points any one may be wrong."""
    clean = [noisy(TRUTH, steps, CONCURRENCIES, 0.005, seed=1) for steps in (0, 1, 3)]
    expected = _choices(clean)
    chance = random.Random(factor)
    for index, configuration in enumerate(clean):
        for place in range(len(CONCURRENCIES)):
            rows = list(clean)
            rows[index] = _disturbed(configuration, place, chance.randrange(3), factor)
            assert _choices(rows) == expected, (configuration["name"], CONCURRENCIES[place])


@pytest.mark.parametrize("factor", [0.3, 0.6, 0.85, 1.2, 2.0])
def test_of_two_repeats_a_noisy_one_never_makes_a_slower_one_win(factor):
    """It may leave something open: then what is simpler stays, but never what is slower than the baseline."""
    clean = [noisy(TRUTH, steps, CONCURRENCIES, 0.005, seed=1, repeats=2) for steps in (0, 1, 3)]
    for index, configuration in enumerate(clean):
        for place in range(len(CONCURRENCIES)):
            rows = list(clean)
            rows[index] = _disturbed(configuration, place, 0, factor)
            for concurrency, steps in zip(CONCURRENCIES, _choices(rows)):
                least = 0.96 * TRUTH.throughput(concurrency, 0)
                assert TRUTH.throughput(concurrency, steps) > least, (configuration["name"], place, concurrency)


def _disturbed(configuration, place, number, factor):
    measured = configuration["points"][place]
    repeats = list(measured["repeats"])
    concurrency = measured["concurrency"]
    bad = repeats[number]["output_throughput"] * factor
    repeats[number] = repeat(bad, concurrency, repeats[number]["accept_length"])
    points = list(configuration["points"])
    points[place] = point(concurrency, repeats)
    return {**configuration, "points": points}


def _choices(rows):
    """The number of steps at each concurrency."""
    ranges = decide(Sweep(results(*rows)))["ranges"]
    return [next(one["num_steps"] for one in ranges if concurrency in one["measured"]) for concurrency in CONCURRENCIES]


def test_a_noisy_repeat_between_does_not_make_a_range():
    """Two repeats of the baseline that disagree where another configuration is faster before and after."""
    baseline = noisy(TRUTH, 0, (1, 2, 3, 4), 0.004, seed=3, repeats=2)
    other = noisy(TRUTH, 1, (1, 2, 3, 4), 0.004, seed=3, repeats=2)
    found = analyse(results(_disturbed(baseline, 1, 0, 1.9), other))
    assert [(one["configuration"], one["measured"]) for one in found["decision"]["ranges"]] == [
        ("eagle3-steps1", [1, 2, 3, 4])
    ]
    assert "not known at 2" in found["decision"]["ranges"][0]["reason"]
