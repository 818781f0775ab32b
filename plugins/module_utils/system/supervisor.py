# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What keeps a process alive: the words that the readers of systemd, of engines and of supervisord share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Mapping, NamedTuple, Optional, Protocol, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import Completed
from ansible_collections.inferops.sglang.plugins.module_utils.system.containers import belongs
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessInfo, ProcFs, parse_cgroup

SYSTEMD = "systemd"
SYSTEMD_USER = "systemd_user"
DOCKER = "docker"
PODMAN = "podman"
CONTAINERD = "containerd"
KUBERNETES = "kubernetes"
LXC = "lxc"
NSPAWN = "nspawn"
QEMU = "qemu"
SUPERVISORD = "supervisord"
PARENT = "parent"

# How long one question to a manager may take (seconds).
QUERY_TIMEOUT = 10.0


class Runner(Protocol):
    """Runs a program with a limit in seconds; `commands.run` is one."""

    def __call__(
        self, argv: Sequence[str], timeout: float, input: str = "", env: Optional[Mapping[str, str]] = None
    ) -> Completed:
        """Run it and never raise for what it does."""


@dataclass(frozen=True)
class Supervisor:
    """Who started a process on purpose, and might do so again.

    restarts: whether it starts the process again when it is killed, None where that is unknown; policy:
    that in its own words.  stop: the command that ends it properly, () where nothing on this host does or
    may; advice: what a person is to do.

    The rest is for asking it again: the command that shows its state, the control group of all that it
    runs ("" unknown), its main process (in its own numbering, 0 none) and how often it had started it anew
    when it was found.
    """

    kind: str
    name: str
    restarts: Optional[bool] = None
    policy: str = ""
    stop: Tuple[str, ...] = ()
    advice: str = ""
    manager: str = field(default="", repr=False)
    query: Tuple[str, ...] = field(default=(), repr=False)
    cgroup: str = field(default="", repr=False)
    main_pid: int = field(default=0, repr=False)
    starts: int = field(default=0, repr=False)

    @property
    def stoppable(self) -> bool:
        """Whether there is a command that stops it."""
        return bool(self.stop)

    @property
    def label(self) -> str:
        """What it is, for sentences."""
        return "%s %s" % (_NOUNS.get(self.kind, self.kind), self.name)


_NOUNS = {
    SYSTEMD: "the unit",
    SYSTEMD_USER: "the user unit",
    DOCKER: "the container",
    PODMAN: "the container",
    CONTAINERD: "the container",
    KUBERNETES: "the Kubernetes",
    LXC: "in the LXC guest,",
    NSPAWN: "in the machine,",
    QEMU: "the virtual machine",
    SUPERVISORD: "the supervisord program",
    PARENT: "the parent",
}


@dataclass(frozen=True)
class Condition:
    """What a manager says now.

    known: it answered; words say the state (or why there is none); stopped: it runs nothing and will not by
    itself; waiting: it is about to start it again; main_pid and starts as in Supervisor.
    """

    words: str
    known: bool = True
    stopped: bool = False
    waiting: bool = False
    main_pid: int = 0
    starts: int = 0


class Found(NamedTuple):
    """The result of a search; note says in a sentence why there is no supervisor where one was expected."""

    supervisor: Optional[Supervisor] = None
    note: str = ""


@dataclass(frozen=True)
class Stopped:
    """What became of an attempt to stop a supervisor.

    ok: it is stopped and nothing of it is left alive.  inactive: it counts as stopped itself, so nobody
    starts anything again, although processes may be left.  left: those, by PID.
    """

    ok: bool
    message: str
    seconds: float = 0.0
    inactive: bool = False
    left: Tuple[int, ...] = ()


class Manager(Protocol):
    """Reads the state of the supervisors of one kind."""

    def condition(self, supervisor: Supervisor) -> Condition:
        """Ask for the state now.  Never raises."""


class FirstAnswer(NamedTuple):
    """The first of several ways that led to an answer; reached: the way, () where none did."""

    way: Tuple[str, ...]
    completed: Completed


def try_ways(run: Runner, ways: Sequence[Tuple[str, ...]], rest: Sequence[str]) -> FirstAnswer:
    """Ask along each way in turn until one answers.

    A failure counts as the result where none does: the first of a program that is there.
    """
    failure: Optional[FirstAnswer] = None
    for way in ways:
        completed = run([*way, *rest], QUERY_TIMEOUT)
        if completed.ok:
            return FirstAnswer(way, completed)
        if failure is None or (failure.completed.missing and not completed.missing):
            failure = FirstAnswer((), completed)
    return failure or FirstAnswer((), Completed(None, err="there is no way to ask"))


def members(procfs: ProcFs, cgroup: str) -> List[ProcessInfo]:
    """All processes in a control group and below it, zombies too, wherever its hierarchy is mounted."""
    found = []
    if cgroup:
        for pid in procfs.pids():
            if belongs(cgroup_path(procfs, pid), cgroup):
                info = procfs.read(pid)
                if info is not None:
                    found.append(info)
    return found


def cgroup_path(procfs: ProcFs, pid: int) -> str:
    """The path of a process's control group, "" where there is no such process."""
    try:
        with open("%s/%d/cgroup" % (procfs.root, pid), encoding="utf-8", errors="replace") as stream:
            return parse_cgroup(stream.read())
    except OSError:
        return ""


def name_processes(processes: Sequence[ProcessInfo], most: int = 5) -> str:
    """Processes for a sentence, with what the kernel says they do."""
    states: Dict[str, str] = {"D": "uninterruptible", "Z": "zombie", "T": "stopped", "t": "traced"}
    words = ["%d (%s, %s)" % (p.pid, p.name, states.get(p.state, "state " + p.state)) for p in list(processes)[:most]]
    more = len(processes) - len(words)
    return ", ".join(words) + (" and %d more" % more if more > 0 else "")
