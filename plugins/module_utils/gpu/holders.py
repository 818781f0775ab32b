# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One table of the processes on GPUs from three sources: the driver's lists, descriptors, mappings.

The driver's lists say who *uses* a GPU.  A descriptor or a mapping says who merely has it open: CUDA
opens every GPU it may see, also those it computes nothing on.
"""

from __future__ import annotations

from typing import Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.device_inspector import OpenDevices
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.device_scan import Scan
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import (
    GpuReading,
    Holder,
    InstanceUse,
    ListedProcess,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessInfo

GONE = (
    "no such process here: it has ended and a process that inherited its GPU handles keeps the memory, "
    "or it runs in another PID namespace"
)
HIDDEN = "it does not show to this user (hidepid): run the task as root (become: true)"
REUSED = "the driver means an earlier process: the one that has this PID now has no NVIDIA device open"
ZOMBIE = "a zombie: a process that inherited its GPU handles keeps the memory"
ENDING = "it is ending and has not released the GPU yet"

Uses = Dict[str, List[ListedProcess]]  # by UUID


class Sources:
    """What the table is made from, besides the readings.

    lookup reads a process (None: there is none); protected_by says why it may not be ended, or "";
    holds_device says whether it has an NVIDIA device open (None: cannot be told, which is no evidence
    against it); scan: who has devices open, or None where nobody looked; gpu_name: what to call the
    GPU with this minor number where it is not among the readings; outside: what is known, by PID, about
    the use of GPUs that are not among the readings; hidden: whether there is a process with this PID that
    may not be seen.
    """

    def __init__(
        self,
        lookup: Callable[[int], Optional[ProcessInfo]],
        protected_by: Callable[[ProcessInfo], str],
        holds_device: Callable[[ProcessInfo], Optional[bool]],
        scan: Optional[Scan] = None,
        gpu_name: Callable[[int], str] = "/dev/nvidia{}".format,
        outside: Optional[Mapping[int, str]] = None,
        hidden: Callable[[int], bool] = lambda pid: False,
    ) -> None:
        self.lookup = lookup
        self.protected_by = protected_by
        self.holds_device = holds_device
        self.scan = scan
        self.gpu_name = gpu_name
        self.outside = outside or {}
        self.hidden = hidden


def join(readings: Sequence[GpuReading], sources: Sources) -> Tuple[Holder, ...]:
    """The processes on these GPUs, by ascending PID."""
    listed: Dict[int, Uses] = {}
    for reading in readings:
        for process in reading.processes:
            listed.setdefault(process.pid, {}).setdefault(reading.uuid, []).append(process)
    table = _Table(readings, sources)
    holders = [table.listed(pid, uses) for pid, uses in listed.items()]
    dead = {
        holder.pid: holder.gpus
        for holder in holders
        if (holder.process is None and holder.doubt != HIDDEN) or (holder.process is not None and holder.process.dead)
    }
    holders.extend(table.unlisted(frozenset(listed), dead))
    return tuple(sorted(holders, key=lambda holder: holder.pid))


def reaching_out(readings: Sequence[GpuReading], scan: Optional[Scan]) -> FrozenSet[int]:
    """The PIDs that may be using these GPUs, by what they have open, and GPUs that are not among them.

    Only the lists of those other GPUs tell what such a process is.
    """
    if scan is None:
        return frozenset()
    whole = {reading.minor for reading in readings if reading.minor is not None and not reading.instance}
    listed = {process.pid for reading in readings for process in reading.processes}
    return frozenset(
        identity.pid
        for identity, devices in scan.found.items()
        if identity.pid not in listed
        and not devices.monitor
        and devices.touched.intersection(whole)
        and not devices.touched <= whole
    )


class _Table:
    """Makes the rows of one table."""

    def __init__(self, readings: Sequence[GpuReading], sources: Sources) -> None:
        self._sources = sources
        # All instances of a GPU share its node, so having it open says nothing about one of them.
        self._whole: Dict[int, str] = {r.minor: r.uuid for r in readings if r.minor is not None and not r.instance}
        self._minor_of: Dict[str, Optional[int]] = {reading.uuid: reading.minor for reading in readings}
        found = sources.scan.found if sources.scan is not None else {}
        self._open: Mapping[int, Tuple[int, OpenDevices]] = {
            identity.pid: (identity.start_time, devices) for identity, devices in found.items()
        }

    def listed(self, pid: int, uses: Uses) -> Holder:
        """The row of a process that the driver lists."""
        process = self._sources.lookup(pid)
        doubt = ""
        if process is None:
            doubt = HIDDEN if self._sources.hidden(pid) else GONE
        elif process.dead:
            doubt = ZOMBIE
        elif not process.exe and not process.argv:  # its memory is gone already, its descriptors are not
            doubt = ENDING
        elif self._sources.holds_device(process) is False:
            process, doubt = None, REUSED
        evidence = {"nvml_" + use.kind for rows in uses.values() for use in rows}
        devices = self._devices_of(process)
        if devices is not None:
            evidence.update(devices.evidence)
        return Holder(
            pid=pid,
            process=process,
            doubt=doubt,
            memory=tuple((uuid, _memory_mib(uses[uuid])) for uuid in sorted(uses)),
            evidence=tuple(sorted(evidence)),
            protected_by=self._sources.protected_by(process) if process is not None else "",
            attached=self._attached(devices, frozenset(uses)),
            instances=_instances(uses),
            elsewhere=self._elsewhere(devices),
        )

    def unlisted(self, listed: FrozenSet[int], dead: Mapping[int, Tuple[str, ...]]) -> List[Holder]:
        """The rows of the processes that only have a GPU open.

        dead: the GPUs of the listed PIDs behind which there is no live process.  A process that was
        forked from such a one, and keeps its GPU open, is what keeps its memory: it uses that GPU.
        """
        rows = []
        for pid, (start_time, devices) in self._open.items():
            if pid in listed or not devices.gpus.intersection(self._whole):
                continue
            process = self._sources.lookup(pid)
            if process is None or process.start_time != start_time:
                continue
            ancestor = next((p for p in sorted(dead) if p in (process.session, process.pgid)), None)
            inherited: FrozenSet[str] = frozenset()
            outside = self._sources.outside.get(pid, "")
            # Who computes on a GPU of its own is no heir, whatever it was forked from.
            if ancestor is not None and not devices.monitor and not outside:
                has_open = {self._whole[minor] for minor in devices.gpus if minor in self._whole}
                inherited = frozenset(has_open.intersection(dead[ancestor]))
            rows.append(
                Holder(
                    pid=pid,
                    process=process,
                    doubt="",
                    memory=tuple((uuid, None) for uuid in sorted(inherited)),
                    evidence=devices.evidence,
                    protected_by=self._sources.protected_by(process),
                    attached=self._attached(devices, inherited),
                    monitor=devices.monitor or not devices.touched.intersection(self._whole),
                    elsewhere=self._elsewhere(devices),
                    outside=outside,
                    heir_of=ancestor if inherited else None,
                )
            )
        return rows

    def _devices_of(self, process: Optional[ProcessInfo]) -> Optional[OpenDevices]:
        if process is None or process.pid not in self._open:
            return None
        start_time, devices = self._open[process.pid]
        return devices if start_time == process.start_time else None

    def _attached(self, devices: Optional[OpenDevices], used: FrozenSet[str]) -> Tuple[str, ...]:
        """The GPUs that are open and not used, the selected ones first."""
        if devices is None:
            return ()
        of_used = {self._minor_of.get(uuid) for uuid in used}
        minors = sorted(devices.gpus.difference(m for m in of_used if m is not None))
        inside = sorted(self._whole[minor] for minor in minors if minor in self._whole)
        return tuple(inside + [self._sources.gpu_name(minor) for minor in minors if minor not in self._whole])

    def _elsewhere(self, devices: Optional[OpenDevices]) -> bool:
        return devices is not None and not devices.touched.issubset(self._whole)


def _memory_mib(rows: Sequence[ListedProcess]) -> Optional[int]:
    """What one process uses of one GPU.

    The same memory is shown in each list that the process is in, but once for each MIG instance.
    """
    by_instance: Dict[Tuple[Optional[int], Optional[int]], int] = {}
    for row in rows:
        if row.memory_mib is None:
            return None
        instance = (row.gpu_instance, row.compute_instance)
        by_instance[instance] = max(row.memory_mib, by_instance.get(instance, 0))
    return sum(by_instance.values())


def _instances(uses: Uses) -> Tuple[InstanceUse, ...]:
    found = {
        (uuid, row.gpu_instance, row.compute_instance)
        for uuid, rows in uses.items()
        for row in rows
        if row.gpu_instance is not None
    }
    return tuple(InstanceUse(*key) for key in sorted(found, key=lambda key: (key[0], key[1], key[2] or 0)))
