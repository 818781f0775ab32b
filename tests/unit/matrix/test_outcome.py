# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table, the counts, and a summary that the run of all tests counts in the same way."""

from __future__ import annotations

import importlib.util
import pathlib

import pytest
from outcome import FAILED, OK, Count, Outcome, read_report, skip_reasons, skipped, table, total, write_summary

ROOT = pathlib.Path(__file__).resolve().parents[3]
OUTCOMES = (
    Outcome("target-3.8-core-2.19", OK, "Python 3.8.18", Count(passed=1200, skipped=3), 61.4),
    skipped("target-3.14-core-newest", "there is no Python 3.14"),
    Outcome("controller-2.18", FAILED, "Python 3.11.7: exit status 1", Count(passed=9, failed=1), 3.0),
)
REPORT = """<testsuites><testsuite name="pytest" errors="1" failures="2" skipped="3" tests="10">
<testcase><skipped message="no root"/></testcase><testcase><skipped message="no root"/></testcase>
<testcase><skipped message="no gcc"/></testcase></testsuite></testsuites>"""


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "report.xml"
    path.write_text(REPORT)
    return path


def test_reading_a_report(report):
    assert read_report(report) == Count(passed=4, failed=3, skipped=3)


def test_no_report(tmp_path):
    assert read_report(tmp_path / "none.xml") == Count()
    assert skip_reasons(tmp_path / "none.xml") == []


def test_each_reason_once(report):
    assert skip_reasons(report) == ["no root", "no gcc"]


def test_table():
    assert table(OUTCOMES) == [
        "cell                     result   tests                   seconds  with, or why not",
        "target-3.8-core-2.19     ok       1200 passed, 3 skipped       61  Python 3.8.18",
        "target-3.14-core-newest  skipped                                   there is no Python 3.14",
        "controller-2.18          FAILED   9 passed, 1 failed            3  Python 3.11.7: exit status 1",
    ]


def test_total_counts_a_skipped_cell():
    assert str(total(OUTCOMES)) == "1209 passed, 1 failed, 4 skipped"


def test_summary_is_counted_by_the_run_of_all_tests(tmp_path):
    path = tmp_path / "reports" / "matrix-ends.xml"
    write_summary(OUTCOMES, path)
    spec = importlib.util.spec_from_file_location("run_checks", ROOT / "tests/tooling/run_checks.py")
    run_checks = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(__import__("sys").modules, "run_checks", run_checks)
        spec.loader.exec_module(run_checks)
    count = run_checks.count_of(run_checks.Result("matrix-ends", 1, 0.0), path)
    assert (count.passed, count.failed, count.skipped) == (1209, 1, 4)


def test_summary_says_why(tmp_path):
    path = tmp_path / "matrix.xml"
    write_summary(OUTCOMES, path)
    assert skip_reasons(path) == ["there is no Python 3.14"]
