# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The drawings: the same each time, with everything in them, and a plain word where they cannot be made."""

from __future__ import annotations

import sys
from xml.etree import ElementTree

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report import plots
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.series import (
    CURVE,
    FAINT,
    Crossing,
    Line,
    Mark,
    Plot,
)


@pytest.fixture
def asked_anew():
    plots.missing.cache_clear()
    yield
    plots.missing.cache_clear()


def test_a_library_that_is_not_there_is_named_with_the_remedy(monkeypatch, asked_anew):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    told = plots.missing()
    for words in ("matplotlib>=3.6", "on the controller", sys.executable, "-m pip install 'matplotlib>=3.6'"):
        assert words in told


@pytest.mark.parametrize(
    "wanted, places",
    [
        ([10, 11, 12], [10, 22, 34]),
        ([50, 90, 90], [50, 88, 100]),
        ([-5], [0]),
        ([200], [100]),
        ([], []),
    ],
)
def test_labels_keep_apart(wanted, places):
    assert plots._spread_out(wanted, 0, 100, 12) == places


def test_log_ticks_are_round_and_few():
    assert plots._log_ticks(3, 70) == [5, 10, 20, 50]
    assert plots._log_ticks(0.9, 2_000_000) == [10.0**power for power in range(7)]


matplotlib = pytest.importorskip("matplotlib")

MARKS = tuple(Mark(2.0**power, 100.0 + power, 90.0, 130.0 + power) for power in range(5))
LINES = (
    Line("baseline", 0, MARKS),
    Line("one", 1, tuple(Mark(mark.x, mark.y * 2) for mark in MARKS)),
    Line("", FAINT, MARKS[:2]),
    Line("expected", CURVE, MARKS[:3]),
)
TICKS = tuple(mark.x for mark in MARKS)
PLOT = Plot("x of it", "y of it", LINES, TICKS, reference=100.0, crossings=(Crossing(1, 3.0, 2.0, 4.0),))


def drawn(plot, name="p"):
    return plots.draw(plot, name, "A title", "What it shows")


def texts(svg):
    return [element.text for element in ElementTree.fromstring(svg.replace("xlink:href", "href")).iter("text")]


def test_it_can_be_drawn_here(asked_anew):
    assert plots.missing() == ""


def test_one_that_is_too_old_is_named(monkeypatch, asked_anew):
    monkeypatch.setattr(matplotlib, "__version__", "3.5.3")
    assert "has 3.5.3 in" in plots.missing() and "pip install" in plots.missing()


def test_all_of_it_is_there():
    svg = drawn(PLOT)
    assert {"x of it", "y of it", "1", "2", "4", "8", "16", "baseline", "one", "expected"} <= set(texts(svg))
    for colour in ("--text", "--s1", "--faint", "--quiet", "--line"):
        assert "var(%s)" % colour in svg
    assert "<title" in svg and "DejaVu" not in svg and "://" not in svg


def test_it_is_the_same_whatever_the_user_has_set():
    before = drawn(PLOT)
    with matplotlib.rc_context(
        {"font.size": 40, "svg.fonttype": "path", "axes.facecolor": "red", "lines.linewidth": 9}
    ):
        assert drawn(PLOT) == before
    assert "red" not in before


def test_a_name_is_no_formula_and_no_markup():
    svg = drawn(Plot("$x^2$ <b>", "{{ y }}", (Line("$\\frac{1}{0}<i>", 1, MARKS),), TICKS))
    assert {"$x^2$ <b>", "{{ y }}"} <= set(texts(svg)) and "<i>" not in svg
    assert any(text.startswith("$\\frac{1}{0}<i") for text in texts(svg))


@pytest.mark.parametrize(
    "marks",
    [
        (Mark(1.0, 5.0),),
        (Mark(1.0, 0.0), Mark(2.0, 0.0)),
        (Mark(1.0, 5.0, 0.001, 1e9), Mark(2.0, 6.0)),
        (Mark(1e-3, 1e-6), Mark(1e6, 1e12)),
    ],
)
@pytest.mark.parametrize("logarithmic_y", [False, True])
def test_odd_values_are_drawn(marks, logarithmic_y):
    if logarithmic_y and not all(mark.y for mark in marks):
        pytest.skip("nothing is zero on this axis")
    for from_zero in (True, False):
        plot = Plot("x", "y", (Line("a", 1, marks),), (1.0, 2.0), logarithmic_y=logarithmic_y, from_zero=from_zero)
        assert "a" in texts(drawn(plot)) and "nan" not in drawn(plot).lower()


def test_nothing_is_not_drawn():
    assert drawn(Plot("x", "y", (), ())) == "" and drawn(Plot("x", "y", (Line("a", 1, ()),), (1.0,))) == ""
