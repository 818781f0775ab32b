# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks at the selected GPUs and at the processes on them, as often as wanted."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Callable, Dict, FrozenSet, Optional, Sequence, Set, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import device_nodes, device_scan
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.device_inspector import DeviceInspector
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.holders import Sources, join, reaching_out
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.matching import Who
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.mig import of_instance
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import GpuReading, Holder, Verdict
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.protection import Allowance, Protection
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.selection import (
    Target,
    check_count,
    names_instances,
    plain_targets,
    resolve,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.verdict import Limits, View, judge
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity, ProcessInfo, ProcFs

if TYPE_CHECKING:
    from ansible_collections.inferops.sglang.plugins.module_utils.gpu.open import Session

# How much of /proc a look takes in, besides the driver's lists.
NOTHING = "nothing"
KNOWN = "known"  # the processes that an earlier look found to have a device open
EVERYTHING = "everything"

_NOBODY = Who()
_NOTHING_ALLOWED = Allowance()
# Hosts with more processes than that are scanned for private mappings only where memory is unexplained.
_THOROUGH_UP_TO = 2000


def select(session: Session, selectors: Sequence[str], expected_count: Optional[int]) -> Tuple[Target, ...]:
    """The selected GPUs and MIG instances.  Raises GpuError."""
    count = session.system.count
    check_count(count, expected_count)
    plain = plain_targets(selectors, count)
    if plain is not None:
        return plain
    ask = session.read if names_instances(selectors) else session.identify
    return resolve(selectors, ask(range(count)))


@dataclass(frozen=True)
class Look:
    """The selected GPUs and their holders at one moment."""

    readings: Tuple[GpuReading, ...]
    holders: Tuple[Holder, ...]
    view: View = View()

    @property
    def uuids(self) -> FrozenSet[str]:
        """The GPUs that could be identified."""
        return frozenset(reading.uuid for reading in self.readings if reading.uuid)

    def verdicts(self, limits: Limits) -> Tuple[Verdict, ...]:
        """One verdict for each reading."""
        return tuple(judge(reading, self.holders, limits, self.view) for reading in self.readings)

    def unexplained(self, limits: Limits) -> FrozenSet[str]:
        """The GPUs with memory in use that nobody is listed for."""
        verdicts = zip(self.readings, self.verdicts(limits))
        return frozenset(reading.uuid for reading, verdict in verdicts if verdict.reason == "unattributed")


class Observer:
    """Takes Looks at a fixed selection of GPUs."""

    def __init__(
        self,
        session: Session,
        procfs: ProcFs,
        targets: Sequence[Target],
        protect: Who = _NOBODY,
        allowance: Allowance = _NOTHING_ALLOWED,
        container_name: Optional[Callable[[ProcessInfo], str]] = None,
        nodes: Optional[device_nodes.DeviceNodes] = None,
    ) -> None:
        self._session = session
        self._procfs = procfs
        self._targets = tuple(targets)
        self._protect = protect
        self._allowance = allowance
        self._me = os.getpid()
        self._ancestors = frozenset(procfs.ancestors(self._me))
        self._container_name = container_name
        self._nodes = nodes or device_nodes.read_nodes()
        self._names = device_nodes.uuids_by_minor()
        self._seen_holding: Set[ProcessIdentity] = set()
        self._known: FrozenSet[ProcessIdentity] = frozenset()
        self._namespaced = procfs.in_pid_namespace()
        self._hidden = procfs.hidden()
        self._uninspected = 0
        self._crowded = False
        self._stuck: Tuple[int, ...] = ()

    def look(self, scan: str = NOTHING, limits: Optional[Limits] = None) -> Look:
        """The state now.

        With limits, a crowded host is searched more thoroughly where memory is unexplained under them.
        """
        readings = self._read()
        if scan == EVERYTHING and limits is not None:
            return self.explain(Look(readings, ()), limits)
        listed = frozenset(process.pid for reading in readings for process in reading.processes)
        return self._join(readings, self._scan(scan, listed))

    def explain(self, look: Look, limits: Limits, scan: str = EVERYTHING) -> Look:
        """The same look with those who have a GPU open; it reads no GPU again, as that was the proof."""
        listed = frozenset(process.pid for reading in look.readings for process in reading.processes)
        seen = self._join(look.readings, self._scan(scan, listed))
        if scan == EVERYTHING and self._crowded and seen.unexplained(limits):
            seen = self._join(look.readings, self._scan(EVERYTHING, listed, thorough=True))
        return seen

    def _read(self) -> Tuple[GpuReading, ...]:
        indices = sorted({target.index for target in self._targets})
        whole: Dict[int, GpuReading] = {r.index: self._without_us(r) for r in self._session.read(indices)}
        return tuple(
            of_instance(whole[target.index], target.mig_uuid) if target.mig_uuid else whole[target.index]
            for target in self._targets
        )

    def _join(self, readings: Tuple[GpuReading, ...], scan: Optional[device_scan.Scan]) -> Look:
        protection = Protection(
            own=self._session.pids | {self._me},
            ancestors=self._ancestors,
            who=self._protect,
            allowance=self._allowance,
        )
        outside = self._outside(reaching_out(readings, scan))
        sources = Sources(
            self._process,
            protection.reason,
            self._holds,
            scan,
            lambda minor: self._names.get(minor, "/dev/nvidia%d" % minor),
            outside,
            lambda pid: bool(self._hidden) and self._procfs.exists(pid),
        )
        view = View(scan is not None, self._namespaced, self._uninspected, self._stuck, self._hidden)
        return Look(readings, join(readings, sources), view)

    def _outside(self, pids: FrozenSet[int]) -> Dict[int, str]:
        """What the lists of the GPUs outside the selection say about processes that have them open too.

        These GPUs are read for no other purpose, and not at all where there is no such process.
        """
        found: Dict[int, str] = {}
        if not pids:
            return found
        selected = {target.index for target in self._targets}
        others = [index for index in range(self._session.system.count) if index not in selected]
        for reading in self._session.read(others):
            if reading.failure is not None:
                # Whether they use it cannot be told, so it is as if they did.
                unknown = "it has GPU %d open, which cannot be read" % reading.index
                found.update({pid: unknown for pid in pids if pid not in found})
            for process in reading.processes:
                if process.pid in pids:
                    found[process.pid] = "it uses GPU %d, which is not selected" % reading.index
        return found

    def _process(self, pid: int) -> Optional[ProcessInfo]:
        """A process, with the name of its container where somebody knows it."""
        process = self._procfs.read(pid)
        if process is None or process.container is None or self._container_name is None:
            return process
        return replace(process, container=replace(process.container, name=self._container_name(process)))

    # -- who has devices open

    def _scan(self, what: str, listed: FrozenSet[int], thorough: bool = False) -> Optional[device_scan.Scan]:
        if what == NOTHING:
            return None
        ours = self._session.pids | {self._me, 1, 2}
        pids = [pid for pid in self._procfs.pids() if pid not in ours]
        self._crowded = len(pids) > _THOROUGH_UP_TO
        if what == KNOWN:
            pids = sorted(listed.union(identity.pid for identity in self._known).intersection(pids))
        inspector = DeviceInspector(self._procfs, self._nodes, thorough or not self._crowded)
        found = device_scan.scan(inspector, pids)
        if what == EVERYTHING:
            self._known = frozenset(found.found)
            # How many do not show cannot be known. None would be a claim.
            self._uninspected = max(found.uninspected + len(found.stuck), 1 if self._hidden else 0)
            self._stuck = found.stuck
        self._seen_holding.update(found.found)
        return found

    def _without_us(self, reading: GpuReading) -> GpuReading:
        """The reading without the processes that ask the driver for this very task."""
        ours = self._session.pids
        return replace(reading, processes=tuple(p for p in reading.processes if p.pid not in ours))

    def _holds(self, process: ProcessInfo) -> Optional[bool]:
        """Whether the process has a device of the driver open; remembered, as finding out is not cheap."""
        if not self._nodes.present:
            return None
        if process.identity in self._seen_holding:
            return True
        holds = DeviceInspector(self._procfs, self._nodes).holds_any(process.pid)
        if holds:
            self._seen_holding.add(process.identity)
        return holds
