# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever stands in the files of a sweep, there is an analysis, a table and something to plot of it."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.analysis import analyse
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.csv_lines import csv_of
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.document import shaped
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.plotted import all_plots, subject
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.view import view
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.sweep_report import samples

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def changed(sample, most=4):
    """A mapping like the sample, in which some values are anything."""
    return st.dictionaries(st.sampled_from(sorted(sample)), VALUES, max_size=most).map(lambda odd: {**sample, **odd})


REPEATS = st.lists(changed(samples.repeat(3, 2)) | VALUES, max_size=3)
POINTS = st.lists(
    st.builds(lambda point, repeats: {**point, "repeats": repeats}, changed(samples.point(3, 2), 2), REPEATS) | VALUES,
    max_size=3,
)
ROWS = st.lists(
    st.builds(lambda row, points: {**row, "points": points}, changed(samples.row("a", 3, levels=())), POINTS)
    | changed(samples.row("b", 0, levels=(1, 2)))
    | VALUES,
    max_size=4,
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(ROWS, changed(samples.document()["sweep"]))
def test_anything(rows, sweep):
    document, problems = shaped({"format": 1, "sweep": sweep, "configurations": rows})
    analysis = analyse(document)
    text = json.dumps({**document, "analysis": analysis}, allow_nan=False)
    assert shaped(json.loads(text))[0] == document
    assert csv_of(document).count("\n") > len(document["configurations"])
    of = subject(document, analysis)
    for titled in all_plots(of):
        assert not titled.plot.empty
    seen = view(of, document, problems, "")
    assert len(seen["configurations"]) == len(document["configurations"]) and seen["headline"]
