# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pythons that the machine lacks are fetched, or it is told why they cannot be."""

from __future__ import annotations

import sys

import pytest
import run_matrix
import uv
from environments import Unavailable
from pythons import Absent, Interpreter

OLD, NEW = (3, 8), (3, 14)
ANSWERS = (
    "#!/bin/sh\n"
    """echo '{"implementation": "CPython", "full": "3.14.2", "version": [3, 14], "missing": []}'\n"""
)


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A uv that fetches 3.14 and nothing else; `calls` has how it was called."""
    calls = tmp_path / "calls"
    bin_folder = tmp_path / "cpython-3.14.2-linux" / "bin"
    file = tmp_path / "uv"
    file.write_text(
        "#!/bin/sh\n"
        f'echo "$@" >> {calls}\n'
        f'mkdir -p "$UV_PYTHON_INSTALL_DIR" && cp -r {bin_folder.parent} "$UV_PYTHON_INSTALL_DIR/"\n'
        'echo "error: Failed to install cpython-3.8.20-linux\n  cause: dns error" >&2\nexit 1\n'
    )
    bin_folder.mkdir(parents=True)
    python = bin_folder / "python3.14"
    python.write_text(ANSWERS)
    for made in (file, python):
        made.chmod(0o755)
    monkeypatch.setattr(uv.shutil, "which", lambda name: str(file))
    return calls


def test_what_comes_and_what_does_not(program, tmp_path):
    found = uv.fetch([OLD, NEW], tmp_path / "work", sys.executable)
    assert found[OLD] == Absent("uv cannot fetch it: Failed to install cpython-3.8.20-linux: dns error")
    assert isinstance(found[NEW], Interpreter)
    assert found[NEW].full == "3.14.2"
    assert found[NEW].path.startswith(str(tmp_path / "work"))


def test_all_are_asked_for_at_once(program, tmp_path):
    uv.fetch([OLD, NEW], tmp_path / "work", sys.executable)
    assert program.read_text().splitlines() == ["python install --no-bin 3.8 3.14"]


def test_a_machine_that_cannot_have_uv(tmp_path, monkeypatch):
    def pip(*_words):
        raise Unavailable("No matching distribution found for uv")

    monkeypatch.setattr(uv.shutil, "which", lambda name: None)
    monkeypatch.setattr(uv, "pip", pip)
    reason = Absent("uv cannot be had: No matching distribution found for uv")
    assert uv.fetch([OLD, NEW], tmp_path, sys.executable) == {OLD: reason, NEW: reason}


def test_a_uv_that_hangs(program, tmp_path, monkeypatch):
    monkeypatch.setattr(uv, "SECONDS", 0.2)
    (tmp_path / "uv").write_text("#!/bin/sh\nexec sleep 60\n")
    found = uv.fetch([OLD], tmp_path / "work", sys.executable)
    assert found[OLD] == Absent("uv cannot fetch it: no answer within 0.2 s")


def test_only_what_is_missing_is_fetched_and_both_reasons_are_told(monkeypatch):
    own = Interpreter("/python", (3, 11), "3.11.7")
    asked = []

    def fetch(versions, folder, python):
        asked.extend(versions)
        return {OLD: Absent("uv cannot fetch it: dns error"), NEW: Interpreter("/new", NEW, "3.14.2")}

    there = {OLD: Absent("there is no Python 3.8"), NEW: Absent("there is no Python 3.14"), (3, 11): own}
    monkeypatch.setattr(run_matrix.pythons, "find", lambda *_arguments: dict(there))
    monkeypatch.setattr(run_matrix.uv, "fetch", fetch)
    found = run_matrix.interpreters(list(there), fetch=True)
    assert asked == [OLD, NEW]
    assert found[OLD] == Absent("there is no Python 3.8; uv cannot fetch it: dns error")
    assert (found[NEW].full, found[3, 11]) == ("3.14.2", own)
    assert run_matrix.interpreters(list(there), fetch=False) == there


class TestComplaint:
    OUTPUT = (
        "error: Failed to install cpython-3.8.20-linux\n  cause: Request failed\n  cause: dns error\n"
        "error: Failed to install cpython-3.14.10-linux\n  Caused by: disk full\n"
    )

    def test_of_a_version(self):
        assert uv.complaint(self.OUTPUT, "3.8") == "Failed to install cpython-3.8.20-linux: dns error"
        assert uv.complaint(self.OUTPUT, "3.14") == "Failed to install cpython-3.14.10-linux: disk full"

    def test_of_all(self):
        assert uv.complaint("error: no answer within 120 s", "3.8") == "no answer within 120 s"

    def test_nothing(self):
        assert uv.complaint("\n", "3.8") == "it says nothing"
