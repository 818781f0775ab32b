# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How cells ended: counts, the table at the end, and a summary that other tools read."""

from __future__ import annotations

import pathlib
from dataclasses import dataclass, field
from typing import List, Sequence
from xml.etree import ElementTree

OK, FAILED, SKIPPED = "ok", "FAILED", "skipped"


@dataclass
class Count:
    """How many tests passed, failed and were skipped."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other: Count) -> None:
        """Add another count to this one."""
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


@dataclass
class Outcome:
    """How one cell ended.

    text says with which versions it ran, or why it did not run; tests counts pytest's tests, and a cell without any as
    one. reasons are those of the tests that were skipped within it.
    """

    cell: str
    result: str
    text: str
    tests: Count = field(default_factory=Count)
    seconds: float = 0.0
    reasons: Sequence[str] = ()


def skipped(cell: str, reason: str) -> Outcome:
    """A cell that cannot be had here."""
    return Outcome(cell, SKIPPED, reason, Count(skipped=1))


def read_report(report: pathlib.Path) -> Count:
    """Count the tests of one of pytest's reports; nothing where there is none."""
    count = Count()
    if report.exists():
        for suite in ElementTree.parse(report).iter("testsuite"):
            failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            skips = int(suite.get("skipped", 0))
            count.add(Count(int(suite.get("tests", 0)) - failed - skips, failed, skips))
    return count


def skip_reasons(report: pathlib.Path) -> List[str]:
    """Why tests were skipped, each reason once."""
    if not report.exists():
        return []
    reasons = [element.get("message", "") for element in ElementTree.parse(report).iter("skipped")]
    return list(dict.fromkeys(reasons))


def table(outcomes: Sequence[Outcome]) -> List[str]:
    """One line for each cell, under a heading."""
    rows = [("cell", "result", "tests", "seconds", "with, or why not")]
    for outcome in outcomes:
        ran = outcome.result != SKIPPED
        rows.append(
            (
                outcome.cell,
                outcome.result,
                _tests(outcome.tests) if ran else "",
                f"{outcome.seconds:.0f}" if ran else "",
                outcome.text,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return [
        f"{cell:{widths[0]}}  {result:{widths[1]}}  {tests:{widths[2]}}  {seconds:>{widths[3]}}  {text}".rstrip()
        for cell, result, tests, seconds, text in rows
    ]


def _tests(count: Count) -> str:
    words = [f"{count.passed} passed"]
    words += [f"{number} {word}" for number, word in ((count.failed, "failed"), (count.skipped, "skipped")) if number]
    return ", ".join(words)


def total(outcomes: Sequence[Outcome]) -> Count:
    """All tests of all cells; a skipped cell counts as one skipped test."""
    count = Count()
    for outcome in outcomes:
        count.add(outcome.tests)
    return count


def write_summary(outcomes: Sequence[Outcome], path: pathlib.Path) -> None:
    """Write one report in pytest's form, with a suite for each cell."""
    root = ElementTree.Element("testsuites")
    for outcome in outcomes:
        tests = outcome.tests
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=outcome.cell,
            tests=str(tests.passed + tests.failed + tests.skipped),
            failures=str(tests.failed),
            errors="0",
            skipped=str(tests.skipped),
            time=f"{outcome.seconds:.3f}",
        )
        case = ElementTree.SubElement(suite, "testcase", classname="matrix", name=outcome.cell)
        if outcome.result == SKIPPED:
            ElementTree.SubElement(case, "skipped", message=outcome.text)
        elif outcome.result == FAILED:
            ElementTree.SubElement(case, "failure", message=outcome.text)
    path.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
