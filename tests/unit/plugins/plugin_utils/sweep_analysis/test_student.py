# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Quantiles of Student's t, against published tables."""

from __future__ import annotations

import statistics

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.student import quantile


@pytest.mark.parametrize(
    ("probability", "degrees", "expected"),
    [
        (0.975, 1, 12.706),
        (0.975, 2, 4.303),
        (0.975, 3, 3.182),
        (0.975, 10, 2.228),
        (0.975, 30, 2.042),
        (0.95, 5, 2.015),
        (0.995, 4, 4.604),
        (0.9995, 1, 636.62),
        (0.9995, 20, 3.850),
    ],
)
def test_tables(probability, degrees, expected):
    assert quantile(probability, degrees) == pytest.approx(expected, rel=2e-4)


def test_with_many_degrees_it_is_normal():
    assert quantile(0.999, 100_000) == pytest.approx(statistics.NormalDist().inv_cdf(0.999), rel=1e-3)


@pytest.mark.parametrize(("probability", "degrees"), [(0.5, 3), (1.0, 3), (0.9, 0)])
def test_what_has_none(probability, degrees):
    with pytest.raises(ValueError, match="no quantile"):
        quantile(probability, degrees)
