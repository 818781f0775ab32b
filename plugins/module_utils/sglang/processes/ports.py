# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who listens where a server is to listen, or answers for it.

SGLang binds its port only after it has loaded the model, so a port that is taken costs minutes.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Callable, List, Optional, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import Check, failed, ok
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import probe_host
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import Listener, ProcessInfo, ProcFs

_NAME = "port"
_FIRST_UNPRIVILEGED = 1024
_LAST = 65535


def check_port(
    host: str,
    port: int,
    listeners: Callable[[int], Sequence[Listener]],
    read: Callable[[int], Optional[ProcessInfo]],
    is_ours: Callable[[ProcessInfo], bool],
) -> List[Check]:
    """Refuse a port that cannot be bound, or that somebody else listens on.

    is_ours tells the processes of the instance, which will be stopped, from all others.
    """
    if not 1 <= port <= _LAST:
        return [failed(_NAME, f"port {port} does not exist: give one from {_FIRST_UNPRIVILEGED} to {_LAST}.")]
    if port < _FIRST_UNPRIVILEGED:
        return [failed(_NAME, f"port {port} is for privileged services: give one from {_FIRST_UNPRIVILEGED} up.")]
    state = look_at_port(host, port, listeners, read, is_ours)
    if state.foreign:
        return [failed(_NAME, state.foreign[0])]
    return [ok(_NAME, f"Port {port} is {'in use by this instance' if state.ours else 'free'}.")]


def _taken(listener: Listener, process: Optional[ProcessInfo]) -> str:
    where = f"port {listener.port} is taken: {listener.address}"
    if process is None:
        return f"{where} is listened on by a process that may not be seen: run as root, or choose another port."
    return f"{where} is listened on by {_who(process)}, which is not this instance: stop it, or choose another port."


def _who(process: ProcessInfo) -> str:
    unit = f" in {process.unit}" if process.unit else ""
    return f"PID {process.pid} ({process.name} of {process.user}{unit})"


@dataclass(frozen=True)
class PortState:
    """Who listens where a server would.

    ours: a process of the instance does; foreign: sentences about everybody else, with the remedy.
    """

    ours: bool = False
    foreign: Sequence[str] = ()

    @property
    def free(self) -> bool:
        """Whether nobody listens."""
        return not self.ours and not self.foreign


def look_at_port(
    host: str,
    port: int,
    listeners: Callable[[int], Sequence[Listener]],
    read: Callable[[int], Optional[ProcessInfo]],
    is_ours: Callable[[ProcessInfo], bool],
) -> PortState:
    """Who listens on a port now.  A connection that is in TIME_WAIT keeps nobody from it, and does not count."""
    ours = False
    foreign: List[str] = []
    for listener in listeners(port):
        if not conflict(host, listener.address):
            continue
        process = read(listener.pid) if listener.pid is not None else None
        if process is not None and is_ours(process):
            ours = True
        else:
            foreign.append(_taken(listener, process))
    return PortState(ours, tuple(foreign))


@dataclass(frozen=True)
class PortOwner:
    """Who answers on a port: known says whether that could be found out, foreign describes somebody else."""

    known: bool
    foreign: str = ""


def port_owner(owns: Callable[[ProcessInfo], bool], host: str, port: int, procfs: ProcFs) -> PortOwner:
    """Whether it is the server who answers those that ask it on this host; owns tells its processes."""
    address = probe_host(host)
    listeners = procfs.listeners(port)
    # Who listens on exactly this address gets the connections before those who listen on all.
    exact = [listener for listener in listeners if listener.address == address]
    foreign = ""
    for listener in exact or listeners:
        if not conflict(address, listener.address):
            continue
        process = procfs.read(listener.pid) if listener.pid is not None else None
        if process is None:
            continue
        if owns(process):
            return PortOwner(True)
        foreign = f"{_who(process)} listens on port {port}"
    return PortOwner(bool(foreign), foreign)


def wait_until_free(
    look: Callable[[], PortState], patience: float, clock: Callable[[], float], sleep: Callable[[float], None]
) -> PortState:
    """Give listeners that are on their way out a few seconds; the state at the end."""
    deadline = clock() + patience
    while True:
        state = look()
        if state.free or clock() >= deadline:
            return state
        sleep(min(0.1, patience))


def conflict(host: str, address: str) -> bool:
    """Whether a server on `host` and a listener on `address` cannot both have the same port.

    A host name may be any address, so it conflicts with every listener.
    """
    try:
        ours, theirs = ipaddress.ip_address(host.strip("[]")), ipaddress.ip_address(address)
    except ValueError:
        return True
    theirs_v4 = getattr(theirs, "ipv4_mapped", None)
    if theirs_v4 is not None:
        theirs = theirs_v4
    if ours.version == theirs.version:
        return ours.is_unspecified or theirs.is_unspecified or ours == theirs
    # "::" takes IPv4 as well, on most systems.
    v6 = ours if ours.version == 6 else theirs
    return v6.is_unspecified
