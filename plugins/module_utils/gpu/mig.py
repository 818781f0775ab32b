# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG instances: one as a device of its own, cut out of the reading of its GPU, and all of them together."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import (
    MIG_INSTANCES,
    Failure,
    GpuReading,
    ListedProcess,
    MemoryReading,
    MigDevice,
)

# Failures of a question about a whole GPU that its instances may still answer.
DENIED = frozenset(["no_permission", "not_supported"])


def memory_together(instances: Sequence[MigDevice]) -> Optional[MemoryReading]:
    """The memory of all instances of a GPU; None where there are none, or one does not tell its own."""
    parts = [device.memory for device in instances if device.memory is not None]
    if not parts or len(parts) != len(instances):
        return None
    return MemoryReading(
        total_mib=sum(part.total_mib for part in parts),
        used_mib=sum(part.used_mib for part in parts),
        reserved_mib=None,
        source=MIG_INSTANCES,
    )


def of_instance(reading: GpuReading, uuid: str) -> GpuReading:
    """The reading of one instance; `reading` is that of its whole GPU.  What is not known stays unknown."""
    device = next((d for d in reading.mig_devices if d.uuid == uuid), None)
    identity = replace(reading.identity, uuid=uuid) if reading.identity else None
    if device is None:
        gone = Failure(
            "mig_instance_gone",
            "GPU %d has no MIG instance %s any more" % (reading.index, uuid),
            "Instances were created or destroyed meanwhile: run the task again",
            permanent=True,
        )
        unreadable = MigDevice(uuid, -1, -1)
        return replace(
            reading,
            identity=identity,
            memory=None,
            processes=(),
            instance=unreadable,
            processes_read=False,
            failure=reading.failure or gone,
        )
    failure = reading.failure
    processes = tuple(row for row in reading.processes if _on(row, device))
    if failure is None and any(row.gpu_instance is None for row in reading.processes):
        failure = Failure(
            "mig_instance_unknown",
            "The driver does not say on which MIG instance of GPU %d its processes run" % reading.index,
            "Run the task as root (become: true), or select the whole GPU",
        )
    if failure is None and device.memory is None:
        failure = Failure(
            "no_permission",
            "The memory of MIG instance %s cannot be read" % uuid,
            "Run the task as root (become: true)",
            permanent=True,
        )
    return replace(
        reading,
        identity=identity,
        memory=device.memory,
        processes=processes,
        instance=device,
        processes_read=failure is None,
        failure=failure,
    )


def _on(row: ListedProcess, device: MigDevice) -> bool:
    return row.gpu_instance == device.gpu_instance and row.compute_instance in (None, device.compute_instance)
