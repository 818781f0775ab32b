# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ending processes: real ones with short times, and a stubborn one with a clock of our own."""

from __future__ import annotations

import contextlib
import errno
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
        # A test may have buried it already, which Python 3.8 does not look for before it signals.
        with contextlib.suppress(ProcessLookupError):
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


# -- processes whose ends are planned, with a clock of our own


class Planned(ProcFs):
    """Processes that end at a time of the clock, or some time after a signal; None: never by itself."""

    def __init__(self, clock, ends=None, after=None):
        super().__init__()
        self._clock = clock
        self.ends = dict(ends or {})
        self._after = dict(after or {})  # signal: seconds from it to the end
        self.looks = []

    def signalled(self, pid, number):
        if number in self._after:
            self.ends[pid] = min(self.ends.get(pid) or 1e9, self._clock.now + self._after[number])

    def state(self, identity):
        return "S" if self.alive(identity) else ""

    def alive(self, identity):
        self.looks.append(self._clock.now)
        end = self.ends.get(identity.pid)
        return end is None or self._clock.now < end


class PlannedSignaller(Signaller):
    """Signals reach who lives.  denied: signals that may not be sent."""

    def __init__(self, procfs, denied=()):
        super().__init__(procfs)
        self.handles = []
        self._denied = denied

    def open(self, identity):
        if not self._procfs.alive(identity):
            return None
        procfs, denied = self._procfs, self._denied

        class Handle(termination.Handle):
            closed = 0

            def send(self, number):
                if number in denied:
                    raise PermissionError(1, "Operation not permitted")
                if not procfs.alive(identity):
                    return False
                procfs.signalled(identity.pid, number)
                return True

            def close(self):
                self.closed += 1

        self.handles.append(Handle(identity, procfs, None))
        return self.handles[-1]


def planned(pids=(5,), grace=10.0, kill_timeout=60.0, denied=(), **plan):
    """End such processes; returns the outcomes, the clock, and the handles."""
    clock = Clock()
    procfs = Planned(clock, **plan)
    signaller = PlannedSignaller(procfs, denied)
    outcomes = end_processes(
        [ProcessIdentity(pid, 1) for pid in pids], grace, kill_timeout, procfs, signaller, clock, clock.sleep
    )
    return outcomes, clock, signaller.handles


def short(outcomes):
    return [(o.identity.pid, o.action, o.signals, o.state, o.error) for o in outcomes]


def test_one_that_obeys_is_waited_for_no_longer_than_it_needs():
    outcomes, clock, _handles = planned(after={signal.SIGTERM: 3.0})
    assert short(outcomes) == [(5, "terminated", ("SIGTERM",), "", "")]
    assert outcomes[0].seconds == pytest.approx(3.0, abs=0.021) and outcomes[0].seconds >= 3.0
    assert clock.now == pytest.approx(outcomes[0].seconds)


def test_one_that_needs_sigkill_gets_it_when_the_grace_is_over():
    outcomes, _clock, _handles = planned(after={signal.SIGKILL: 1.0})
    assert short(outcomes) == [(5, "killed", ("SIGTERM", "SIGKILL"), "", "")]
    assert outcomes[0].seconds == pytest.approx(11.0, abs=0.021) and outcomes[0].seconds >= 11.0


def test_each_has_the_time_of_its_own_end():
    outcomes, _clock, _handles = planned(pids=(5, 6, 7), ends={5: 2.0, 6: 4.0}, after={signal.SIGKILL: 0.5})
    assert [(o.identity.pid, o.action) for o in outcomes] == [(5, "terminated"), (6, "terminated"), (7, "killed")]
    assert [o.seconds for o in outcomes] == pytest.approx([2.0, 4.0, 10.5], abs=0.021)


def test_without_a_pidfd_the_end_is_looked_for_often_and_never_past_the_deadline():
    clock = Clock()
    procfs = Planned(clock)
    end_processes([ProcessIdentity(5, 1)], 0.05, 0.03, procfs, PlannedSignaller(procfs), clock, clock.sleep)
    times = sorted({round(at, 6) for at in procfs.looks})
    assert times == [0, 0.02, 0.04, 0.05, 0.07, 0.08]


def test_a_process_named_twice_is_ended_once():
    outcomes, _clock, handles = planned(pids=(6, 6, 5), after={signal.SIGTERM: 0.0})
    assert [o.identity.pid for o in outcomes] == [6, 5] and len(handles) == 2


def test_one_that_is_gone_and_named_twice_is_asked_for_once():
    clock = Clock()
    procfs = Planned(clock, ends={5: 0.0})
    outcomes = end_processes([ProcessIdentity(5, 1)] * 2, 1, 1, procfs, PlannedSignaller(procfs), clock, clock.sleep)
    assert short(outcomes) == [(5, "vanished", (), "", "")] and outcomes[0].seconds == 0
    assert len(procfs.looks) == 1


def test_one_that_ends_before_the_signal_reaches_it_has_vanished():
    class Late(PlannedSignaller):
        def open(self, identity):
            handle = super().open(identity)
            self._procfs.ends[identity.pid] = 0.0
            return handle

    clock = Clock()
    procfs = Planned(clock)
    outcomes = end_processes([ProcessIdentity(5, 1)], 1, 1, procfs, Late(procfs), clock, clock.sleep)
    assert short(outcomes) == [(5, "vanished", (), "", "")]


def test_one_that_ends_between_the_two_signals_ended_by_the_first():
    # At 10 s the grace is over, and so is the process.
    class Slow(Planned):
        def alive(self, identity):
            # The last look of the first round is a moment before its end.
            return self._clock.now < 10 or (self._clock.now == 10 and not self.ended)

        ended = False

    class Sender(PlannedSignaller):
        def open(self, identity):
            procfs = self._procfs

            class Handle(termination.Handle):
                def send(self, number):
                    procfs.ended = number == signal.SIGKILL
                    return not procfs.ended

            return Handle(identity, procfs, None)

    clock = Clock()
    procfs = Slow(clock)
    outcomes = end_processes([ProcessIdentity(5, 1)], 10, 60, procfs, Sender(procfs), clock, clock.sleep)
    assert short(outcomes) == [(5, "terminated", ("SIGTERM",), "", "")]
    assert outcomes[0].seconds == pytest.approx(10)


def test_one_that_may_not_be_signalled_is_told_with_why_and_keeps_nobody_waiting():
    outcomes, clock, _handles = planned(
        pids=(5, 6), ends={5: None}, after={signal.SIGTERM: 1.0}, denied=(signal.SIGTERM,), kill_timeout=2.0
    )
    # SIGTERM was refused and nobody waited; SIGKILL was not.
    assert [(o.identity.pid, o.action, o.signals) for o in outcomes] == [
        (5, "survived", ("SIGKILL",)),
        (6, "survived", ("SIGKILL",)),
    ]
    assert outcomes[0].error == "SIGTERM: Operation not permitted"
    assert clock.now == 0


def test_one_that_may_not_be_signalled_and_ends_meanwhile_has_vanished():
    class Refused(PlannedSignaller):
        def open(self, identity):
            procfs = self._procfs

            class Handle(termination.Handle):
                def send(self, number):
                    procfs.ends[identity.pid] = 0.0
                    raise PermissionError(1, "Operation not permitted")

            return Handle(identity, procfs, None)

    clock = Clock()
    procfs = Planned(clock)
    outcomes = end_processes([ProcessIdentity(5, 1)], 1, 1, procfs, Refused(procfs), clock, clock.sleep)
    assert short(outcomes) == [(5, "vanished", (), "", "")]


def test_every_handle_is_closed_whatever_becomes_of_its_process():
    _outcomes, _clock, handles = planned(pids=(5, 6), ends={5: 2.0}, grace=1, kill_timeout=2)
    assert [handle.closed for handle in handles] == [1, 1]


def test_every_handle_is_closed_when_a_look_fails():
    class Broken(Planned):
        def alive(self, identity):
            if self._clock.now > 0:
                raise OSError("no")
            return super().alive(identity)

    clock = Clock()
    procfs = Broken(clock)
    signaller = PlannedSignaller(procfs)
    with pytest.raises(OSError):
        end_processes([ProcessIdentity(5, 1)], 1, 1, procfs, signaller, clock, clock.sleep)
    assert [handle.closed for handle in signaller.handles] == [1]


# -- opening


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.EINVAL])
def test_where_there_is_no_pidfd_to_be_had_kill_does(start, monkeypatch, number):
    def refuse(_pid, _flags):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)
    monkeypatch.setattr(signal, "pidfd_send_signal", None, raising=False)
    target = start(SLEEP)
    handle = Signaller(PROCFS).open(target)
    assert handle.descriptor is None
    (outcome,) = end_processes([target], grace=10, kill_timeout=10, procfs=PROCFS)
    assert outcome.action == "terminated"


def test_any_other_failure_to_open_is_no_reason_to_signal_by_number(start, monkeypatch):
    def refuse(_pid, _flags):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)
    monkeypatch.setattr(signal, "pidfd_send_signal", None, raising=False)
    target = start(SLEEP)
    with pytest.raises(OSError) as stop:
        Signaller(PROCFS).open(target)
    assert stop.value.errno == errno.ENOMEM
    assert PROCFS.alive(target)


def test_a_descriptor_of_somebody_elses_process_is_given_back(start, way):
    target = start(SLEEP)
    before = len(os.listdir("/proc/self/fd"))
    assert Signaller(PROCFS).open(ProcessIdentity(target.pid, target.start_time - 1)) is None
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_handle_tells_whether_its_signal_reached_anybody(start, way):
    target = start(SLEEP)
    handle = Signaller(PROCFS).open(target)
    assert (handle.descriptor is None) == (not hasattr(os, "pidfd_open"))
    assert handle.send(signal.SIGKILL) is True
    os.waitpid(target.pid, 0)
    assert handle.send(signal.SIGTERM) is False
    handle.close()
    handle.close()  # once is enough, and twice no harm
    assert handle.descriptor is None


def test_a_process_that_ends_right_before_kill_was_not_reached(start, monkeypatch):
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    handle = Signaller(PROCFS).open(start(SLEEP))

    def gone(_pid, _number):
        raise ProcessLookupError

    monkeypatch.setattr(os, "kill", gone)
    assert handle.send(signal.SIGTERM) is False


def test_one_that_nothing_ends_is_told_with_its_state_and_no_error():
    outcomes, clock, _handles = planned(grace=1.0, kill_timeout=2.0)
    assert short(outcomes) == [(5, "survived", ("SIGTERM", "SIGKILL"), "S", "")]
    assert outcomes[0].seconds == clock.now == pytest.approx(3.0)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="this Python has no pidfd")
def test_with_a_pidfd_the_kernel_tells_the_end_and_nobody_sleeps(start, monkeypatch):
    monkeypatch.setattr(termination, "_RECHECK", 60.0)

    class Counting(ProcFs):
        looks = 0

        def alive(self, identity):
            self.looks += 1
            return super().alive(identity)

    def never(_seconds):
        raise AssertionError("looked instead of waiting")

    procfs = Counting()

    outcomes = end_processes([start(IGNORE_TERM), start(SLEEP)], grace=0.3, kill_timeout=30, procfs=procfs, sleep=never)
    assert [o.action for o in outcomes] == ["killed", "terminated"]
    assert max(o.seconds for o in outcomes) < 20
    assert procfs.looks < 50


class PickySignaller(PlannedSignaller):
    """PID 5 may not be signalled, all others may."""

    def open(self, identity):
        self._denied = (signal.SIGTERM, signal.SIGKILL) if identity.pid == 5 else ()
        return super().open(identity)


def test_one_that_may_not_be_signalled_keeps_nobody_else_from_being_ended():
    clock = Clock()
    clock.now = 100.0  # a clock that does not begin with this task
    procfs = Planned(clock, after={signal.SIGTERM: 1.0})
    targets = [ProcessIdentity(pid, 1) for pid in (5, 6)]
    outcomes = end_processes(targets, 10, 60, procfs, PickySignaller(procfs), clock, clock.sleep)
    assert [(o.action, o.signals) for o in outcomes] == [("survived", ()), ("terminated", ("SIGTERM",))]
    assert outcomes[1].seconds == pytest.approx(1.0, abs=0.021)
    assert outcomes[0].seconds == pytest.approx(1.0, abs=0.021)


def test_one_that_has_ended_has_no_state_though_a_zombie_is_left():
    class Reaped(Planned):
        def state(self, identity):
            return "Z"

    clock = Clock()
    procfs = Reaped(clock, ends={5: 0.5})
    signaller = PlannedSignaller(procfs, denied=(signal.SIGTERM, signal.SIGKILL))
    late = ProcessIdentity(6, 1)
    outcomes = end_processes([ProcessIdentity(5, 1), late], 0, 1, procfs, signaller, clock, clock.sleep)
    assert [(o.action, o.state) for o in outcomes] == [("survived", "Z"), ("survived", "Z")]
    clock.now = 0.0
    signaller = PickySignaller(procfs)
    outcomes = end_processes([ProcessIdentity(5, 1), late], 0, 1, procfs, signaller, clock, clock.sleep)
    assert short(outcomes) == [(5, "vanished", (), "", ""), (6, "survived", ("SIGKILL",), "Z", "")]
