# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a report is made of is read from a sweep's folder or a file, and what cannot be read is named."""

from __future__ import annotations

import json
import os

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.document import shaped
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.source import (
    SourceError,
    from_folder,
    from_results,
)
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.sweep_report import samples


def test_a_folder_is_the_results_that_it_holds(tmp_path):
    raw = samples.usual()
    samples.write_folder(raw, tmp_path)
    assert from_folder(str(tmp_path)) == (shaped(raw)[0], [])


def test_torn_files_are_named_and_the_rest_is_there(tmp_path):
    raw = samples.usual()
    samples.write_folder(raw, tmp_path)
    keys = [row["key"] for row in raw["configurations"]]
    (tmp_path / "points" / keys[1] / "8.json").write_text('{"concurrency": 8, "sta')
    (tmp_path / "points" / keys[1] / "16.json").write_text("[]")
    (tmp_path / "points" / keys[2] / "1.json").write_bytes(b"\xff\xfe")
    document, problems = from_folder(str(tmp_path))
    assert [len(row["points"]) for row in document["configurations"]] == [9, 7, 8, 9, 9, 0]
    assert len(problems) == 3
    for problem, (place, why) in zip(
        sorted(problems),
        sorted(
            [
                (f"points/{keys[1]}/16.json was left out", "it holds no object"),
                (f"points/{keys[1]}/8.json was left out", "no JSON, or torn"),
                (f"points/{keys[2]}/1.json was left out", "no text"),
            ]
        ),
    ):
        assert place in problem and why in problem


def test_a_sweep_that_has_just_begun(tmp_path):
    raw = samples.document({**samples.row("a", 1, levels=()), "state": "pending"})
    samples.write_folder(raw, tmp_path)
    (tmp_path / "configurations" / (raw["configurations"][0]["key"] + ".json")).unlink()
    document, problems = from_folder(str(tmp_path))
    assert document["configurations"][0]["state"] == "pending" and problems == []


def test_a_folder_of_something_else_is_refused(tmp_path):
    for folder, words in ((tmp_path / "none", "there is no folder"), (tmp_path, "holds no sweep")):
        with pytest.raises(SourceError, match=f"^dir: .*{words}.*Give the folder of a sweep"):
            from_folder(str(folder))


def test_results_are_read_back(tmp_path):
    file = tmp_path / "results.json"
    raw = samples.usual()
    file.write_text(json.dumps({**raw, "analysis": {"old": 1}}))
    assert from_results(str(file)) == (shaped(raw)[0], [])


@pytest.mark.parametrize(
    "content, words",
    [
        (None, "No such file"),
        (b"{", "no JSON"),
        (b"\xff", "no text"),
        (b"[]", "no object"),
        (b'{"format": 7, "configurations": []}', "its format is 7"),
        (b"[" * 100_000, "no JSON"),
    ],
)
def test_what_is_no_results_is_refused(tmp_path, content, words):
    file = tmp_path / "results.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SourceError, match=f"^results: .*{words}.*Give the results.json of a sweep"):
        from_results(str(file))


def test_a_pipe_keeps_nobody_waiting(tmp_path):
    os.mkfifo(tmp_path / "results.json")
    with pytest.raises(SourceError, match="not a regular file"):
        from_results(str(tmp_path / "results.json"))
