# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks at the selected GPUs and at the processes on them, as often as wanted."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Callable, FrozenSet, Optional, Sequence, Set, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import device_files
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.holders import join
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import GpuReading, Holder, Verdict
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.nvml_session import NvmlSession
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.protection import Allowance, Protection
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.selection import check_count, plain_indices, resolve
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.verdict import Limits, judge
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity, ProcessInfo, ProcFs

_NOTHING_ALLOWED = Allowance()


def select(session: NvmlSession, selectors: Sequence[str], expected_count: Optional[int]) -> Tuple[int, ...]:
    """The NVML indices of the selected GPUs.  Raises GpuError."""
    count = session.system.count
    check_count(count, expected_count)
    plain = plain_indices(selectors, count)
    return plain if plain is not None else resolve(selectors, session.identify(range(count)))


@dataclass(frozen=True)
class Look:
    """The selected GPUs and their holders at one moment."""

    readings: Tuple[GpuReading, ...]
    holders: Tuple[Holder, ...]

    @property
    def uuids(self) -> FrozenSet[str]:
        """The GPUs that could be identified."""
        return frozenset(reading.uuid for reading in self.readings if reading.uuid)

    def verdicts(self, limits: Limits) -> Tuple[Verdict, ...]:
        """One verdict for each reading."""
        return tuple(judge(reading, self.holders, limits) for reading in self.readings)


class Observer:
    """Takes Looks at a fixed selection of GPUs."""

    def __init__(
        self,
        session: NvmlSession,
        procfs: ProcFs,
        indices: Sequence[int],
        protect_uids: FrozenSet[int] = frozenset(),
        protect_executables: Sequence[str] = (),
        allowance: Allowance = _NOTHING_ALLOWED,
        holds_device: Optional[Callable[[int], Optional[bool]]] = None,
    ) -> None:
        self._session = session
        self._procfs = procfs
        self._indices = tuple(indices)
        self._uids = protect_uids
        self._executables = tuple(protect_executables)
        self._allowance = allowance
        self._me = os.getpid()
        self._ancestors = frozenset(procfs.ancestors(self._me))
        if holds_device is None and device_files.driver_has_devices():
            holds_device = device_files.holds_device
        self._holds_device = holds_device
        self._seen_holding: Set[ProcessIdentity] = set()

    def look(self) -> Look:
        """The state now."""
        readings = tuple(self._without_us(reading) for reading in self._session.read(self._indices))
        protection = Protection(
            own=self._session.pids | {self._me},
            ancestors=self._ancestors,
            uids=self._uids,
            executables=self._executables,
            allowance=self._allowance,
        )
        return Look(readings, join(readings, self._procfs.read, protection.reason, self._holds))

    def _without_us(self, reading: GpuReading) -> GpuReading:
        """The reading without the processes that ask NVML for this very task."""
        ours = self._session.pids
        return replace(reading, processes=tuple(p for p in reading.processes if p.pid not in ours))

    def _holds(self, process: ProcessInfo) -> Optional[bool]:
        """Whether the process has an NVIDIA device open; remembered, as a look at all its files is not cheap."""
        if self._holds_device is None:
            return None
        if process.identity in self._seen_holding:
            return True
        holds = self._holds_device(process.pid)
        if holds:
            self._seen_holding.add(process.identity)
        return holds
