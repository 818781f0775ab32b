# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Children that may have to be abandoned: how they end, and what they keep."""

from __future__ import annotations

import ctypes
import os
import signal
import time

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.system import disposable


@pytest.fixture
def child():
    """Fork a child with some work; returns its PID.  What is left of it ends with the test."""
    pids = []

    def start(work, *wanted, parent=None):
        pid = os.fork()
        if pid == 0:
            disposable.run_as_child(os.getppid() if parent is None else parent, work, *wanted)
        pids.append(pid)
        return pid

    yield start
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def status_of(pid):
    return os.WEXITSTATUS(os.waitpid(pid, 0)[1])


def fail():
    raise KeyboardInterrupt


def test_how_a_child_ends_tells_whether_its_work_was_done(child):
    assert status_of(child(lambda: None)) == 0
    assert status_of(child(fail)) == 1


def test_a_child_never_goes_on_as_its_parent(child):
    def leave():
        raise SystemExit(7)

    assert status_of(child(leave)) == 1


def test_a_child_keeps_only_what_it_is_to_have(child):
    kept, given_up = os.pipe(), os.pipe()
    read, write = kept

    def tell():
        there = []
        for number in (0, 1, 2, *given_up, *kept):
            try:
                os.fstat(number)
                there.append(number)
            except OSError:
                pass
        target = [os.readlink("/proc/self/fd/%d" % number) for number in (0, 1, 2)]
        os.write(write, repr((there, target)).encode())

    pid = child(tell, write)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        said = stream.read().decode()
    assert status_of(pid) == 0
    for number in given_up:
        os.close(number)
    assert said == repr(([0, 1, 2, write], ["/dev/null"] * 3))


def test_a_standard_stream_that_is_wanted_stays(child):
    read, write = os.pipe()

    def tell():
        os.write(1, b"said")

    saved = os.dup(1)
    try:
        os.dup2(write, 1)
        pid = child(tell, 1)
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        os.close(write)
    with os.fdopen(read, "rb") as stream:
        assert stream.read() == b"said"
    assert status_of(pid) == 0


def test_without_proc_the_usual_numbers_are_given_up(child):
    read, write = os.pipe()
    extra = os.open(os.devnull, os.O_RDONLY)

    def unreadable(_path):
        raise PermissionError

    def work():
        os.listdir = unreadable
        disposable.keep_only(write)
        try:
            os.fstat(extra)
        except OSError:
            os.write(write, b"gone")

    # Called in the child's own work, so that only it sees the host without /proc.
    pid = child(work, write, extra)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        assert stream.read() == b"gone"
    os.close(extra)
    assert status_of(pid) == 0


def test_a_child_whose_parent_has_ended_does_nothing(child):
    read, write = os.pipe()
    pid = child(lambda: os.write(write, b"done"), write, parent=os.getpid() + 1)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        assert stream.read() == b""
    assert status_of(pid) == 0


def test_a_kernel_that_kills_nobody_with_its_parent_is_no_failure(child, monkeypatch):
    class Without:
        def __getattr__(self, name):
            raise AttributeError(name)

    monkeypatch.setattr(ctypes, "CDLL", lambda _name: Without())
    assert status_of(child(lambda: None)) == 0


def test_a_child_ends_with_its_parent(child):
    read, write = os.pipe()
    # The parent forks a child that would stay for a minute, and ends.
    middle = os.fork()
    if middle == 0:
        own = os.getpid()
        if os.fork() == 0:
            disposable.run_as_child(own, lambda: (os.write(write, b"up"), time.sleep(60)), write)
        os.close(write)
        while not os.read(read, 2):
            pass
        os._exit(0)
    os.close(write)
    assert status_of(middle) == 0
    began = time.monotonic()
    with os.fdopen(read, "rb") as stream:
        assert stream.read() == b""  # the end of the pipe is the end of the last who could write to it
    assert time.monotonic() - began < 30


def test_a_child_is_killed_and_reaped(child):
    pid = child(lambda: time.sleep(60))
    assert disposable.kill_and_reap(pid, 10)
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    assert disposable.kill_and_reap(pid, 0)  # nothing is left to be done


def test_one_that_no_signal_ends_is_given_up_in_time(child, monkeypatch):
    pid = child(lambda: time.sleep(60))
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", lambda _pid, _number: None)
        began = time.monotonic()
        assert not disposable.kill_and_reap(pid, 0.05)
        assert time.monotonic() - began >= 0.05
    assert not disposable.reap(pid)
    assert disposable.kill_and_reap(pid, 10)


def test_one_that_has_ended_is_reaped_without_waiting(child):
    pid = child(lambda: None)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert disposable.reap(pid)
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
