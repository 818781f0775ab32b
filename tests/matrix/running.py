# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the commands of cells, each with a log and a time limit, and ends them all when it is told to stop."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
from threading import RLock
from typing import Mapping, Sequence, Set

# A cell that hangs is to be told as such, before the one who waits gives up. Seconds.
LIMIT = 3600
# What a command may take to clean up after SIGINT. Seconds.
GRACE = 30


class Commands:
    """Runs commands in sessions of their own."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        # Stopping may come in the thread that has it.
        self._lock = RLock()
        self._running: Set[subprocess.Popen] = set()
        self._stopping = False

    def run(self, words: Sequence[str], environment: Mapping[str, str], log: pathlib.Path, limit: float = LIMIT) -> str:
        """Run one to its end: "" if all is well, or how it ended."""
        with log.open("wb") as output, self._started(words, environment, output) as process:
            try:
                status = process.wait(limit)
                return f"exit status {status}" if status else ""
            except subprocess.TimeoutExpired:
                self._ask(process)
                self._see_ended(process)
                return f"did not end within {limit:g} s"
            finally:
                with self._lock:
                    self._running.discard(process)

    def _started(self, words, environment, output) -> subprocess.Popen:
        with self._lock:
            self.check()
            process = subprocess.Popen(
                list(words),
                cwd=self._folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._running.add(process)
            return process

    def check(self) -> None:
        """Start nothing more once it was told to stop. Raises SystemExit."""
        if self._stopping:
            raise SystemExit(1)

    def stop(self, *_signal) -> None:
        """End what runs, let it clean up, and end."""
        # One that is being started is known when its thread gives the lock back, and not before.
        with self._lock:
            self._stopping = True
            running = tuple(self._running)
        for process in running:
            self._ask(process)
        for process in running:
            self._see_ended(process)
        sys.exit(1)

    def _ask(self, process: subprocess.Popen) -> None:
        # At this signal pytest ends the processes of its tests; at SIGTERM it would leave them.
        self._signal(process, signal.SIGINT)

    def _see_ended(self, process: subprocess.Popen) -> None:
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            pass
        # Also what the command itself left behind.
        self._signal(process, signal.SIGKILL)

    @staticmethod
    def _signal(process: subprocess.Popen, number: int) -> None:
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
