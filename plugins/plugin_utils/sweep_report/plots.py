# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draws plots as SVG with matplotlib, which is on the controller only where somebody wants a report.

The same values give the same text: no date, no random name, and no setting of the user's own matplotlib.
"""

from __future__ import annotations

import math
import sys
from functools import lru_cache
from io import StringIO
from typing import Any, List, Mapping, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report import svg
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.numbers import number
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.series import (
    CURVE,
    FAINT,
    Line,
    Plot,
)

OLDEST = (3, 6)

# Points (1/72 inch), which are the units of the drawing: on a phone it is about as wide as this, so that text of this
# size stays readable there.
_WIDTH, _HEIGHT = 360.0, 250.0
_TEXT = 11.0
_LABEL = 10.5
_LEFT, _RIGHT, _BOTTOM, _TOP = 44.0, 10.0, 40.0, 22.0
_LETTER = 5.9  # average width at that size
_MOST_LETTERS = 16

_INK, _QUIET, _GRID, _FAINT = "#1c1f23", "#5b636d", "#d0d4da", "#a9b0b8"
_STYLES: Sequence[Tuple[str, str, Any]] = (
    # Colour, marker, dashes.  The colours keep apart for those who see fewer of them, and all are dark enough on white;
    # markers, dashes and the labels tell the lines apart where there is no colour at all.
    (_INK, "o", (0, (5, 2))),
    ("#0072b2", "o", "-"),
    ("#b84c00", "s", "-"),
    ("#007a5a", "^", (0, (7, 1.5))),
    ("#aa3377", "D", (0, (1.5, 1.2))),
    ("#9a6a00", "v", (0, (6, 1.5, 1.5, 1.5))),
    ("#5b4fa2", "P", (0, (3, 1))),
)
# What is there to compare with.
_NOT_MEASURED: Mapping[int, Tuple[str, str, Any]] = {FAINT: (_FAINT, "", "-"), CURVE: (_QUIET, "", (0, (3, 2)))}
# Their names in the page's style, which has others for a dark page.
COLOURS: Mapping[str, str] = {
    _INK: "--text",
    _QUIET: "--quiet",
    _GRID: "--line",
    _FAINT: "--faint",
    **{colour: "--s%d" % style for style, (colour, _marker, _dashes) in enumerate(_STYLES) if style},
}
_SETTINGS: Mapping[str, Any] = {
    "svg.fonttype": "none",  # text stays text: smaller, and it can be searched and read out
    "svg.hashsalt": "inferops.sglang",
    "text.parse_math": False,  # a name with dollars is a name
    "text.usetex": False,
    "font.family": ["DejaVu Sans"],  # matplotlib brings it, so that the room for text is the same everywhere
    "font.size": _TEXT,
    "axes.unicode_minus": True,
    "path.simplify": True,
}


@lru_cache(maxsize=None)
def missing() -> str:
    """Why no plot can be drawn here and what to do about it, or nothing.  Imports matplotlib to be sure."""
    wanted = "matplotlib>=%d.%d" % OLDEST
    remedy = "Install it: %s -m pip install '%s'." % (sys.executable, wanted)
    try:
        import matplotlib
        from matplotlib.backends import backend_svg  # noqa: F401
        from matplotlib.figure import Figure  # noqa: F401
    except ImportError as exc:
        return "The plots of a report need %s on the controller, which %s cannot import: %s. %s" % (
            wanted,
            sys.executable,
            exc,
            remedy,
        )
    found = tuple(int(part) for part in matplotlib.__version__.split(".")[:2])
    if found < OLDEST:
        return "The plots of a report need %s on the controller, and %s has %s in %s. %s" % (
            wanted,
            sys.executable,
            matplotlib.__version__,
            matplotlib.__file__,
            remedy,
        )
    return ""


def draw(plot: Plot, name: str, title: str, description: str) -> str:
    """The <svg> element of a plot; nothing where it is empty.  Raises ImportError as missing() says.

    name: begins every id in it.  title, description: for those who cannot see it.
    """
    if plot.empty:
        return ""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        figure = Figure(figsize=(_WIDTH / 72, _HEIGHT / 72), dpi=72)
        FigureCanvasSVG(figure)
        labels = [line for line in plot.lines if line.label and line.marks]
        room = _room_for(labels)
        axes = figure.add_axes(
            (
                _LEFT / _WIDTH,
                _BOTTOM / _HEIGHT,
                (_WIDTH - _LEFT - room) / _WIDTH,
                (_HEIGHT - _BOTTOM - _TOP) / _HEIGHT,
            )
        )
        _set_up(axes, plot)
        for position, line in enumerate(sorted(plot.lines, key=lambda line: (line.style >= 0, -line.style))):
            _draw_line(axes, line, position)
        _draw_crossings(axes, plot)
        _label_ends(axes, plot, labels)
        figure.patch.set_visible(False)
        stream = StringIO()
        # Without any of these there is no block of metadata that would name a date or a program.
        figure.savefig(
            stream, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}, dpi=72
        )
    return svg.inline(stream.getvalue(), name, title, description, COLOURS)


# ---- the axes --------------------------------------------------------------------------------------------------------


def _set_up(axes: Any, plot: Plot) -> None:
    from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, MaxNLocator, NullLocator
    from matplotlib.transforms import IdentityTransform

    axes.patch.set_visible(False)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_QUIET)
    axes.tick_params(labelcolor=_QUIET, pad=4, left=False, bottom=False)
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel(plot.x_name, color=_QUIET, fontsize=_TEXT, labelpad=4)
    # Above the axis and not beside it: nobody turns their head, or their phone.
    axes.text(4, _HEIGHT - _TOP + 8, plot.y_name, color=_QUIET, fontsize=_TEXT, transform=IdentityTransform())
    _scale_x(axes, plot)
    low, high = _limits(plot)
    if plot.logarithmic_y:
        axes.set_yscale("log")
        axes.yaxis.set_minor_locator(NullLocator())
        ticks = _log_ticks(low, high)
        axes.yaxis.set_major_locator(FixedLocator(ticks))
        axes.yaxis.set_major_formatter(FixedFormatter([number(tick) for tick in ticks]))
    else:
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
        axes.yaxis.set_major_formatter(FuncFormatter(_plain))
    axes.set_ylim(low, high)
    if plot.reference is not None:
        axes.axhline(plot.reference, color=_QUIET, linewidth=1.2, zorder=1.5)


def _plain(value: float, _position: int) -> str:
    return number(value) if abs(value) >= 1000 else "%g" % round(value, 6)


def _scale_x(axes: Any, plot: Plot) -> None:
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    xs = sorted({*plot.ticks, *(mark.x for line in plot.lines for mark in line.marks)})
    if plot.logarithmic_x:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_minor_locator(NullLocator())
        margin = max((xs[-1] / xs[0]) ** 0.04, 1.15)
        axes.set_xlim(xs[0] / margin, xs[-1] * margin)
    else:
        margin = max((xs[-1] - xs[0]) * 0.05, 0.3)
        axes.set_xlim(xs[0] - margin, xs[-1] + margin)
    ticks = sorted(set(plot.ticks))
    named = _apart(axes, ticks)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FixedFormatter([number(x) if x in named else "" for x in ticks]))


def _apart(axes: Any, xs: Sequence[float]) -> List[float]:
    """Those whose labels have room beside one another, the first and the last among them."""
    places = {x: float(axes.transData.transform((x, 1.0))[0]) for x in xs}

    def needs(one: float, other: float) -> float:
        return (len(number(one)) + len(number(other))) * _LETTER / 2 + 4

    if len(xs) < 2:
        return list(xs)
    kept = [xs[0]]
    for x in xs[1:-1]:
        if places[x] - places[kept[-1]] >= needs(x, kept[-1]) and places[xs[-1]] - places[x] >= needs(x, xs[-1]):
            kept.append(x)
    return [*kept, xs[-1]]


def _limits(plot: Plot) -> Tuple[float, float]:
    """The lowest and highest value that is drawn, with some room."""
    marks = [mark for line in plot.lines for mark in line.marks]
    points = [mark.y for mark in marks] + ([] if plot.reference is None else [plot.reference])
    values = points + [end for mark in marks for end in (mark.low, mark.high) if end is not None]
    if plot.logarithmic_y:
        return min(value for value in values if value > 0) / 1.25, max(values) * 1.25
    # Of a bar that reaches far beyond all marks nobody needs to see the end.
    span = max(points) - min(points) or max(map(abs, points)) / 2 or 1.0
    low, high = max(min(values), min(points) - span), min(max(values), max(points) + span)
    room = (high - low) * 0.06 or span * 0.06
    return (0.0 if plot.from_zero else low - room), high + room


def _log_ticks(low: float, high: float) -> List[float]:
    """Round values between two, about five of them."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), (1,)):
        found = [float("%de%d" % (step, decade)) for decade in decades for step in steps]
        found = [tick for tick in found if low <= tick <= high]
        if len(found) <= 7:
            break
    return found


# ---- what is drawn in them -------------------------------------------------------------------------------------------


def _draw_line(axes: Any, line: Line, position: int) -> None:
    if not line.marks:
        return
    faint = line.style in _NOT_MEASURED
    colour, marker, dashes = _style(line)
    xs, ys = [mark.x for mark in line.marks], [mark.y for mark in line.marks]
    order = 2.0 + position / 100
    axes.plot(
        xs,
        ys,
        color=colour,
        linestyle=dashes if line.joined else "none",
        linewidth=1.0 if faint else 1.8,
        marker=marker if marker or line.joined else "o",
        markersize=5.5,
        markeredgewidth=0,
        zorder=order,
    )
    if faint:
        return
    # All of them as one path, which is interrupted between two of them.
    bars = [(mark.x, mark.low, mark.high) for mark in line.marks if mark.low is not None and mark.high is not None]
    if bars:
        axes.plot(
            [place for x, _low, _high in bars for place in (x, x, math.nan)],
            [place for _x, low, high in bars for place in (low, high, math.nan)],
            color=colour,
            linewidth=1.1,
            zorder=order,
            solid_capstyle="butt",
        )


def _style(line: Line) -> Tuple[str, str, Any]:
    return _NOT_MEASURED[line.style] if line.style in _NOT_MEASURED else _STYLES[line.style]


def _draw_crossings(axes: Any, plot: Plot) -> None:
    """On the level of the baseline: a ring at the estimate, and a bar as wide as it is uncertain."""
    level = plot.reference
    if level is None:
        return
    for crossing in plot.crossings:
        colour = _STYLES[crossing.style][0]
        axes.plot([crossing.low, crossing.high], [level, level], color=colour, linewidth=4.0, alpha=0.45, zorder=3.0)
        axes.plot(
            [crossing.at],
            [level],
            marker="o",
            markersize=8,
            markerfacecolor="none",
            markeredgecolor=colour,
            markeredgewidth=2.0,
            zorder=3.1,
        )


def _room_for(labels: Sequence[Line]) -> float:
    longest = max((min(len(line.label), _MOST_LETTERS) for line in labels), default=0)
    return _RIGHT + (12 + longest * _LETTER if longest else 0.0)


def _label_ends(axes: Any, plot: Plot, labels: Sequence[Line]) -> None:
    """Name each line where it ends, one below the other where several end together."""
    from matplotlib.transforms import IdentityTransform

    wanted = []
    for line in labels:
        end = max(line.marks, key=lambda mark: mark.x)
        x, y = axes.transData.transform((end.x, end.y))
        wanted.append((float(y), float(x), line))
    wanted.sort(key=lambda item: (item[0], item[2].label))
    low, high = axes.transAxes.transform((0, 0))[1] + 3, axes.transAxes.transform((1, 1))[1]
    edge = float(axes.transAxes.transform((1, 0))[0])
    for (y, x, line), place in zip(wanted, _spread_out([item[0] for item in wanted], low, high, _LABEL + 2)):
        colour = _style(line)[0]
        axes.plot(
            [x + 5, edge + 8],
            [y, place],
            color=colour,
            linewidth=0.7,
            alpha=0.7,
            transform=IdentityTransform(),
            clip_on=False,
            zorder=1.0,
        )
        axes.text(
            edge + 10,
            place,
            _shortened(line.label),
            color=colour,
            fontsize=_LABEL,
            va="center",
            transform=IdentityTransform(),
            clip_on=False,
        )


def _spread_out(wanted: Sequence[float], low: float, high: float, apart: float) -> List[float]:
    """Places in the order of the wanted ones, each as near to it as it can be with some distance between them."""
    places: List[float] = []
    for place in wanted:
        places.append(max(place, low, places[-1] + apart if places else low))
    limit = high
    for position in range(len(places) - 1, -1, -1):
        places[position] = min(places[position], limit)
        limit = places[position] - apart
    return places


def _shortened(label: str) -> str:
    return label if len(label) <= _MOST_LETTERS else label[: _MOST_LETTERS - 1] + "\u2026"
