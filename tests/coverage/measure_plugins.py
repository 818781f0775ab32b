# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures with coverage.py each process that may run something of plugins/, however it came about and ends.

tests/coverage/run.py has every Python of the tests' environment import this at its start where MEASURE_PLUGINS
names the file for the data.  coverage.py's own ways do not reach all of them: the modules run in forks of forks, much
of what asks the driver runs in children that are ended by SIGKILL, and most processes that the tests start stand in
for SGLang's, where measuring would cost minutes and find nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import coverage

ROOT = Path(__file__).resolve().parents[2]
# A forked child that is about to be killed first gets so long (seconds) to end by itself, and to write what it ran.
PATIENCE = 0.5

_fork, _kill, _exit = os.fork, os.kill, os._exit


def stands_in() -> bool:
    """Whether this process plays SGLang or a program on a GPU: such a one runs nothing of plugins/."""
    simulators = ("fakegpu.py", "fake_nvidia_smi.py")
    return "sglang_standin" in os.environ.get("PYTHONPATH", "") or any(
        word.endswith(simulators) or word.startswith("sglang.") for word in sys.orig_argv
    )


class Measurement:
    """The measurement of this process, and of those that are forked from it."""

    def __init__(self, data_file: str) -> None:
        self._children: set[int] = set()
        self._written = self._forked = False
        self._coverage = coverage.Coverage(
            config_file=str(ROOT / "pyproject.toml"),
            data_file=data_file,
            data_suffix=True,
            source=[str(ROOT / "plugins")],
            messages=False,
        )
        self._coverage.start()

    def save(self) -> None:
        """Write what was run so far, in a forked child to a file of its own."""
        with contextlib.suppress(Exception):  # a test may have left no descriptor or no folder to write with
            self._coverage.save()
        self._written = True

    def fork(self) -> int:
        """os.fork: the child goes on measuring on top of what its parent has.

        Nothing more is done in it: whoever waits for its answer counts every millisecond.
        """
        if not self._written:  # the parent may be one that is killed in the end, when all is done in its children
            self.save()
        pid = _fork()
        if pid:
            self._children.add(pid)
        else:
            self._children.clear()
            self._forked = True
        return pid

    def kill(self, pid: int, number: int) -> None:
        """os.kill: a child of ours that is to be killed may write what it ran."""
        if number == signal.SIGKILL and pid in self._children:
            self._children.discard(pid)
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline and not _has_ended(pid):
                time.sleep(0.002)
        _kill(pid, number)

    def leave(self, status: int) -> None:
        """os._exit: whoever waits for the end of a child's output need not wait for its figures."""
        if self._forked:
            _close_everything()
        self.save()
        _exit(status)


def _close_everything() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    os.closerange(3, 4096)


def _has_ended(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def begin() -> None:
    """Start, and stay in the process's way wherever it could leave without writing."""
    measurement = Measurement(os.environ["MEASURE_PLUGINS"])
    os.fork, os.kill, os._exit = measurement.fork, measurement.kill, measurement.leave
    atexit.register(measurement.save)


if not stands_in():
    begin()
