# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of the benchmarks that cost nothing: figures, tables, and what is read from other programs' output."""

from __future__ import annotations

import importlib
import json
import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))
BENCHMARKS = ("fleet_restart", "holder_scan", "look_cost", "module_start", "reclaim_and_wait")


@pytest.fixture
def load(monkeypatch):
    """Import a script as it imports its neighbours."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module
    for name in SCRIPTS:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_can_be_imported(load, name):
    assert load(name).__doc__


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_explains_itself(name):
    done = subprocess.run(
        [sys.executable, str(FOLDER / (name + ".py")), "--help"], check=True, stdout=subprocess.PIPE, text=True
    )
    assert "--json" in done.stdout and "--repeats" in done.stdout


def test_the_readme_names_every_benchmark():
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [name for name in BENCHMARKS if name + ".py" not in text] == []


# ---------------------------------------------------------------------------------------------------------- measure


@pytest.fixture
def report(load):
    measure = load("measure")
    made = measure.Report("Title", remarks=["A remark."])
    made.add("old", [2.0, 4.0, 30.0])
    made.add("new", [0.5, 0.5, 0.1], practice="old", goal=0.6)
    made.add("slow", [8.0], practice="old", goal=0.6, note="why")
    return made


def test_the_median_counts_and_the_spread_is_shown(report):
    old = report.as_dict()["rows"][0]
    assert (old["median"], old["low"], old["high"], old["repeats"]) == (4.0, 2.0, 30.0, 3)


def test_a_row_is_compared_with_the_practice(report):
    assert [row["ratio"] for row in report.as_dict()["rows"]] == [None, 8.0, 0.5]


def test_what_came_too_early_is_not_compared(report):
    report.add("early", [-1.0])
    report.add("right", [0.1], practice="early")
    assert report.as_dict()["rows"][-1]["ratio"] is None


def test_a_goal_is_met_or_missed(report):
    assert [row["met"] for row in report.as_dict()["rows"]] == [None, True, False]


def test_the_table_is_markdown_with_equally_wide_lines(report):
    lines = report.as_text().splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 5 and len({len(line) for line in table}) == 1
    assert "8 times" in table[3] and "< 0.6: met" in table[3] and "< 0.6: MISSED" in table[4]
    assert lines[-1] == "- A remark."


def test_empty_columns_are_left_out(load):
    table = load("measure").table(["a", "b", "c"], [["1", "", "3"], ["4", "", "6"]])
    assert "b" not in table and "a" in table and "c" in table


def test_the_json_of_a_report_is_json(report, capsys):
    report.show(as_json=True)
    assert json.loads(capsys.readouterr().out)["title"] == "Title"


def test_nothing_measured_is_an_error(load):
    with pytest.raises(ValueError):
        load("measure").Summary(())


@pytest.mark.parametrize(
    "value, text", [(0, "0"), (1234.5, "1234"), (12.34, "12.3"), (0.01234, "0.0123"), (2.0, "2"), (0.00000012, "0")]
)
def test_numbers_have_three_digits(load, value, text):
    assert load("measure").number(value) == text


def test_the_machine_is_not_named(load):
    import platform

    text = load("measure").machine()
    assert (platform.node() or "no name") not in text and platform.release() not in text


def test_all_are_measured_in_turn(load):
    calls = []
    seconds = load("measure").in_turn({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 2)
    assert calls == ["a", "b", "a", "b"] and [len(values) for values in seconds.values()] == [2, 2]


@pytest.mark.parametrize("repeats", ["0", "-1", "x"])
def test_a_senseless_number_of_repeats_is_refused(load, repeats, capsys):
    with pytest.raises(SystemExit) as stop:
        load("measure").parser("", 3).parse_args(["--repeats", repeats])
    assert stop.value.code == 2 and "--repeats" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------- other programs' output


def test_pids_are_told_from_letters_and_paths(load):
    assert load("holder_scan").pids_in("  12  345m 7/8 99\n100") == {12, 99, 100}


def test_a_listing_names_the_processes_that_have_a_node_below_their_heading(load):
    text = "/proc/1/fd:\n/proc/22/fd:\nlrwx 3 -> /x/dev/nvidia0\n/proc/3/fd:\n/proc/4/fd:\nlrwx 9 -> /x/dev/nvidiactl\n"
    assert load("holder_scan").pids_in_listing(text) == {22, 4}
    assert load("holder_scan").pids_in_listing("/proc/1/fd:\n") == set()


def test_imports_are_summed_by_package(load):
    module_start = load("module_start")
    trace = "".join(
        "import time: %9d | %10d | %s%s\n" % (microseconds, microseconds, "  " * (number % 3), name)
        for number, (microseconds, name) in enumerate(
            [
                (999, "encodings"),
                (1000, "site"),
                (2000, "json"),
                (3000, "ansible.module_utils.basic"),
                (4000, "fcntl"),
                (5000, "ansible_collections.inferops.sglang.plugins.module_utils.gpu"),
                (1500, "ansible.module_utils.common.text"),
            ]
        )
    )
    seconds = module_start.import_seconds("import time: self [us] | cumulative | imported package\n" + trace)
    assert [round(seconds[package], 6) for package in module_start.PACKAGES] == [0.0065, 0.005, 0.004]


@pytest.mark.parametrize(
    "says_free, after_release, right", [(True, 0.5, True), (True, -0.5, False), (False, 0.5, False), (False, -1, True)]
)
def test_an_answer_is_right_where_it_was_so(load, says_free, after_release, right):
    assert load("reclaim_and_wait").Answer(1.0, after_release, says_free).right is right


def test_the_verdict_counts_the_answers(load):
    bench = load("reclaim_and_wait")
    given = [bench.Answer(1, 1, True), bench.Answer(1, -1, True), bench.Answer(1, 1, False)]
    assert bench.verdict(given) == "says free 2 of 3 times, right 1"
