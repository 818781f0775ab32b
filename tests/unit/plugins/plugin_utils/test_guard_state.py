# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of the guard, and who is at work on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils import guard_state
from ansible_collections.inferops.sglang.plugins.plugin_utils.guard_decision import Memory
from ansible_collections.inferops.sglang.plugins.plugin_utils.guard_rules import GuardError
from ansible_collections.inferops.sglang.plugins.plugin_utils.guard_state import Run, State

NOW = 1_800_000_000.0
HERE = os.uname().nodename


@pytest.fixture
def path(tmp_path):
    return guard_state.prepare(str(tmp_path / "guard.json"), own=False)


def test_it_comes_back_as_it_was_written(path):
    assert guard_state.read(path) == State()
    state = State({"chat": Memory("baseline", 2, NOW, "eagle3", NOW - 5)}, Run("node", 7, "123", NOW))
    guard_state.write(path, state)
    assert guard_state.read(path) == state
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert os.listdir(os.path.dirname(path)) == ["guard.json"]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"format": 2, "groups": {}}',
        '{"format": 1}',
        '{"format": 1, "groups": []}',
        '{"format": 1, "groups": {"a": {"agreed": "3"}}}',
        '{"format": 1, "groups": {"a": {"agreed": true}}}',
        '{"format": 1, "groups": {"a": {"seen": NaN}}}',
        '{"format": 1, "groups": {}, "run": {"pid": "1"}}',
    ],
)
def test_what_it_did_not_write_is_refused(path, content):
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(content)
    with pytest.raises(GuardError, match=r"sglang_guard_state: .* was not written by the guard \("):
        guard_state.read(path)


def test_fields_of_later_and_earlier_versions_do_no_harm(path):
    content = {"format": 1, "groups": {"a": {"agreed": 1, "more": 5, "seen": 7}}}
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(content, stream)
    assert guard_state.read(path) == State({"a": Memory(agreed=1, seen=7.0)})


def test_a_folder_of_ones_own_is_made_and_another_must_be_there(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = guard_state.prepare(guard_state.default_path(), own=True)
    assert path == str(tmp_path / "state" / "inferops" / "sglang_guard.json")
    assert os.stat(os.path.dirname(path)).st_mode & 0o077 == 0
    with pytest.raises(GuardError, match=r"sglang_guard_state: .* there is no folder"):
        guard_state.prepare(str(tmp_path / "none" / "guard.json"), own=False)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(GuardError, match="sglang_guard_state: the folder of"):
        guard_state.prepare(guard_state.default_path(), own=True)


def test_one_run_at_a_time_has_the_file(path):
    waited = []
    with guard_state.locked(path):
        with pytest.raises(GuardError, match="another run has had"):
            with guard_state.locked(path, waited.append):
                pass
    assert sum(waited) == pytest.approx(10.0)
    with guard_state.locked(path):
        pass


def test_a_lock_that_is_a_link_is_not_followed(path, tmp_path):
    os.symlink(tmp_path / "elsewhere", path + ".lock")
    with pytest.raises(GuardError, match="cannot be opened"):
        with guard_state.locked(path):
            pass
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("run", "now", "busy"),
    [
        (None, NOW, False),
        (Run(), NOW, False),
        (Run(HERE, 50, "1000", NOW), NOW, True),
        (Run(HERE, 50, "999", NOW), NOW, False),  # another process has its number now
        (Run(HERE, 51, "1000", NOW), NOW, False),  # gone
        (Run(HERE, 60, "1000", NOW), NOW, False),  # this very run
        (Run(HERE, 50, "", NOW), NOW + 60, True),
        (Run(HERE, 50, "", NOW), NOW + 3601, False),
        (Run("elsewhere", 60, "1000", NOW), NOW + 60, True),
        (Run("elsewhere", 60, "1000", NOW), NOW + 3601, False),
        (Run("elsewhere", 60, "1000", NOW), NOW - 60, False),
    ],
)
def test_who_is_at_work(run, now, busy):
    alive = {50: "1000", 60: "1000"}
    assert guard_state.is_at_work(run, 60, now, lambda pid: alive.get(pid, "")) is busy


def test_a_process_that_has_ended_is_not_at_work():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    run = guard_state.this_run(NOW, process.pid)
    assert run.start and guard_state.is_at_work(run, os.getpid(), NOW)
    process.communicate()
    assert not guard_state.is_at_work(run, os.getpid(), NOW)
