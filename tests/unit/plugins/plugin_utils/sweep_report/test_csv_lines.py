# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CSV: a line for each repeat, that any reader of CSV reads, and no formula of somebody else."""

from __future__ import annotations

import csv
import io

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.csv_lines import COLUMNS, csv_of
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.document import shaped
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.sweep_report import samples


def lines(raw):
    text = csv_of(shaped(raw)[0])
    return list(csv.DictReader(io.StringIO(text))), text


def test_a_line_for_each_repeat():
    found, text = lines(samples.usual())
    assert text.startswith(",".join(COLUMNS) + "\n")
    assert len(found) == 5 * len(samples.LEVELS) * 3 + 1
    first, last = found[0], found[-1]
    assert (first["configuration"], first["baseline"], first["concurrency"], first["repeat"]) == (
        "baseline",
        "true",
        "1",
        "1",
    )
    assert float(first["output_throughput"]) == samples.repeat(0, 1, 0)["output_throughput"]
    assert float(first["concurrency_reached"]) == 0.99 and first["accept_length"] == ""
    # One that did not start has its reason, and no figure.
    assert (last["configuration"], last["state"], last["reason"]) == ("eagle3-steps9", "failed", "out_of_memory")
    assert last["concurrency"] == last["output_throughput"] == ""


def test_a_point_that_failed_is_a_line():
    point = samples.point(1, 4, repeats=0, state="failed", reason="server_died")
    found, _text = lines(samples.document(samples.row("a", 1, points=[point])))
    (line,) = found
    assert (line["concurrency"], line["state"], line["reason"], line["repeat"]) == ("4", "failed", "server_died", "")


def test_no_cell_is_a_formula():
    names = ["=1+1", "+1", "-1", "@x", 'plain, with "quotes" and\na line']
    found, _text = lines(samples.document(*(samples.row(name, 1, levels=(1,), repeats=1) for name in names)))
    shown = [line["configuration"] for line in found]
    assert shown == ["'=1+1", "'+1", "'-1", "'@x", names[-1]]


def test_hostile_text_stays_in_its_cell():
    found, text = lines(samples.hostile())
    assert "\x1b" not in text and "secret" not in text
    assert {len(line) for line in found} == {len(COLUMNS)} and all(None not in line for line in found)
