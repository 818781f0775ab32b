# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a program of the host with a time limit that holds.

A program that asks a daemon or a driver may hang where no signal reaches it, or leave a child behind
that keeps its output open.  Neither makes this wait longer than it says: what cannot be ended is left
to itself.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import IO, Dict, List, Mapping, Optional, Sequence

# What is kept of each of the two outputs (bytes); the rest is read and dropped.
_MOST_OUTPUT = 4 << 20
# How long the outputs of a program that has ended are still read (seconds): a child of its may hold them.
_DRAIN = 0.2
# How long a killed program is given to be gone (seconds).
_REAP = 1.0
_POLL = 0.01
# A login over SSH may come without the folders of the administrator's programs.
_MORE_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


@dataclass(frozen=True)
class Completed:
    """What became of a program.

    rc: its exit status, -N after signal N, None where it did not end in time.  missing: there is no such
    program.
    """

    rc: Optional[int]
    out: str = ""
    err: str = ""
    timed_out: bool = False
    missing: bool = False

    @property
    def ok(self) -> bool:
        """Whether it ended in time with status 0."""
        return self.rc == 0

    @property
    def reason(self) -> str:
        """What it said last about its failure, in one line."""
        if self.timed_out:
            return "it did not answer in time"
        lines = [line.strip() for line in (self.err or self.out).splitlines() if line.strip()]
        return lines[-1] if lines else "exit status %s" % self.rc


def run(
    argv: Sequence[str],
    timeout: float,
    input: str = "",
    env: Optional[Mapping[str, str]] = None,
    inherit: bool = True,
) -> Completed:
    """Run a program without a shell, in a session of its own, and never raise for what it does.

    timeout is in seconds; a second more may pass until it is given up.  env is added to the environment;
    messages come untranslated.  Without inherit, env is the whole environment, as it is.
    """
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE if input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(env or {}) if inherit else dict(env or {}),
            cwd="/",
            start_new_session=True,
        )
    except FileNotFoundError:
        return Completed(127, err="there is no program %s" % argv[0], missing=True)
    except (OSError, ValueError) as exc:
        return Completed(126, err="%s cannot be started: %s" % (argv[0], exc))
    exchange = _Exchange(process, input.encode())
    try:
        in_time = exchange.finish(time.monotonic() + timeout)
    finally:
        if process.poll() is None:
            _kill(process)
        exchange.close()
    return Completed(
        process.returncode if in_time else None,
        exchange.text(process.stdout),
        exchange.text(process.stderr),
        timed_out=not in_time,
    )


def _environment(added: Mapping[str, str]) -> Dict[str, str]:
    environment = {**os.environ, "LC_ALL": "C", "SYSTEMD_COLORS": "0", **added}
    folders = [folder for folder in environment.get("PATH", "").split(os.pathsep) if folder]
    environment["PATH"] = os.pathsep.join(folders + [folder for folder in _MORE_PATH if folder not in folders])
    return environment


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a program and what it started, and wait a moment: one that cannot be killed is left behind."""
    # Not yet waited for, so that the number is still its own; helpers that it started are in its group.
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + _REAP
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(_POLL)


class _Exchange:
    """Feeds a program its input and collects its outputs."""

    def __init__(self, process: subprocess.Popen[bytes], data: bytes) -> None:
        self._process = process
        self._data = data
        self._kept: Dict[IO[bytes], List[bytes]] = {}
        self._size: Dict[IO[bytes], int] = {}
        self._selector = selectors.DefaultSelector()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                self._kept[stream], self._size[stream] = [], 0
                self._watch(stream, selectors.EVENT_READ)
        if process.stdin is not None:
            self._watch(process.stdin, selectors.EVENT_WRITE)

    def finish(self, deadline: float) -> bool:
        """Go on until the program has ended and its outputs too, or the deadline (monotonic) has passed.

        Returns whether the program ended.
        """
        ended_at: Optional[float] = None
        while True:
            now = time.monotonic()
            if self._process.poll() is not None:
                ended_at = now if ended_at is None else ended_at
                if not self._outputs_open() or now >= min(ended_at + _DRAIN, deadline + _DRAIN):
                    return True
            elif now >= deadline:
                return False
            if self._selector.get_map():
                self._step(0.05)
            else:
                time.sleep(_POLL)

    def text(self, stream: Optional[IO[bytes]]) -> str:
        """What came through one of the outputs."""
        return b"".join(self._kept[stream]).decode("utf-8", "replace") if stream is not None else ""

    def close(self) -> None:
        """Close this end of the pipes."""
        for key in list(self._selector.get_map().values()):
            self._drop(key.fileobj)  # type: ignore[arg-type]
        self._selector.close()

    def _watch(self, stream: IO[bytes], event: int) -> None:
        os.set_blocking(stream.fileno(), False)
        self._selector.register(stream, event)

    def _outputs_open(self) -> bool:
        return any(key.fileobj in self._kept for key in self._selector.get_map().values())

    def _step(self, patience: float) -> None:
        for key, _events in self._selector.select(patience):
            stream: IO[bytes] = key.fileobj  # type: ignore[assignment]
            try:
                more = self._read(stream) if stream in self._kept else self._write(stream)
            except BlockingIOError:
                continue
            except OSError:  # it closed its input before it had read all
                more = False
            if not more:
                self._drop(stream)

    def _read(self, stream: IO[bytes]) -> bool:
        chunk = os.read(stream.fileno(), 1 << 16)
        keep = chunk[: max(0, _MOST_OUTPUT - self._size[stream])]
        self._kept[stream].append(keep)
        self._size[stream] += len(keep)
        return bool(chunk)

    def _write(self, stream: IO[bytes]) -> bool:
        self._data = self._data[os.write(stream.fileno(), self._data) :]
        return bool(self._data)

    def _drop(self, stream: IO[bytes]) -> None:
        self._selector.unregister(stream)
        with contextlib.suppress(OSError):
            stream.close()
