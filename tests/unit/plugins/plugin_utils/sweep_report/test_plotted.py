# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plots show, on sweeps of which it is known."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.analysis import analyse
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.document import shaped
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.plotted import (
    all_plots,
    short_labels,
    subject,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.series import (
    BASELINE,
    CURVE,
    FAINT,
    MOST_STYLES,
)
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.sweep_report import samples


def plots_of(raw):
    document, _problems = shaped(raw)
    of = subject(document, analyse(document))
    return of, {titled.name: titled.plot for titled in all_plots(of)}


def line(plot, label):
    (found,) = [each for each in plot.lines if each.label == label]
    return found


def test_every_figure_that_was_measured_has_its_plot():
    of, plots = plots_of(samples.usual())
    assert list(plots) == ["throughput", "speedup", "speed", "ttft", "tpot", "e2e", "acceptance", "marginal1"]
    assert of.levels == tuple(map(float, samples.LEVELS))
    for name in ("throughput", "speed", "ttft", "tpot", "e2e"):
        assert [each.label for each in plots[name].lines] == list(of.rows)[:-1]
        assert all(len(each.marks) == len(samples.LEVELS) for each in plots[name].lines)
    baseline = line(plots["throughput"], "baseline")
    assert baseline.style == BASELINE and [mark.x for mark in baseline.marks] == list(of.levels)
    assert all(mark.low < mark.y < mark.high for mark in baseline.marks)
    # The baseline is what the others are compared with, and no line of its own there.
    assert "baseline" not in [each.label for each in plots["speedup"].lines]


def test_values_are_those_of_the_points():
    _of, plots = plots_of(samples.usual())
    repeats = [samples.repeat(3, 8, number) for number in range(3)]
    middle = sorted(repeats, key=lambda repeat: repeat["median_tpot_ms"])[1]
    at_eight = samples.LEVELS.index(8)
    assert line(plots["speed"], "eagle3-steps3").marks[at_eight].y == pytest.approx(1000 / middle["median_tpot_ms"])
    tail = line(plots["tpot"], "eagle3-steps3").marks[at_eight]
    assert (tail.y, tail.low, tail.high) == (
        middle["median_tpot_ms"],
        middle["median_tpot_ms"],
        middle["p99_tpot_ms"],
    )
    throughputs = sorted(repeat["output_throughput"] for repeat in repeats)
    assert line(plots["throughput"], "eagle3-steps3").marks[at_eight].y == pytest.approx(throughputs[1], rel=1e-3)


def test_a_crossing_is_where_the_model_has_it():
    of, plots = plots_of(samples.usual())
    crossings = {crossing.style: crossing for crossing in plots["speedup"].crossings}
    crossing = crossings[of.styles["eagle3-steps5"]]
    assert crossing.low <= crossing.at <= crossing.high
    faster = [level for level in samples.LEVELS if samples.token_ms(5, level) < samples.token_ms(0, level)]
    assert faster[-1] <= crossing.at <= samples.LEVELS[len(faster)]


def test_acceptance_has_its_curve():
    _of, plots = plots_of(samples.usual())
    (curve,) = [each for each in plots["acceptance"].lines if each.style == CURVE]
    assert [mark.x for mark in curve.marks] == [0, 1, 2, 3, 4, 5]
    for steps, mark in enumerate(curve.marks):
        assert mark.y == pytest.approx(samples.accepted(steps), abs=0.01)
    measured = [each.marks[0] for each in plots["acceptance"].lines if each.style != CURVE]
    assert [mark.x for mark in measured] == [1, 2, 3, 5]
    assert [mark.y for mark in measured] == [round(samples.accepted(steps), 3) for steps in (1, 2, 3, 5)]


def test_only_so_many_lines_as_can_be_told_apart():
    of, plots = plots_of(samples.large())
    styles = [style for style in of.styles.values() if style > BASELINE]
    assert sorted(styles) == list(range(1, MOST_STYLES + 1))
    assert sum(style == FAINT for style in of.styles.values()) == 19 - MOST_STYLES
    chosen = {part["configuration"] for part in of.analysis["decision"]["ranges"]}
    assert all(of.styles[label] >= BASELINE for label in chosen)
    assert all(bool(each.label) == (each.style != FAINT) for each in plots["throughput"].lines)


def test_nothing_measured_is_nothing_to_see():
    for raw in (samples.document(), samples.document(samples.failed("a", 1)), samples.document({"name": "x"})):
        of, plots = plots_of(raw)
        assert plots == {} and of.levels == ()


def test_without_a_baseline_the_rest_is_shown():
    _of, plots = plots_of(samples.document(samples.row("a", 3), samples.row("b", 5)))
    assert "speedup" not in plots and {"throughput", "ttft", "acceptance"} <= set(plots)


@pytest.mark.parametrize(
    "labels, short",
    [
        (["baseline", "eagle3-steps3"], ["baseline", "eagle3-steps3"]),
        (["a" * 16], ["a" * 16]),
        (["baseline", "fast-eagle3-steps3", "fast-eagle3-steps1"], ["baseline", "eagle3-steps3", "eagle3-steps1"]),
        (["baseline", "x-" + "a" * 17, "y-b"], ["baseline", "no. 2", "y-b"]),
        (["a" * 17, "b" * 17], ["no. 1", "no. 2"]),
        ([], []),
    ],
)
def test_short_labels(labels, short):
    assert list(short_labels(labels).values()) == short
