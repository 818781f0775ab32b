# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A parent that forks again: on a tree of files, then with a shell in a loop."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs
from ansible_collections.inferops.sglang.plugins.module_utils.system.respawn import new_children
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import FakeProc


@pytest.fixture
def proc(tmp_path):
    return FakeProc(tmp_path)


def found(proc, parents, known=(), since=500):
    return [(item.parent.pid, item.child.pid) for item in new_children(proc.procfs, parents, known, since)]


@pytest.mark.parametrize("listed", [True, False])
def test_children_that_are_new(proc, listed):
    proc.add(50, start=10, children=[60, 61, 62, 63] if listed else None)
    proc.add(60, ppid=50, start=499)  # was there before
    proc.add(61, ppid=50, start=500)
    proc.add(62, ppid=50, start=600)  # known
    proc.add(63, ppid=50, start=600, state="Z")
    proc.add(64, ppid=51, start=600)  # another's
    assert found(proc, {50: 10}, {62}) == [(50, 61)]


@pytest.mark.parametrize("parents", [{1: 10}, {50: 11}, {99: 10}, {}])
def test_a_parent_that_is_init_or_another_by_now_or_gone(proc, parents):
    proc.add(1, ppid=0, start=10, children=[61])
    proc.add(50, start=10, children=[62])
    proc.add(61, ppid=1, start=600)
    proc.add(62, ppid=50, start=600)
    assert found(proc, parents) == []


def test_a_child_that_a_second_thread_started(proc):
    proc.add(50, start=10, threads={50: "S", 51: "S"}, children=[])
    (proc.root / "50" / "task" / "51" / "children").write_text("61 ")
    proc.add(61, ppid=50, start=600)
    assert found(proc, {50: 10}) == [(50, 61)]


def test_the_sentence_names_both(proc):
    proc.add(50, start=10, comm="sh", argv=("/bin/sh", "loop.sh", "--api-key", "verysecret"), uid=1000, children=[61])
    proc.add(61, ppid=50, start=600, argv=("python3", "-m", "sglang.launch_server"))
    (item,) = new_children(proc.procfs, {50: 10}, (), 500)
    assert item.message == "its parent, process 50 (sh, user user1000), has started another one: 61 (python3)"


def test_a_shell_in_a_loop():
    procfs = ProcFs()
    shell = subprocess.Popen(
        ["sh", "-c", "while :; do sleep 60; done"], start_new_session=True, stdout=subprocess.DEVNULL
    )
    try:
        identity = procfs.identity(shell.pid)
        first = _wait(lambda: new_children(procfs, {shell.pid: identity.start_time}, (), identity.start_time))
        since = ProcFs().ticks_now() - 1
        os.kill(first[0].child.pid, signal.SIGKILL)
        second = _wait(
            lambda: new_children(procfs, {shell.pid: identity.start_time}, {first[0].child.pid}, since),
        )
        assert second[0].parent.pid == shell.pid
        assert second[0].child.pid != first[0].child.pid
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


def _wait(look, seconds=5.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        result = look()
        if result:
            return result
        time.sleep(0.01)
    raise AssertionError("nothing was found")
