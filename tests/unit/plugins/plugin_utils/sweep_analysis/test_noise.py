# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The noise of repeats: of the whole sweep, of a point, and of an outlier."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.measured import read
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.noise import (
    LEAST_NOISE,
    estimate,
    level,
    outlier_words,
)
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.sweep_analysis.synthetic_sweeps import (
    flat,
    results,
)


def points(*throughputs):
    """A point for each list of throughputs."""
    values = {index + 1: listed for index, listed in enumerate(throughputs)}
    return list(read(results(flat(values)))[0][0].points.values())


def drawn(seed, repeats, deviation, amount):
    chance = random.Random(seed)
    return points(
        *[[100 * math.exp(chance.gauss(0, deviation)) for _one in range(repeats)] for _point in range(amount)]
    )


@pytest.mark.parametrize("repeats", [2, 3, 5])
def test_the_deviation_is_found(repeats):
    found = [estimate(drawn(seed, repeats, 0.02, 24)).deviation for seed in range(20)]
    assert statistics.fmean(found) == pytest.approx(0.02, rel=0.05)


def test_degrees_of_freedom():
    assert estimate(points([100, 101], [100, 101, 102], [100])).degrees == 3


def test_single_repeats_have_no_noise():
    measured = points([100], [200])
    assert estimate(measured).deviation is None
    assert level(measured[0], estimate(measured)).variance is None


def test_repeats_that_are_equal_by_chance_are_not_certain():
    measured = points([100, 100, 100])
    assert estimate(measured).deviation == LEAST_NOISE


@pytest.mark.parametrize("repeats", [1, 2, 3, 4, 5, 6, 7, 9])
def test_the_variance_of_a_median(repeats):
    """It is that of many medians of drawn values."""
    chance = random.Random(repeats)
    medians = [statistics.median(chance.gauss(0, 1) for _one in range(repeats)) for _point in range(4000)]
    measured = points([100.0] * repeats, [100.0, 101.0], [100.0, 101.0])
    noise = estimate(measured)
    variance = level(measured[0], noise).variance
    expected = statistics.variance(medians) * noise.deviation**2
    assert (variance is None) if repeats == 1 else variance == pytest.approx(expected, rel=0.12)


def test_an_outlier_is_shown_and_stays():
    measured = points([100, 101, 60], [100, 101, 102], [100, 99, 100])
    noise = estimate(measured)
    found = level(measured[0], noise)
    assert noise.deviation < 0.02
    assert math.exp(found.log) == pytest.approx(100)
    assert [repeat.number for repeat in found.outliers] == [3]
    assert outlier_words(measured[0], found.outliers) == [
        {
            "repeat": 3,
            "throughput": 60.0,
            "message": "Repeat 3: 60.0 tok/s, 40 % less than the others of its point. It stays in the data.",
        }
    ]
    assert found.variance > level(measured[1], noise).variance


def test_of_two_that_disagree_nobody_knows_which_is_right():
    measured = points([100, 60], [100, 101], [100, 99], [100, 101])
    noise = estimate(measured)
    found = level(measured[0], noise)
    assert [repeat.number for repeat in found.outliers] == [1, 2]
    assert noise.deviation < 0.02
    assert math.sqrt(found.variance) > 0.2
    assert "which is right is not known" in outlier_words(measured[0], found.outliers)[0]["message"]


def test_a_noisy_sweep_has_no_outliers():
    measured = points([100, 130, 80], [100, 70, 120], [100, 125, 90])
    assert not any(level(point, estimate(measured)).outliers for point in measured)


def test_a_noisier_point_counts_with_its_own_noise():
    measured = points([100, 104, 96], *[[100, 100.5, 101]] * 8)
    noise = estimate(measured)
    assert level(measured[0], noise).variance > 3 * level(measured[1], noise).variance
