# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ending processes: real ones with short times, and a stubborn one with a clock of our own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.system import termination
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity, ProcFs
from ansible_collections.inferops.sglang.plugins.module_utils.system.termination import Signaller, end_processes

PROCFS = ProcFs()
SLEEP = "import time; print('up', flush=True); time.sleep(60)"
IGNORE_TERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP


@pytest.fixture
def start():
    children = []

    def run(code):
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        child.stdout.readline()
        children.append(child)
        return PROCFS.identity(child.pid)

    yield run
    for child in children:
        child.kill()
        child.wait()
        child.stdout.close()


@pytest.fixture(params=["pidfd", "kill"])
def way(request, monkeypatch):
    """Both ways to signal: with pidfd, and as on an old kernel or Python without it."""
    if request.param == "kill":
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    elif not hasattr(os, "pidfd_open"):
        pytest.skip("this Python has no pidfd")


def test_sigterm_is_enough(start, way):
    target = start(SLEEP)
    (outcome,) = end_processes([target], grace=10, kill_timeout=10, procfs=PROCFS)
    assert (outcome.identity, outcome.action, outcome.signals) == (target, "terminated", ("SIGTERM",))
    assert not PROCFS.alive(target)


def test_sigkill_after_the_grace(start, way):
    stubborn, meek = start(IGNORE_TERM), start(SLEEP)
    outcomes = end_processes([stubborn, meek], grace=0.3, kill_timeout=10, procfs=PROCFS)
    assert [(o.action, o.signals) for o in outcomes] == [
        ("killed", ("SIGTERM", "SIGKILL")),
        ("terminated", ("SIGTERM",)),
    ]
    # Each has its own time: the meek one did not need the stubborn one's grace.
    assert outcomes[1].seconds < 0.3 <= outcomes[0].seconds


def test_no_grace_goes_straight_to_sigkill(start, way):
    (outcome,) = end_processes([start(SLEEP)], grace=0, kill_timeout=10, procfs=PROCFS)
    assert (outcome.action, outcome.signals) == ("killed", ("SIGKILL",))


def test_a_stopped_process_dies_of_sigkill(start, way):
    target = start(SLEEP)
    os.kill(target.pid, signal.SIGSTOP)
    while PROCFS.state(target) != "T":  # until then a SIGTERM would still be served first
        time.sleep(0.01)
    (outcome,) = end_processes([target], grace=0.2, kill_timeout=10, procfs=PROCFS)
    assert outcome.action == "killed"


def test_a_process_whose_leader_ended_first_is_ended_too(start, way):
    # The main thread ends alone: the process shows as a zombie and goes on in its other thread.
    target = start(
        "import ctypes, platform, threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "print('up', flush=True)\n"
        "ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[platform.machine()], 0)\n"
    )
    deadline = time.monotonic() + 10
    while PROCFS.state(target) != "Z" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert PROCFS.alive(target)
    (outcome,) = end_processes([target], grace=0, kill_timeout=10, procfs=PROCFS)
    assert outcome.action == "killed"
    assert not PROCFS.alive(target)


def test_another_process_of_the_same_pid_is_left_alone(start, way):
    target = start(SLEEP)
    impostor = ProcessIdentity(target.pid, target.start_time - 1)
    (outcome,) = end_processes([impostor], grace=1, kill_timeout=1, procfs=PROCFS)
    assert (outcome.action, outcome.signals) == ("vanished", ())
    assert PROCFS.alive(target)


def test_a_dead_process_has_vanished(way):
    child = subprocess.Popen(["true"])
    identity = PROCFS.identity(child.pid)
    child.wait()
    (outcome,) = end_processes([identity], grace=1, kill_timeout=1, procfs=PROCFS)
    assert outcome.action == "vanished"


def test_nothing_to_do():
    assert end_processes([], grace=1, kill_timeout=1, procfs=PROCFS) == []


class Stubborn(ProcFs):
    """Processes that no signal ends (as in an uninterruptible wait in the driver)."""

    def __init__(self, state="D"):
        super().__init__()
        self._state = state

    def state(self, identity):
        return self._state


class Denied(Signaller):
    """A signaller without permission."""

    def open(self, identity):
        class Handle(termination.Handle):
            def send(self, number):
                raise PermissionError(1, "Operation not permitted")

        return Handle(identity, PROCFS, None)


class Deaf(Signaller):
    """Signals arrive and change nothing."""

    def open(self, identity):
        class Handle(termination.Handle):
            def send(self, number):
                return True

        return Handle(identity, PROCFS, None)


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        assert seconds > 0
        self.now += seconds


def test_an_unkillable_process_is_given_up_in_bounded_time():
    clock = Clock()
    (outcome,) = end_processes(
        [ProcessIdentity(5, 1)],
        grace=10,
        kill_timeout=60,
        procfs=Stubborn("D"),
        signaller=Deaf(PROCFS),
        clock=clock,
        sleep=clock.sleep,
    )
    assert (outcome.action, outcome.signals, outcome.state) == ("survived", ("SIGTERM", "SIGKILL"), "D")
    assert outcome.seconds == pytest.approx(70)


def test_no_permission_is_reported_and_costs_no_waiting():
    clock = Clock()
    (outcome,) = end_processes(
        [ProcessIdentity(5, 1)],
        grace=10,
        kill_timeout=60,
        procfs=Stubborn("S"),
        signaller=Denied(PROCFS),
        clock=clock,
        sleep=clock.sleep,
    )
    assert (outcome.action, outcome.signals) == ("survived", ())
    assert "SIGKILL" in outcome.error and "not permitted" in outcome.error
    assert clock.now == 0


def test_descriptors_are_given_back(start, way):
    before = len(os.listdir("/proc/self/fd"))
    end_processes([start(SLEEP), start(IGNORE_TERM)], grace=0.1, kill_timeout=5, procfs=PROCFS)
    # the two children's pipes are the test's own
    assert len(os.listdir("/proc/self/fd")) == before + 2
