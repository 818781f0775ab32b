# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/examples: reports of real sweeps are whole, linked, and what this version makes of their results."""

from __future__ import annotations

import json
import pathlib

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.analysis import analyse
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.csv_lines import csv_of
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.source import from_results

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
FILES = ("report.html", "results.csv", "results.json")


def wrong_with(folder, page):
    """What is wrong with an example that a page is to link."""
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        return [f"{folder.name} lacks {name}" for name in missing]
    document, problems = from_results(str(folder / "results.json"))
    stored = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    found = [f"{folder.name}: {problem}" for problem in problems]
    if stored != {**document, "analysis": json.loads(json.dumps(analyse(document)))}:
        found.append(f"{folder.name}: results.json is of another version; make it again with sglang_sweep_report")
    if (folder / "results.csv").read_text(encoding="utf-8") != csv_of(document):
        found.append(f"{folder.name}: results.csv is not that of results.json")
    if f"](examples/{folder.name}/report.html)" not in page:
        found.append(f"docs/sweep-report.md does not link examples/{folder.name}/report.html")
    return found


def test_examples_are_whole_and_linked():
    page = (DOCS / "sweep-report.md").read_text(encoding="utf-8")
    folders = sorted(path for path in (DOCS / "examples").glob("*") if path.is_dir())
    assert [problem for folder in folders for problem in wrong_with(folder, page)] == []


def test_an_example_that_is_not_whole_is_noticed(tmp_path):
    assert len(wrong_with(tmp_path, "")) == len(FILES)
    for name, content in (
        ("report.html", ""),
        ("results.csv", "x"),
        ("results.json", '{"format": 1, "configurations": []}'),
    ):
        (tmp_path / name).write_text(content)
    assert len(wrong_with(tmp_path, "")) == 3
