# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control daemons of CUDA's Multi-Process Service, through which its clients and servers are ended.

Several clients share one server process.  SIGKILL for a client with work on the GPU can take the server,
and with it everybody else's work: the daemon is asked to end that work first.

What the daemon answers was seen on driver 580.  Its exit status is 0 also where it refuses;
terminate_client answers with a last line of 0 or 1.  It ends the client's work on the GPU, after which
each of its CUDA calls fails; the process itself stays, in the daemon's list too, until it is ended.

Source: nvidia-cuda-mps-control(1).
"""

from __future__ import annotations

import math
import os
import stat
import time
from dataclasses import dataclass
from typing import Callable, Collection, Dict, List, Optional, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import Completed
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import (
    MOST_ARGUMENTS,
    ProcessIdentity,
    ProcessInfo,
    ProcFs,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import Runner

PROGRAM = "nvidia-cuda-mps-control"

_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
_DEFAULT_PIPES = "/tmp/nvidia-mps"
_QUERY_TIMEOUT = 5.0
_GONE_TIMEOUT = 2.0  # how long a daemon that has quit may take to be gone (seconds)
_POLL = 0.02


@dataclass(frozen=True)
class Daemon:
    """A control daemon: the program to speak to it with, and the folder of its pipes."""

    identity: ProcessIdentity
    user: str
    program: str
    pipes: str
    namespace: str  # of PIDs; "" where it is ours

    @property
    def label(self) -> str:
        """What it is, for sentences."""
        return "the MPS control daemon %d of user %s" % (self.identity.pid, self.user)


@dataclass(frozen=True)
class Client:
    """A process that computes through a server.  The inner numbers are those of the daemon's PID namespace."""

    pid: int
    server: int
    daemon: Daemon
    inner_pid: int
    inner_server: int


def safe_to_run(path: str) -> bool:
    """Whether a program of the host may be run: nobody but root and this user could have changed it."""
    try:
        found = os.stat(path)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid in (0, os.geteuid()) and not found.st_mode & 0o022


class MpsControl:
    """Speaks to all control daemons of this host, one for each user or folder of pipes.

    problems has a sentence for each that did not answer when it was asked last.
    """

    def __init__(
        self,
        run: Runner,
        procfs: ProcFs,
        safe: Callable[[str], bool] = safe_to_run,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._run = run
        self._procfs = procfs
        self._safe = safe
        self._clock = clock
        self._sleep = sleep
        self._clients: Dict[int, Client] = {}
        self.problems: List[str] = []

    def daemons(self) -> List[Daemon]:
        """The control daemons that run now, in ascending order of PID."""
        found = []
        for pid in self._procfs.pids():
            if os.path.basename(self._link(pid, "exe")).split(" ")[0] != PROGRAM:
                continue
            process = self._procfs.read(pid)
            # Without an option it is somebody's prompt to the daemon, not the daemon.
            if process is not None and not process.dead and len(process.argv) > 1:
                found.append(self._daemon(process))
        return found

    def clients(self) -> Dict[int, int]:
        """PID of each client to that of its server, from every daemon; asks them anew."""
        self.problems = []
        self._clients = {}
        for daemon in self.daemons():
            listed = self._ask(daemon, "get_server_list", _QUERY_TIMEOUT)
            if not listed.ok:
                self.problems.append("%s does not tell its clients: %s" % (daemon.label, listed.reason))
                continue
            numbers = self._numbering(daemon)
            for server in _pids(listed.out):
                for client in _pids(self._ask(daemon, "get_client_list %d" % server, _QUERY_TIMEOUT).out):
                    pid = numbers.get(client) if daemon.namespace else client
                    if pid is not None:
                        outer = numbers.get(server, 0) if daemon.namespace else server
                        self._clients[pid] = Client(pid, outer, daemon, client, server)
        return {pid: client.server for pid, client in sorted(self._clients.items())}

    def daemon_of(self, client_pid: int) -> Optional[Daemon]:
        """The daemon that lists a client, as of the last look."""
        client = self._clients.get(client_pid)
        return client.daemon if client is not None else None

    def terminate(self, client_pid: int, timeout: float) -> str:
        """Have the work of one client on the GPU ended; "" or why that failed.  The process is still to be ended.

        timeout is in seconds.
        """
        if client_pid not in self._clients:
            self.clients()
        client = self._clients.get(client_pid)
        if client is None:
            return "; ".join(["no MPS control daemon lists a client %d" % client_pid, *self.problems])
        command = "terminate_client %d %d" % (client.inner_server, client.inner_pid)
        completed = self._ask(client.daemon, command, timeout)
        lines = completed.out.split("\n")
        words = [line.strip() for line in lines if line.strip()]
        if completed.ok and words in ([], ["0"]):
            return ""
        said = " ".join(word for word in words if word != "1") or completed.reason
        return "%s did not end the work of its client %d: %s" % (client.daemon.label, client_pid, said)

    def shutdown_server(self, server_pid: int, timeout: float) -> str:
        """Have one server shut down; "" or why that failed.  timeout is in seconds."""
        for client in self._clients.values():
            if client.server == server_pid:
                completed = self._ask(client.daemon, "shutdown_server %d" % client.inner_server, timeout)
                if completed.ok and not completed.out.strip():
                    return ""
                said = completed.out.strip() or completed.reason
                return "%s did not shut its server %d down: %s" % (client.daemon.label, server_pid, said)
        return "no MPS control daemon has a server %d with clients" % server_pid

    def quit(self, timeout: float, only: Collection[int] = ()) -> str:
        """Have the daemons quit with their servers; "" when all are gone, else why one is not.

        Each may let its clients finish for `timeout` seconds, less a little in which it ends the rest.
        only: PIDs of the daemons that are meant; empty means all.
        """
        failures = []
        for daemon in self.daemons():
            if not only or daemon.identity.pid in only:
                failure = self._quit(daemon, timeout)
                if failure:
                    failures.append(failure)
        return "; ".join(failures)

    def _quit(self, daemon: Daemon, timeout: float) -> str:
        patience = max(1, math.floor(timeout) - 2)
        completed = self._ask(daemon, "quit -t %d" % patience, max(timeout, patience + 2.0))
        deadline = self._clock() + _GONE_TIMEOUT
        while self._procfs.alive(daemon.identity):
            if not completed.ok or completed.out.strip() or self._clock() >= deadline:
                said = completed.out.strip() or (completed.reason if not completed.ok else "it still runs")
                return "%s did not quit: %s" % (daemon.label, said)
            self._sleep(_POLL)
        return ""

    # -- one daemon

    def _daemon(self, process: ProcessInfo) -> Daemon:
        pipes = self._pipes(process.pid)
        mounts = self._link(process.pid, "ns/mnt")
        if mounts and mounts != self._link("self", "ns/mnt"):  # its files are not where ours are
            pipes = os.path.join(self._procfs.root, str(process.pid), "root") + pipes
        namespace = self._link(process.pid, "ns/pid")
        return Daemon(
            identity=process.identity,
            user=process.user,
            # The file at that path of this host: what a user or a container put elsewhere is not run.
            program=process.exe if self._safe(process.exe) else PROGRAM,
            pipes=pipes,
            namespace=namespace if process.namespace_pid is not None else "",
        )

    def _pipes(self, pid: int) -> str:
        """The folder of a daemon's pipes; nothing else of its environment is kept."""
        try:
            with open(os.path.join(self._procfs.root, str(pid), "environ"), "rb") as stream:
                entries = stream.read(MOST_ARGUMENTS).split(b"\0")
        except OSError:
            return _DEFAULT_PIPES
        start = (_PIPES + "=").encode()
        values = [os.fsdecode(entry[len(start) :]) for entry in entries if entry.startswith(start)]
        return values[0] if values and values[0].startswith("/") else _DEFAULT_PIPES

    def _ask(self, daemon: Daemon, command: str, timeout: float) -> Completed:
        return self._run([daemon.program], timeout, input=command + "\n", env={_PIPES: daemon.pipes})

    def _numbering(self, daemon: Daemon) -> Dict[int, int]:
        """PIDs inside a daemon's PID namespace to those outside; nothing where they are the same."""
        numbers: Dict[int, int] = {}
        if daemon.namespace:
            for pid in self._procfs.pids():
                if self._link(pid, "ns/pid") == daemon.namespace:
                    process = self._procfs.read(pid)
                    if process is not None and process.namespace_pid is not None:
                        numbers[process.namespace_pid] = pid
        return numbers

    def _link(self, *parts: object) -> str:
        try:
            return os.readlink(os.path.join(self._procfs.root, *[str(part) for part in parts]))
        except OSError:
            return ""


def _pids(text: str) -> Tuple[int, ...]:
    """The numbers of a list; a sentence among them ("Server 7 not found") is none."""
    return tuple(int(line) for line in text.split("\n") if line.strip().isdigit())
