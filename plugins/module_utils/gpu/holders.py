# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Joins NVML's process lists with what /proc says about the processes: one Holder for each PID."""

from __future__ import annotations

from typing import Callable, Dict, List, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import GpuReading, Holder, ListedProcess
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessInfo

GONE = (
    "no such process here: it has ended and a process that inherited its GPU handles keeps the memory, "
    "or it runs in another PID namespace"
)
REUSED = "the driver means an earlier process: the one that has this PID now has no NVIDIA device open"
ZOMBIE = "a zombie: a thread of it, or a process that inherited its GPU handles, keeps the memory"
ENDING = "it is ending and has not released the GPU yet"


def join(
    readings: Sequence[GpuReading],
    lookup: Callable[[int], Optional[ProcessInfo]],
    protected_by: Callable[[ProcessInfo], str],
    holds_device: Callable[[ProcessInfo], Optional[bool]],
) -> Tuple[Holder, ...]:
    """The processes that NVML lists on these GPUs, by ascending PID.

    lookup reads a process (None: there is none); holds_device says whether it has an NVIDIA device open
    (None: cannot be told, which is no evidence against it).
    """
    listed: Dict[int, Dict[str, List[ListedProcess]]] = {}
    for reading in readings:
        for process in reading.processes:
            listed.setdefault(process.pid, {}).setdefault(reading.uuid, []).append(process)
    return tuple(_holder(pid, listed[pid], lookup, protected_by, holds_device) for pid in sorted(listed))


def _holder(
    pid: int,
    uses: Dict[str, List[ListedProcess]],
    lookup: Callable[[int], Optional[ProcessInfo]],
    protected_by: Callable[[ProcessInfo], str],
    holds_device: Callable[[ProcessInfo], Optional[bool]],
) -> Holder:
    process = lookup(pid)
    doubt = ""
    if process is None:
        doubt = GONE
    elif process.dead:
        doubt = ZOMBIE
    elif not process.exe and not process.argv:  # its memory is gone already, its descriptors are not
        doubt = ENDING
    elif holds_device(process) is False:
        process, doubt = None, REUSED
    kinds = sorted({"nvml_" + use.kind for rows in uses.values() for use in rows})
    return Holder(
        pid=pid,
        process=process,
        doubt=doubt,
        memory=tuple((uuid, _memory_mib(uses[uuid])) for uuid in sorted(uses)),
        evidence=tuple(kinds),
        protected_by=protected_by(process) if process is not None else "",
    )


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
