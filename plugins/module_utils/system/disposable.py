# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a process needs that may have to be abandoned.

A call into the driver, or a look at a process that is stuck in it, may sleep for ever where no signal
arrives.  So such calls are made in a child that can be given up: it dies with its parent where it
can, and keeps nothing open that somebody waits for.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from typing import Callable, NoReturn

_PR_SET_PDEATHSIG = 1
_REAP_POLL = 0.002  # seconds between two looks whether a dismissed child has ended


def run_as_child(parent: int, work: Callable[[], None], *wanted: int) -> NoReturn:
    """The whole life of a child after fork: only the `wanted` descriptors stay open."""
    try:
        die_with(parent)
        keep_only(*wanted)
        work()
    except BaseException:  # pylint: disable=broad-except
        os._exit(1)
    os._exit(0)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, however that ends."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):  # the end of its input ends it too, only not inside a call
        pass
    if os.getppid() != parent:  # it ended in between
        os._exit(0)


def keep_only(*wanted: int) -> None:
    """Give up every inherited descriptor but these.

    A child that cannot be killed must not keep the task's output open: whoever started the task waits
    for the end of that output.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        if number not in wanted:
            os.dup2(nowhere, number)
    try:
        numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        numbers = list(range(3, 1024))
    for number in numbers:
        if number > 2 and number not in wanted:
            try:
                os.close(number)
            except OSError:  # the descriptor of the listing itself
                pass


def kill_and_reap(pid: int, patience: float) -> bool:
    """SIGKILL a child and wait at most `patience` seconds for its end; False: it has to be abandoned."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    return reap(pid, patience)


def reap(pid: int, patience: float = 0.0) -> bool:
    """Whether a child has ended, after waiting at most `patience` seconds.  Leaves no zombie behind."""
    deadline = time.monotonic() + patience
    while True:
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                return True
        except ChildProcessError:  # reaped already
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_REAP_POLL)
