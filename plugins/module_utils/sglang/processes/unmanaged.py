# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds an SGLang server that somebody started by hand where an instance is to listen.

What it is shows its command line: an interpreter that runs SGLang's module or its command.  A server that
still loads its model does not listen yet, and is found by the port in that command line.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from typing import Any, Callable, Dict, FrozenSet, Iterator, List, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import Check, failed, ok, warning
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.command_line import option_value
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.ownership import marked_instance
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.ports import conflict
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import shown_command
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessInfo, ProcFs
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import (
    DOCKER,
    PODMAN,
    SYSTEMD,
    Runner,
    Supervisor,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisors import Supervisors

REFUSE = "refuse"
TAKE_OVER = "take_over"

_NAME = "unmanaged"
_DEFAULT_HOST, _DEFAULT_PORT = "127.0.0.1", 30000
_INTERPRETER = re.compile(r"(?:python|pypy)[0-9.]*")
_MODULES = frozenset(["sglang.launch_server"])
# Modules whose command must be `serve` to be a server.
_COMMANDS = frozenset(["sglang", "sglang.cli.main"])
# Options of the interpreter that take a word of their own.
_WITH_VALUE = frozenset(["-W", "-X", "--check-hash-based-pycs"])


@dataclass(frozen=True)
class Unmanaged:
    """The main process of such a server.

    arguments are what it was given after `launch_server` or `serve`; listening: whether it has the port
    already; supervisor: who would start it again, None where nobody does; pids: it and all below it.
    """

    process: ProcessInfo
    arguments: Tuple[str, ...]
    host: str
    port: int
    listening: bool
    supervisor: Optional[Supervisor] = None
    pids: FrozenSet[int] = frozenset()

    def owns(self, process: ProcessInfo) -> bool:
        """Whether a process is part of it."""
        return process.pid in self.pids

    def to_dict(self) -> Dict[str, Any]:
        """As it is returned by modules, without secrets."""
        return {
            "pid": self.process.pid,
            "start_ticks": self.process.start_time,
            "user": self.process.user,
            "name": self.process.name,
            "command": shown_command(self.process.argv),
            "listening": self.listening,
            "supervisor": self.supervisor.label if self.supervisor is not None else "",
        }

    def describe(self) -> str:
        """What it is, for sentences."""
        verb = "listens" if self.listening else "is about to listen"
        return "an SGLang server that this collection did not start (PID %d of %s) %s on port %d" % (
            self.process.pid,
            self.process.user,
            verb,
            self.port,
        )


# -- what a command line says


def server_arguments(process: ProcessInfo) -> Optional[Tuple[str, ...]]:
    """What a main process of SGLang was given to serve with; None where it is none."""
    argv = process.argv
    program = os.path.basename(process.exe or (argv[0] if argv else ""))
    if not argv or _INTERPRETER.fullmatch(program) is None:
        return None
    position = 1
    while position < len(argv) and argv[position].startswith("-") and argv[position] != "-":
        word = argv[position]
        if word == "-m" or (word.startswith("-") and not word.startswith("--") and word.endswith("m")):
            return _of_module(argv[position + 1 :])
        if word == "-c":
            return None
        position += 2 if word in _WITH_VALUE else 1
    script = argv[position : position + 1]
    if script and os.path.basename(script[0]) == "sglang":
        return _of_command(argv[position + 1 :])
    # python -m replaces the module's name by its file in sys.argv, not here; a file may be run all the same.
    if script and script[0].endswith("/sglang/launch_server.py"):
        return tuple(argv[position + 1 :])
    return None


def _of_module(words: Sequence[str]) -> Optional[Tuple[str, ...]]:
    if words and words[0] in _MODULES:
        return tuple(words[1:])
    return _of_command(words[1:]) if words and words[0] in _COMMANDS else None


def _of_command(words: Sequence[str]) -> Optional[Tuple[str, ...]]:
    return tuple(words[1:]) if tuple(words[:1]) == ("serve",) else None


def address_of(arguments: Sequence[str]) -> Tuple[str, int]:
    """Where a server with these arguments listens; port 0 where that cannot be read."""
    port = option_value(arguments, "--port")
    host = option_value(arguments, "--host") or _DEFAULT_HOST
    if port is None:
        return host, _DEFAULT_PORT
    return host, int(port) if port.isdigit() else 0


# -- finding


def find_unmanaged(
    host: str,
    port: int,
    procfs: ProcFs,
    is_ours: Callable[[ProcessInfo], bool],
    run: Runner,
) -> Optional[Unmanaged]:
    """The SGLang server that has, or will have, an address and port, and that nobody of this collection manages.

    is_ours tells the processes of the instance.  Servers of other instances are not meant either: they
    carry their instance's name with them.
    """
    for pid, address in _candidates(host, port, procfs):
        process = procfs.read(pid)
        if process is None or process.dead or is_ours(process) or marked_instance(pid, procfs):
            continue
        arguments = server_arguments(process)
        if arguments is None:
            continue
        return Unmanaged(
            process,
            arguments,
            address or address_of(arguments)[0],
            port,
            bool(address),
            _supervisor_of(process, procfs, run),
            frozenset([pid, *_below(pid, procfs)]),
        )
    return None


def _candidates(host: str, port: int, procfs: ProcFs) -> Iterator[Tuple[int, str]]:
    """Processes that may be such a main process with the address that they listen on, those without one last."""
    for listener in procfs.listeners(port):
        if listener.pid is None or not conflict(host, listener.address):
            continue
        # Several workers may share the socket that their parent made.
        main = _outermost(listener.pid, procfs)
        if main is not None:
            yield main, listener.address
    own_network = procfs.namespace(os.getpid(), "net")
    for pid in procfs.pids():
        process = procfs.read(pid)
        arguments = server_arguments(process) if process is not None else None
        if process is None or arguments is None:
            continue
        its_host, its_port = address_of(arguments)
        if its_port != port or not conflict(host, its_host):
            continue
        if procfs.namespace(pid, "net") in (None, own_network):
            yield _outermost(pid, procfs) or pid, ""


def _outermost(pid: int, procfs: ProcFs) -> Optional[int]:
    """The first of a process and those above it, from PID 1 on, that is a main process: its forks look like it."""
    for candidate in reversed([pid, *procfs.ancestors(pid)]):
        process = procfs.read(candidate)
        if process is not None and server_arguments(process) is not None:
            return candidate
    return None


def _below(pid: int, procfs: ProcFs) -> List[int]:
    return [other for other in procfs.pids() if pid in procfs.ancestors(other)]


def _supervisor_of(process: ProcessInfo, procfs: ProcFs, run: Runner) -> Optional[Supervisor]:
    own = procfs.read(os.getpid())
    supervisors = Supervisors(
        run,
        procfs.root,
        own_unit=(own.unit or "") if own is not None else "",
        own_cgroup=own.cgroup if own is not None else "",
    )
    return supervisors.of(process)


# -- judging


def check_unmanaged(found: Optional[Unmanaged], policy: str) -> List[Check]:
    """Refuse such a server, or accept that it will be taken over.

    One that somebody supervises is always refused: it would be started again beside ours.
    """
    if found is None:
        return [ok(_NAME, "No server that somebody started by hand has this port.")]
    if found.supervisor is not None:
        return [
            failed(
                _NAME,
                "%s, and %s runs it: %s."
                % (_capital(found.describe()), found.supervisor.label, _remedy(found.supervisor)),
            )
        ]
    if found.process.container is not None and policy == TAKE_OVER:
        # Its files and its root are not the host's: started here, it would be another program, perhaps as root.
        return [
            failed(
                _NAME,
                "%s in the container %s, and cannot be taken over from there: end it (kill %d)."
                % (_capital(found.describe()), found.process.container.label, found.process.pid),
            )
        ]
    if policy == TAKE_OVER:
        return [warning(_NAME, "%s: it will be taken over and ended." % _capital(found.describe()))]
    return [
        failed(
            _NAME,
            "%s, and nobody manages it: end it (kill %d), or set unmanaged to take_over."
            % (_capital(found.describe()), found.process.pid),
        )
    ]


def _remedy(supervisor: Supervisor) -> str:
    name = shlex.quote(supervisor.name)
    if supervisor.kind == SYSTEMD:
        return "stop it there with systemctl disable --now %s" % name
    if supervisor.kind in (DOCKER, PODMAN) and supervisor.stop:
        return "stop it there with %s" % " ".join(shlex.quote(word) for word in supervisor.stop)
    return supervisor.advice or "stop it there"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
