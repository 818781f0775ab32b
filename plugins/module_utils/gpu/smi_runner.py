# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs nvidia-smi with a deadline.

It may get stuck in the driver where no signal reaches it.  When the deadline passes it is killed and,
if even that does not end it, left behind: it is never waited for without a limit.  Its output goes
into pipes of our own, so that one that stays does not keep the task's output open.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import Dict, Mapping, Optional, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import smi_errors
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Failure, GpuError

# Where it is besides the PATH, which a task may have cut short: WSL, containers, Container-Optimized OS.
_FOLDERS = (
    "/usr/bin",
    "/usr/local/bin",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/bin",
    "/var/lib/nvidia/bin",
    "/run/nvidia/driver/usr/bin",
)
# Bytes of one answer.  27 KB a GPU is usual.
_MOST_OUTPUT = 64 << 20
_CHUNK = 1 << 16
_KILL_PATIENCE = 0.1  # seconds that a killed one gets to end


@dataclass(frozen=True)
class Answer:
    """What one run gave: exit status (negative: ended by that signal) and the bytes it wrote."""

    status: int
    output: bytes
    errors: bytes

    @property
    def words(self) -> str:
        """All it wrote, as text; it tells errors on either of its outputs."""
        return (self.output + b"\n" + self.errors).decode("utf-8", "replace").strip()


class Leftover:
    """A process that did not end when it was killed."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid

    def gone(self) -> bool:
        """Whether it has ended meanwhile; leaves no zombie behind."""
        return self._process.poll() is not None


class Hung(Exception):
    """No answer in time.  leftover is the process where it could not be ended, else None."""

    def __init__(self, leftover: Optional[Leftover]) -> None:
        super().__init__("nvidia-smi did not answer")
        self.leftover = leftover


class NvidiaSmi:
    """One executable."""

    def __init__(self, path: str, environment: Optional[Mapping[str, str]] = None) -> None:
        self._path = path
        self._environment = child_environment(os.environ if environment is None else environment)

    def ask(self, arguments: Sequence[str], timeout: float) -> Answer:
        """Run it and return what it says, whatever its exit status.

        timeout is in seconds.  Raises Hung, or GpuError where it cannot be started or does not stop writing.
        """
        deadline = time.monotonic() + timeout
        process = self._start(arguments)
        try:
            output, errors = _collect(process, deadline)
            status = process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Hung(_end(process)) from None
        except BaseException:
            _end(process)
            raise
        finally:
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        return Answer(status, output, errors)

    def _start(self, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                [self._path, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
                # So that a wrapper script is killed together with what it runs, and Ctrl-C reaches only us.
                start_new_session=True,
            )
        except (FileNotFoundError, NotADirectoryError, PermissionError) as exc:
            raise GpuError(smi_errors.missing("at %s cannot be run: %s" % (self._path, exc.strerror))) from exc
        except OSError as exc:  # no process, no memory or no descriptors left; or no program
            raise GpuError(
                Failure(
                    "no_process",
                    "Cannot start a process for %s: %s" % (self._path, exc),
                    "Check the host's limits, and that this file is a program for this machine",
                )
            ) from exc


def child_environment(own: Mapping[str, str]) -> Dict[str, str]:
    """The module's environment, without what changes the answer.

    LD_LIBRARY_PATH stays: the driver's library may be there.
    """
    environment = {name: value for name, value in own.items() if name != "CUDA_VISIBLE_DEVICES"}
    environment["LC_ALL"] = "C"
    return environment


def find_nvidia_smi(path: Optional[str] = None) -> str:
    """The executable's path.  path are the folders to search first, by default those of PATH.

    Raises GpuError where there is none.
    """
    folders = os.environ.get("PATH", os.defpath) if path is None else path
    found = shutil.which(smi_errors.TOOL, path=os.pathsep.join([folders, *_FOLDERS]))
    if found is None:
        raise GpuError(smi_errors.missing("is not installed: it is neither in PATH nor in the usual folders"))
    return found


def _collect(process: subprocess.Popen[bytes], deadline: float) -> Sequence[bytes]:
    """All that it writes on its two outputs.  Raises TimeoutExpired, or GpuError where it is too much."""
    if process.stdout is None or process.stderr is None:
        raise ValueError("both outputs must be pipes")
    received = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    poller = select.poll()
    for descriptor in received:
        poller.register(descriptor, select.POLLIN)
    waiting = len(received)
    while waiting:
        left = deadline - time.monotonic()
        if left <= 0:
            raise subprocess.TimeoutExpired(process.args, 0.0)
        for descriptor, _event in poller.poll(max(1, int(left * 1000))):
            chunk = os.read(descriptor, _CHUNK)
            if not chunk:
                poller.unregister(descriptor)
                waiting -= 1
            received[descriptor] += chunk
        if sum(map(len, received.values())) > _MOST_OUTPUT:
            raise GpuError(smi_errors.output_failure("wrote more than %d MiB" % (_MOST_OUTPUT >> 20)))
    return [bytes(received[process.stdout.fileno()]), bytes(received[process.stderr.fileno()])]


def _end(process: subprocess.Popen[bytes]) -> Optional[Leftover]:
    """Kill it with all it started; the process itself where it does not end within a moment."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    try:
        process.wait(_KILL_PATIENCE)
    except subprocess.TimeoutExpired:
        return Leftover(process)
    return None
