# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A crowd of processes with many descriptors, among them a few that hold a device node in ways that are easy to miss.

`Population` starts a process of its own that forks the crowd and ends it, by PID, as soon as its standard input is
closed: also when the benchmark is interrupted or killed.  Every member dies with that process, too.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Callable, Dict, List

import paths

DESCRIPTORS = 20
THREADS = 8  # of every tenth process
OPENED = "nvidia0"
MAPPED = "nvidia1"
_PR_SET_PDEATHSIG = 1
_CLONE_FILES = 0x400


class Population:
    """Context manager: the crowd, the device nodes and who holds them.

    pids are those of the plain processes; holders are (kind, pid); dev is the folder of the device nodes.
    """

    def __init__(self, processes: int, descriptors: int = DESCRIPTORS) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="population-")
        self.dev = Path(self._folder.name) / "dev"
        state = Path(self._folder.name) / "gpus"
        fakegpu = paths.fakegpu()
        fakegpu.setup(2, state)
        self.nodes = fakegpu.make_nodes(state, str(self.dev))
        # A shared mapping of /dev/zero, which the nodes are, would lose its name: this one is a file.
        (self.dev / MAPPED).unlink()
        (self.dev / MAPPED).write_bytes(bytes(mmap.PAGESIZE))
        self._server = subprocess.Popen(
            [sys.executable, __file__, str(processes), str(descriptors), str(self.dev)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Ctrl-C on the terminal must not end it before it has ended the others.
            start_new_session=True,
        )
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        if not line:
            self.close()
            raise OSError("the processes could not be started")
        started: Dict[str, Any] = json.loads(line)
        self.pids: List[int] = started["pids"]
        self.holders: Dict[str, int] = started["holders"]

    def __enter__(self) -> Population:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything, and wait until it has ended."""
        for stream in (self._server.stdin, self._server.stdout):
            if stream is not None:
                stream.close()
        self._server.wait()
        self._folder.cleanup()


# ------------------------------------------------------------------------------------------- in the process apart


def _sleep_for_ever() -> None:
    while True:
        signal.pause()


def _crowd_member(number: int, descriptors: int) -> None:
    """Open pipes, sockets and files until there are as many descriptors as wanted; then sleep."""
    kept: List[Any] = []
    left = descriptors - 3  # standard input, output and error
    while left >= 5:
        kept += [*os.pipe(), *socket.socketpair(), os.open(__file__, os.O_RDONLY)]
        left -= 5
    kept += [os.open("/dev/null", os.O_RDWR) for _number in range(left)]
    if number % 10 == 0:
        threading.stack_size(64 << 10)
        for _thread in range(THREADS - 1):
            threading.Thread(target=threading.Event().wait, daemon=True).start()
    _sleep_for_ever()


def _hold_open(dev: str) -> None:
    os.open(os.path.join(dev, OPENED), os.O_RDWR)
    _sleep_for_ever()


def _hold_mapped(dev: str) -> None:
    """Map it as CUDA does, shared, and close it.  (The mmap module would keep a descriptor open.)"""
    descriptor = os.open(os.path.join(dev, MAPPED), os.O_RDWR)
    call = ctypes.CDLL(None, use_errno=True).mmap
    call.restype = ctypes.c_void_p
    call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    address = call(None, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, descriptor, 0)
    os.close(descriptor)
    if address != ctypes.c_void_p(-1).value:
        _sleep_for_ever()


def _hold_in_thread(dev: str) -> None:
    """Open it in a second thread, whose table of descriptors is its own."""

    def thread() -> None:
        if ctypes.CDLL(None).unshare(_CLONE_FILES) != 0:
            os._exit(1)
        os.open(os.path.join(dev, OPENED), os.O_RDWR)
        threading.Event().wait()

    threading.Thread(target=thread, daemon=True).start()
    _sleep_for_ever()


def _hold_without_leader(dev: str) -> None:
    """Open it, and let only a second thread live on."""
    os.open(os.path.join(dev, OPENED), os.O_RDWR)
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    ctypes.CDLL(None).pthread_exit(None)


HOLDERS: Dict[str, Callable[[str], None]] = {
    "descriptor": _hold_open,
    "map": _hold_mapped,
    "thread": _hold_in_thread,
    "thread of a dead leader": _hold_without_leader,
}


class _Server:
    """Starts processes, says who they are, and ends them."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._pids: List[int] = []
        # The answer goes to what is standard output now; the members have /dev/null there, and as their input.
        self._answer = os.dup(1)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)

    def start(self, work: Callable[[], None]) -> int:
        """Fork a process that does this; returns its PID."""
        pid = os.fork()
        if pid:
            self._pids.append(pid)
            return pid
        try:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            os.closerange(3, 32)
            os.dup2(1, 0)
            if os.getppid() == self._pid:
                work()
        finally:
            os._exit(1)

    def serve(self, processes: int, descriptors: int, dev: str) -> None:
        """Start all, say so, and end them when standard input ends."""
        try:
            holders = {kind: self.start(functools.partial(hold, dev)) for kind, hold in HOLDERS.items()}
            pids = [self.start(functools.partial(_crowd_member, number, descriptors)) for number in range(processes)]
            with os.fdopen(self._answer, "w") as stream:
                stream.write(json.dumps({"pids": pids, "holders": holders}) + "\n")
            while os.read(0, 1 << 10):
                pass
        finally:
            for pid in self._pids:
                os.kill(pid, signal.SIGKILL)
            for pid in self._pids:
                os.waitpid(pid, 0)


def main() -> None:
    """Be the process that has the crowd: see `Population`."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("processes", type=int)
    parser.add_argument("descriptors", type=int, help="of each process")
    parser.add_argument("dev", help="folder with the device nodes")
    options = parser.parse_args()
    _Server().serve(options.processes, options.descriptors, options.dev)


if __name__ == "__main__":
    main()
