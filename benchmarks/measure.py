# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Repeated measurements, their median and spread, and the report of a benchmark: a table, or JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, NoReturn, Optional, Sequence


@dataclass(frozen=True)
class Summary:
    """Several values of one quantity: their median, the lowest and the highest."""

    values: Sequence[float]

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError("nothing was measured")

    @property
    def median(self) -> float:
        """The middle value: an outlier of a busy machine does not move it."""
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        """The lowest value."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The highest value."""
        return max(self.values)


@dataclass(frozen=True)
class Row:
    """One line of a report.

    practice names the row it is compared with, by dividing that one's median by this one's; goal is
    the value to stay under, in the same unit.
    """

    name: str
    summary: Summary
    unit: str = "s"
    practice: str = ""
    goal: Optional[float] = None
    note: str = ""

    @property
    def met(self) -> Optional[bool]:
        """Whether the median stays under the goal; None where there is none."""
        return None if self.goal is None else self.summary.median < self.goal


@dataclass
class Report:
    """What one benchmark found."""

    title: str
    rows: List[Row] = field(default_factory=list)
    remarks: List[str] = field(default_factory=list)

    def add(self, name: str, values: Sequence[float], **options: Any) -> None:
        """Add a row; options are those of Row."""
        self.rows.append(Row(name, Summary(tuple(values)), **options))

    def ratio(self, row: Row) -> Optional[float]:
        """How many times as much the practice takes as this row; None where it is compared with nothing."""
        for other in self.rows:
            comparable = min(other.summary.median, row.summary.median) > 0  # a wrong answer comes before its time
            if row.practice and other.name == row.practice and comparable:
                return other.summary.median / row.summary.median
        return None

    def as_dict(self) -> Dict[str, Any]:
        """For JSON."""
        return {
            "title": self.title,
            "machine": machine(),
            "rows": [
                {
                    "name": row.name,
                    "unit": row.unit,
                    "median": row.summary.median,
                    "low": row.summary.low,
                    "high": row.summary.high,
                    "repeats": len(row.summary.values),
                    "practice": row.practice,
                    "ratio": self.ratio(row),
                    "goal": row.goal,
                    "met": row.met,
                    "note": row.note,
                }
                for row in self.rows
            ],
            "remarks": self.remarks,
        }

    def as_text(self) -> str:
        """A Markdown table, with the remarks below it."""
        lines = [
            [
                row.name,
                "%s %s" % (number(row.summary.median), row.unit),
                "%s to %s" % (number(row.summary.low), number(row.summary.high)),
                str(len(row.summary.values)),
                _times(self.ratio(row)),
                "" if row.goal is None else "< %s: %s" % (number(row.goal), "met" if row.met else "MISSED"),
                row.note,
            ]
            for row in self.rows
        ]
        header = ["what", "median", "spread", "repeats", "practice takes", "goal", "note"]
        parts = ["%s (%s)" % (self.title, machine()), "", table(header, lines)]
        if self.remarks:
            parts += ["", *("- " + remark for remark in self.remarks)]
        return "\n".join(parts)

    def show(self, as_json: bool) -> None:
        """Print it."""
        print(json.dumps(self.as_dict(), indent=2) if as_json else self.as_text(), flush=True)


def number(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value == 0:
        return "0"
    digits = 0
    while digits < 6 and abs(value) * 10**digits < 100:
        digits += 1
    text = "%.*f" % (digits, value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def _times(ratio: Optional[float]) -> str:
    return "" if ratio is None else "%s times" % number(ratio)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns are as wide as they need to be; columns with nothing in them are left out."""
    kept = [i for i in range(len(header)) if any(row[i] for row in rows)]
    cells = [[row[i] for i in kept] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(kept))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def machine() -> str:
    """The class of the machine, without its name: cores, kernel series, Python."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        cores = os.cpu_count() or 1
    kernel = platform.release().split(".")[0]
    return "%d cores, %s %s.x, Python %d.%d" % (cores, platform.system(), kernel, *sys.version_info[:2])


def timed(work: Callable[[], object]) -> float:
    """The seconds that it takes once."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def processor_seconds() -> float:
    """What this process and its ended children have used of the processors so far: other work does not add to it."""
    return sum(os.times()[:4])


def in_turn(work: Mapping[str, Callable[[], object]], repeats: int) -> Dict[str, List[float]]:
    """The seconds of each, `repeats` times, in turn, so that a busy moment of the machine hits all alike."""
    seconds: Dict[str, List[float]] = {name: [] for name in work}
    for _round in range(repeats):
        for name, call in work.items():
            seconds[name].append(timed(call))
    return seconds


def parser(description: Optional[str], repeats: int) -> argparse.ArgumentParser:
    """An argument parser with what every benchmark takes."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--repeats", type=_positive, default=repeats, metavar="N", help="default: %(default)s")
    made.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return made


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def command(main: Callable[[], int]) -> NoReturn:
    """Run a benchmark and leave with its exit status.  Also where it is told to stop, it clears up first."""

    def stop(*_signal: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
