# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real children, with a reader that misbehaves as drivers do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import GpuError, SystemInfo
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.nvml_child import Child
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.nvml_session import NvmlSession
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import (
    FakeClock,
    NVMLError,
    identity,
    reading,
    uuid,
)
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import gone

TIMEOUT = 0.2


class Reader:
    """Misbehaves on the GPUs whose numbers are files in a folder: there, a child finds out about changes."""

    def __init__(self, folder, count=4):
        self.folder = folder
        self.count = count

    def _told(self, what):
        return (self.folder / what).exists()

    def open(self):
        if self._told("open-hangs"):
            time.sleep(60)
        if self._told("open-fails"):
            raise NVMLError(18)
        return SystemInfo("580.1", "13", self.count - self._told("one-less"))

    def read(self, index):
        if self._told("ignore-%d" % index):
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        if self._told("hang-%d" % index):
            time.sleep(60)
        if self._told("crash-%d" % index):
            os.kill(os.getpid(), signal.SIGSEGV)
        named = identity(index + 1) if self._told("renumbered") else identity(index)
        return reading(index, used=os.getpid(), identity=named)

    def identify(self, index):
        return self.read(index)


@pytest.fixture
def told(tmp_path):
    """Switch a misbehaviour on: told("hang-1"); and off: told("hang-1", False)."""

    def switch(what, on=True):
        path = tmp_path / what
        path.touch() if on else path.unlink()

    return switch


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def session(tmp_path, clock):
    with NvmlSession(lambda: Reader(tmp_path), TIMEOUT, clock.monotonic) as value:
        yield value


def all_gone(session, pids):
    """Whether these are gone; what a loaded machine needed too long to end is reaped when it is closed again."""
    deadline = time.monotonic() + 10
    while not all(gone(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
        session.close()
    return all(gone(pid) for pid in pids)


def test_one_child_answers_everything(session):
    first = session.read([0, 2])
    second = session.read([1])
    assert [r.index for r in first] == [0, 2]
    assert len(session.pids) == 1
    assert {r.memory.used_mib for r in first + second} == set(session.pids)
    assert os.getpid() not in session.pids


def test_a_hung_gpu_does_not_hide_the_others(session, told):
    told("hang-1")
    began = time.monotonic()
    got = session.read([0, 1, 2])
    assert time.monotonic() - began < 5 * TIMEOUT
    assert [r.failure.code if r.failure else "" for r in got] == ["", "hung", ""]
    assert len(session.pids) == 2
    assert gone(min(session.pids, key=lambda pid: pid != got[0].memory.used_mib))


def test_a_hung_gpu_costs_time_only_once(session, told):
    told("hang-1")
    session.read([1])
    began = time.monotonic()
    for _repeat in range(5):
        assert session.read([1])[0].failure.code == "hung"
    assert time.monotonic() - began < TIMEOUT


def test_a_hung_gpu_keeps_its_name(session, told):
    session.identify([1])
    told("hang-1")
    assert session.read([1])[0].uuid == uuid(1)


def test_a_gpu_that_recovers_is_read_again_later(session, told, clock):
    told("hang-1")
    session.read([1])
    told("hang-1", False)
    clock.sleep(29)
    assert session.read([1])[0].failure.code == "hung"
    clock.sleep(2)
    assert session.read([1])[0].failure is None


def test_a_gpu_that_does_not_recover_is_asked_less_and_less(session, told, clock):
    told("hang-1")
    session.read([1])
    clock.sleep(31)
    session.read([1])
    children = len(session.pids)
    clock.sleep(31)
    session.read([1])
    assert len(session.pids) == children
    clock.sleep(31)
    session.read([1])
    session.read([0])
    assert len(session.pids) > children


def test_a_gpu_that_recovered_starts_with_a_clean_slate(session, told, clock):
    for _twice in range(2):
        told("hang-1")
        session.read([1])
        told("hang-1", False)
        clock.sleep(31)
        assert session.read([1])[0].failure is None


def test_a_host_without_a_process_to_spare_is_told(session, told, monkeypatch):
    told("hang-1")
    session.read([1])

    def no_more():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(os, "fork", no_more)
    assert session.read([0])[0].failure.code == "no_process"
    assert os.listdir("/proc/self/fd") == before
    monkeypatch.undo()
    assert session.read([0])[0].failure is None


def test_a_crash_of_the_library_is_told(session, told):
    told("crash-2")
    got = session.read([2, 3])
    assert got[0].failure.code == "crashed"
    assert got[1].failure is None


def test_another_gpu_under_the_same_index_is_refused(session, told):
    session.read([0])
    told("renumbered")
    failure = session.read([0])[0].failure
    assert (failure.code, failure.permanent) == ("identity_changed", True)
    assert uuid(0) in failure.message
    assert uuid(1) in failure.message


def test_a_changed_number_of_gpus_is_refused(session, told):
    told("hang-1")
    told("one-less")
    session.read([1])
    failure = session.read([0])[0].failure
    assert (failure.code, failure.permanent) == ("count_changed", True)


def test_nvml_that_cannot_start_is_an_error_with_its_reason(tmp_path, told):
    told("open-fails")
    with pytest.raises(GpuError) as stop:
        NvmlSession(lambda: Reader(tmp_path), TIMEOUT)
    assert stop.value.failure.code == "library_mismatch"


def test_nvml_that_hangs_at_the_start_is_an_error(tmp_path, told):
    told("open-hangs")
    began = time.monotonic()
    with pytest.raises(GpuError) as stop:
        NvmlSession(lambda: Reader(tmp_path), TIMEOUT)
    assert stop.value.failure.code == "hung"
    assert time.monotonic() - began < 5 * TIMEOUT


def test_a_reader_that_cannot_even_be_made_is_an_error():
    def broken():
        raise RuntimeError("no")

    with pytest.raises(GpuError) as stop:
        NvmlSession(broken, TIMEOUT)
    assert stop.value.failure.code == "crashed"


def test_closing_leaves_nothing_behind(tmp_path, told):
    with NvmlSession(lambda: Reader(tmp_path), TIMEOUT) as session:
        told("hang-1")
        session.read([0, 1, 2])
        pids = session.pids
    assert len(pids) == 2
    assert all_gone(session, pids)
    session.close()  # a second time does no harm


def test_a_child_that_ignores_everything_but_sigkill_is_ended(tmp_path, told):
    told("ignore-1")
    told("hang-1")
    with NvmlSession(lambda: Reader(tmp_path), TIMEOUT) as session:
        assert session.read([1])[0].failure.code == "hung"
        pids = session.pids
    assert all_gone(session, pids)


def test_a_child_that_cannot_be_killed_is_abandoned(tmp_path, monkeypatch):
    child = Child(lambda: Reader(tmp_path))
    real_kill = os.kill
    monkeypatch.setattr(os, "kill", lambda _pid, _number: None)
    os.kill(child.pid, signal.SIGKILL)  # as in an uninterruptible sleep: nothing happens
    real_kill(child.pid, signal.SIGSTOP)
    began = time.monotonic()
    assert child.dismiss(0.0) is False
    assert time.monotonic() - began < 1.0
    real_kill(child.pid, signal.SIGKILL)
    assert child.reap(2.0) is True


def test_the_child_keeps_neither_the_tasks_output_nor_other_files_open(tmp_path):
    held = os.open(str(tmp_path), os.O_RDONLY)
    with NvmlSession(lambda: Reader(tmp_path), TIMEOUT) as session:
        (pid,) = session.pids
        links = [os.readlink("/proc/%d/fd/%s" % (pid, fd)) for fd in os.listdir("/proc/%d/fd" % pid)]
    os.close(held)
    assert sorted(link.split(":")[0] for link in links) == ["/dev/null"] * 3 + ["pipe"] * 2


def test_the_child_ends_with_its_parent(tmp_path):
    script = (
        "import os, sys, time, pathlib\n"
        "from ansible_collections.inferops.sglang.plugins.module_utils.gpu.nvml_child import Child\n"
        "class Reader:\n"
        "    def open(self): time.sleep(60)\n"
        "child = Child(Reader)\n"
        "os.write(child._requests, b'{}\\n')\n"
        "print(child.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, timeout=30, check=False
    )
    pid = int(run.stdout)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            with open("/proc/%d/stat" % pid) as stat:
                if stat.read().rpartition(")")[2].split()[0] == "Z":  # nobody reaps it in a bare container
                    return
        except FileNotFoundError:
            return
        time.sleep(0.02)
    pytest.fail("the child outlived its parent")
