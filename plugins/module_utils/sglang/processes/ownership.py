# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which processes belong to an instance, by evidence that the kernel gives.

Names play no role: a worker that still imports its libraries is called like any other Python, and that
is when a killed parent leaves it behind.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Dict, FrozenSet, List, Mapping, Optional, Set, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import MARKER, STATE_MARKER
from ansible_collections.inferops.sglang.plugins.module_utils.system.containers import belongs, place_of
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import (
    ProcessIdentity,
    ProcessInfo,
    ProcFs,
)

# Kinds of evidence, strongest first.
MAIN = "main"
UNIT = "unit"
CONTAINER = "container"
SESSION = "session"
DESCENT = "descent"
INHERITED = "marker"

_ID_DIGITS = 12  # an engine may give a shortened identifier


@dataclass(frozen=True)
class Claim:
    """What shows that a process belongs to an instance; what is empty shows nothing.

    instance and state_dir are compared with the variables that its processes inherit, of processes of the
    user uid only.  roots: its main process, and the first one in its container.  unit: the systemd unit;
    group: the path of its control group as systemd tells it.  container: the engine's identifier.
    session: the session of the main process, which began at session_since (clock ticks after boot).
    """

    instance: str = ""
    state_dir: str = ""
    uid: Optional[int] = None
    roots: Tuple[ProcessIdentity, ...] = ()
    unit: str = ""
    group: str = ""
    container: str = ""
    session: int = 0
    session_since: int = 0


@dataclass(frozen=True)
class Member:
    """One process of an instance, and what shows that."""

    process: ProcessInfo
    evidence: str


class Ownership:
    """Finds the processes that a claim covers.

    This process itself and those above it are never among them: a task that runs inside what it is to end
    must not end itself.
    """

    def __init__(self, claim: Claim, procfs: ProcFs, own_pid: Optional[int] = None) -> None:
        self._claim = claim
        self._procfs = procfs
        pid = os.getpid() if own_pid is None else own_pid
        self._spared: FrozenSet[int] = frozenset([pid, 1, 2, *procfs.ancestors(pid)])
        self._groups = _unit_groups(claim, procfs.read(pid))

    def owns(self, process: ProcessInfo) -> bool:
        """Whether a process belongs to the instance."""
        return bool(self.evidence(process))

    def evidence(self, process: ProcessInfo) -> str:
        """What shows that a process belongs to the instance, "" where nothing does."""
        if process.pid in self._spared:
            return ""
        return self._evidence(process, self._live_roots(), None)

    def members(self) -> List[Member]:
        """All live processes of the instance: the main process first, then in ascending order of PID."""
        table = {info.pid: info for info in map(self._procfs.read, self._procfs.pids()) if info is not None}
        roots = self._live_roots()
        below = _descendants(roots, table)
        found = []
        for process in table.values():
            if process.dead or process.pid in self._spared:
                continue
            evidence = self._evidence(process, roots, below)
            if evidence:
                found.append(Member(process, evidence))
        return sorted(found, key=lambda member: (member.evidence != MAIN, member.process.pid))

    # -- one kind of evidence each

    def _evidence(self, process: ProcessInfo, roots: Set[int], below: Optional[Set[int]]) -> str:
        if process.identity in self._claim.roots:
            return MAIN
        if self._in_unit(process):
            return UNIT
        if self._in_container(process):
            return CONTAINER
        if self._in_session(process):
            return SESSION
        if below is None:
            below = {process.pid} if roots.intersection(self._procfs.ancestors(process.pid)) else set()
        if process.pid in below:
            return DESCENT
        return INHERITED if self._is_marked(process) else ""

    def _live_roots(self) -> Set[int]:
        return {root.pid for root in self._claim.roots if self._procfs.alive(root)}

    def _in_unit(self, process: ProcessInfo) -> bool:
        """Whether it is in the control group of the unit.

        The unit's name alone would not do: a guest, a container or a user's manager may have a unit of the
        same name, which is another one.
        """
        return any(belongs(process.cgroup, group) for group in self._groups)

    def _in_container(self, process: ProcessInfo) -> bool:
        container = place_of(process.cgroup).container if self._claim.container else None
        while container is not None:
            if container.id[:_ID_DIGITS] == self._claim.container[:_ID_DIGITS]:
                return True
            container = container.inner
        return False

    def _in_session(self, process: ProcessInfo) -> bool:
        claim = self._claim
        if not claim.session or process.session != claim.session or process.start_time < claim.session_since:
            return False
        # The number was given away, which happens only after the end of the session.
        leader = self._procfs.identity(claim.session)
        return leader is None or leader.start_time == claim.session_since

    def _is_marked(self, process: ProcessInfo) -> bool:
        claim = self._claim
        if not claim.instance or claim.uid is None or process.uid != claim.uid:
            return False
        environment = self._procfs.environ(process.pid)
        if environment is None or environment.get(MARKER) != claim.instance:
            return False
        return environment.get(STATE_MARKER, claim.state_dir) == claim.state_dir


def _unit_groups(claim: Claim, own: Optional[ProcessInfo]) -> List[str]:
    """The control groups that the unit of a claim may have."""
    if not claim.unit:
        return []
    # Where systemd tells none, because it forgot the unit, it is the one that units have by default.
    group = claim.group if claim.group.strip("/") else "/system.slice/" + claim.unit
    container = place_of(own.cgroup).container if own is not None else None
    # Inside a guest the kernel may show paths from the host's root on, and the guest's systemd its own.
    return [group] if container is None else [group, container.cgroup + group]


def _descendants(roots: Set[int], table: Mapping[int, ProcessInfo]) -> Set[int]:
    """Everything below some processes, without these themselves."""
    children: Dict[int, List[int]] = {}
    for process in table.values():
        children.setdefault(process.ppid, []).append(process.pid)
    found: Set[int] = set()
    queue = list(roots)
    while queue:
        for child in children.get(queue.pop(), []):
            if child not in found:
                found.add(child)
                queue.append(child)
    return found


def marked_instance(pid: int, procfs: ProcFs) -> str:
    """The instance that a process says it belongs to, "" where it says nothing."""
    return (procfs.environ(pid) or {}).get(MARKER, "")
