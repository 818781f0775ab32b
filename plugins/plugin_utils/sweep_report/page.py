# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a sweep as one self-contained HTML page."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from ansible_collections.inferops.sglang.plugins.plugin_utils.html_page import render
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report import plots
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.plotted import all_plots, subject
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.view import view

_TEMPLATE = "sweep_report.html.j2"


def page(
    document: Mapping[str, Any],
    analysis: Mapping[str, Any],
    problems: Sequence[str] = (),
    title: str = "",
    folder: str = "",
) -> str:
    """The page.  Raises ImportError where plots.missing() says so.

    document: shaped.  problems: what could not be read.  title: instead of the sweep's name.  folder: that of the
    sweep, for the commands on the page.
    """
    of = subject(document, analysis)
    drawn = [
        {
            "title": titled.title,
            "told": titled.told,
            "svg": plots.draw(titled.plot, titled.name, titled.title, "%s %s" % (titled.told, described(titled.plot))),
        }
        for titled in all_plots(of)
    ]
    return render(_TEMPLATE, plots=drawn, **view(of, document, problems, title, folder))


def described(plot: Any) -> str:
    """What can be read off a plot, for those who cannot see it: which lines there are."""
    named = [line.label for line in plot.lines if line.label]
    return (
        "Lines: %s. The tables below have the figures." % ", ".join(named) if named else "The tables have the figures."
    )
