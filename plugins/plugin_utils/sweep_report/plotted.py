# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chooses what the plots of a report show: from the analysis to values, pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.numbers import number
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.series import (
    BASELINE,
    CURVE,
    FAINT,
    MOST_STYLES,
    Crossing,
    Line,
    Mark,
    Plot,
)

_MOST_LETTERS = 16
_CONCURRENCY = "concurrency: requests open at a time"
# Values that span more than this are not to be told apart near zero.
_WIDE = 8.0
_MOST_MARGINAL_PLOTS = 2


@dataclass(frozen=True)
class Titled:
    """A plot with what is said about it.  name: short, for ids.  told: how it is read."""

    name: str
    title: str
    told: str
    plot: Plot


@dataclass(frozen=True)
class Subject:
    """What is plotted: a shaped document with its analysis, and how each configuration looks.

    rows: the document's rows by the label that the analysis gives them.
    """

    analysis: Mapping[str, Any]
    rows: Mapping[str, Mapping[str, Any]]
    styles: Mapping[str, int]
    shorts: Mapping[str, str]
    levels: Tuple[float, ...]

    def line(self, label: str, marks: Sequence[Mark]) -> Line:
        style = self.styles[label]
        return Line("" if style == FAINT else self.shorts[label], style, tuple(marks))


def subject(document: Mapping[str, Any], analysis: Mapping[str, Any]) -> Subject:
    """Everything that the plots and the tables have in common."""
    labels = [row["configuration"] for row in analysis["configurations"]]
    styles = _styles(analysis)
    return Subject(
        analysis=analysis,
        rows=dict(zip(labels, document["configurations"])),
        styles=styles,
        shorts=short_labels(labels),
        levels=tuple(sorted({float(point["concurrency"]) for point in analysis["points"]})),
    )


def all_plots(of: Subject) -> List[Titled]:
    """The plots of a report, those that have something to show, the most important one first."""
    found = [
        _throughput(of),
        _speedups(of),
        *_latencies(of),
        _acceptance(of),
        *_marginal(of),
    ]
    return [titled for titled in found if not titled.plot.empty]


# ---- how configurations look -----------------------------------------------------------------------------------------


def _styles(analysis: Mapping[str, Any]) -> Dict[str, int]:
    """A style for each label: those that matter most can be told apart, the others are faint."""
    measured = {point["configuration"] for point in analysis["points"]}
    styles = {row["configuration"]: BASELINE if row["baseline"] else FAINT for row in analysis["configurations"]}
    chosen = [label for label in _by_importance(analysis) if styles.get(label) == FAINT and label in measured]
    chosen = list(dict.fromkeys(chosen))[:MOST_STYLES]
    # In the order of the results, so that the colours do not jump when another configuration is the best.
    for style, label in enumerate([label for label in styles if label in chosen], 1):
        styles[label] = style
    return styles


def _by_importance(analysis: Mapping[str, Any]) -> Iterator[str]:
    yield from (part["configuration"] for part in analysis["decision"]["ranges"])
    yield from (row["configuration"] for row in analysis["configurations"] if row["adaptive"])
    levels = sorted({point["concurrency"] for point in analysis["points"]})
    ranked: List[Tuple[int, int, str]] = []
    for position, level in enumerate(levels):
        here = [point for point in analysis["points"] if point["concurrency"] == level]
        here.sort(key=lambda point: (-point["throughput"], point["configuration"]))
        ranked.extend((rank, position, point["configuration"]) for rank, point in enumerate(here))
    # The best of each concurrency, then the second best, and so on.
    yield from (label for _rank, _position, label in sorted(ranked))
    yield from (row["configuration"] for row in analysis["configurations"])


def short_labels(labels: Sequence[str]) -> Dict[str, str]:
    """A name for each that fits beside a line: its own, what is its own of it, or its number in the list."""
    if all(len(label) <= _MOST_LETTERS for label in labels):
        return {label: label for label in labels}
    words = [label.split("-") for label in labels if "-" in label]
    common = words[0][0] + "-" if words and all(parts[0] == words[0][0] for parts in words) else ""
    short = {label: label[len(common) :] if common and label.startswith(common) else label for label in labels}
    if all(len(text) <= _MOST_LETTERS for text in short.values()) and len(set(short.values())) == len(labels):
        return short
    return {
        label: label if len(label) <= _MOST_LETTERS else "no. %d" % position for position, label in enumerate(labels, 1)
    }


# ---- the plots -------------------------------------------------------------------------------------------------------


def _throughput(of: Subject) -> Titled:
    def mark(point: Mapping[str, Any]) -> Mark:
        low, high = point["interval"] or (None, None)
        return Mark(float(point["counts_as"]), point["throughput"], low, high)

    plot = Plot(_CONCURRENCY, "output tokens/s of all requests", _lines(of, mark), of.levels)
    return Titled(
        "throughput",
        "Throughput",
        "Tokens that the server generates in a second, all requests together: the median of the repeats. The bars are "
        "95 % intervals of a single point.",
        plot,
    )


def _speedups(of: Subject) -> Titled:
    lines = []
    for label in of.rows:
        marks = [
            Mark(float(item["counts_as"]), item["ratio"], *(item["interval"] or (None, None)))
            for item in of.analysis["speedups"]
            if item["configuration"] == label and item["ratio"] is not None
        ]
        if marks and of.styles[label] != BASELINE:
            lines.append(of.line(label, marks))
    crossings = tuple(
        Crossing(of.styles[item["configuration"]], crossing["estimate"], *crossing["interval"])
        for item in of.analysis["crossovers"]
        for crossing in item["crossings"]
        if crossing["estimate"] is not None
        and crossing["interval"]
        and None not in crossing["interval"]
        and of.styles[item["configuration"]] > BASELINE
    )
    plot = Plot(
        _CONCURRENCY,
        "throughput against the baseline (1 = the same)",
        tuple(lines),
        of.levels,
        from_zero=False,
        reference=1.0 if lines else None,
        crossings=crossings,
    )
    return Titled(
        "speedup",
        "Against the baseline",
        "Above the line a configuration is faster than no speculation, below it slower. The bars are 95 % intervals "
        "that hold for all comparisons together. A ring marks where the two are equally fast, and its bar how "
        "uncertain that is.",
        plot,
    )


def _latencies(of: Subject) -> Iterator[Titled]:
    def speed(point: Mapping[str, Any]) -> Optional[Mark]:
        figures = _figures(of, point)
        value = figures["median"]["median_tpot_ms"]
        if not value:
            return None
        spread = figures["spread"]["median_tpot_ms"]
        ends = (spread["max"], spread["min"])
        low, high = (1000.0 / end if end else None for end in ends)
        return Mark(float(point["counts_as"]), 1000.0 / value, low, high)

    plot = Plot(_CONCURRENCY, "tokens/s of one request", _lines(of, speed), of.levels)
    yield Titled(
        "speed",
        "Speed of one request",
        "Tokens in a second that one request gets once its first token is there: 1000 / median TPOT in ms. The bars go "
        "from the slowest to the fastest repeat.",
        plot,
    )
    for kind, title, told in (
        ("ttft", "Time to the first token", "How long a request waits for its first token (TTFT)."),
        ("tpot", "Time for each further token", "How long each token after the first one takes (TPOT)."),
        ("e2e_latency", "Time for a whole request", "From sending a request to its last token."),
    ):
        lines = _dodged(_lines(of, _median_and_tail(of, kind)))
        plot = Plot(_CONCURRENCY, "ms", lines, of.levels, logarithmic_y=_is_wide(lines))
        yield Titled(
            kind.partition("_")[0],
            title,
            told + " The mark is the median, and the bar above it reaches to the 99th percentile.",
            plot,
        )


def _median_and_tail(of: Subject, kind: str) -> Callable[[Mapping[str, Any]], Optional[Mark]]:
    def mark(point: Mapping[str, Any]) -> Optional[Mark]:
        median = _figures(of, point)["median"]
        value, tail = median["median_%s_ms" % kind], median["p99_%s_ms" % kind]
        if not value or value < 0:
            return None
        known = tail is not None and tail >= value
        return Mark(float(point["counts_as"]), value, value if known else None, tail if known else None)

    return mark


def _acceptance(of: Subject) -> Titled:
    items = [
        item
        for item in of.analysis["acceptance"]["configurations"]
        if item["applies"] and item["measured"] is not None and item["num_steps"]
    ]
    most = max((item["num_steps"] for item in items), default=0)
    lines = []
    for item in items:
        # Beside one another, where several configurations have as many steps.
        alike = [other["configuration"] for other in items if other["num_steps"] == item["num_steps"]]
        shift = (alike.index(item["configuration"]) - (len(alike) - 1) / 2) * min(0.15, 0.6 / len(alike))
        mark = Mark(item["num_steps"] + shift, item["measured"], *(item["interval"] or (None, None)))
        lines.append(Line("", of.styles[item["configuration"]], (mark,), joined=False))
    curves = []
    for draft in of.analysis["acceptance"]["drafts"]:
        if draft["p"] is not None and most:
            marks = tuple(
                Mark(float(steps), sum(draft["p"] ** power for power in range(steps + 1))) for steps in range(most + 1)
            )
            curves.append(Line("p = %s" % number(draft["p"], 2), CURVE, marks))
    steps = tuple(float(count) for count in range(most + 1))
    plot = Plot(
        "drafted tokens for each verification (num_steps)",
        "tokens accepted for each verification",
        (*curves, *lines),
        steps,
        logarithmic_x=False,
        from_zero=False,
    )
    return Titled(
        "acceptance",
        "Accepted tokens",
        "Measured, and the curve that is expected where each drafted token is accepted with the same chance p: "
        "1 + p + p\u00b2 + \u2026 The flatter it gets, the less a further step can bring.",
        plot,
    )


def _marginal(of: Subject) -> Iterator[Titled]:
    for position, group in enumerate(of.analysis["marginal"][:_MOST_MARGINAL_PLOTS]):
        changes: Dict[Tuple[int, int], List[Mark]] = {}
        for gain in group["gains"]:
            if gain["gain"] is not None:
                low, high = gain["interval"] or (None, None)
                mark = Mark(float(gain["concurrency"]), gain["gain"], low, high)
                changes.setdefault((gain["from_steps"], gain["to_steps"]), []).append(mark)
        lines = tuple(
            Line("%d to %d steps" % change, style if style <= MOST_STYLES else FAINT, tuple(marks))
            for style, (change, marks) in enumerate(sorted(changes.items()), 1)
        )
        lines = tuple(line if line.style != FAINT else Line("", FAINT, line.marks) for line in lines)
        plot = Plot(
            _CONCURRENCY,
            "throughput against fewer steps (1 = no gain)",
            _dodged(lines),
            of.levels,
            from_zero=False,
            reference=1.0 if lines else None,
        )
        yield Titled(
            "marginal%d" % (position + 1),
            "What more steps bring" + (": %s" % group["group"] if group["group"] else ""),
            "Each line is one change of num_steps. Above 1 the further steps pay at that concurrency, below it they "
            "cost more than they bring. 0 steps is the baseline.",
            plot,
        )


# ---- parts of them ---------------------------------------------------------------------------------------------------


def _lines(of: Subject, mark: Callable[[Mapping[str, Any]], Optional[Mark]]) -> Tuple[Line, ...]:
    found = []
    for label in of.rows:
        points = [point for point in of.analysis["points"] if point["configuration"] == label]
        marks = [made for made in map(mark, sorted(points, key=lambda point: point["counts_as"])) if made is not None]
        if marks:
            found.append(of.line(label, marks))
    return tuple(found)


def _figures(of: Subject, point: Mapping[str, Any]) -> Mapping[str, Any]:
    """Median and spread of a point of the analysis, as the document has them."""
    row = of.rows[point["configuration"]]
    (found,) = [item for item in row["points"] if item["concurrency"] == point["concurrency"]]
    figures: Mapping[str, Any] = found
    return figures


def _dodged(lines: Sequence[Line]) -> Tuple[Line, ...]:
    """A little beside one another, so that bars at the same concurrency do not cover each other."""
    shown = [line for line in lines if line.style != FAINT]
    found = []
    for line in lines:
        if line.style == FAINT:
            found.append(line)
            continue
        shift = 2.0 ** ((shown.index(line) - (len(shown) - 1) / 2) * 0.07)
        marks = tuple(Mark(mark.x * shift, mark.y, mark.low, mark.high) for mark in line.marks)
        found.append(Line(line.label, line.style, marks, line.joined))
    return tuple(found)


def _is_wide(lines: Sequence[Line]) -> bool:
    values = [value for line in lines for mark in line.marks for value in (mark.y, mark.high) if value]
    return bool(values) and max(values) > _WIDE * min(values)
