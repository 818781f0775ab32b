# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The public form of GPUs and holders: plain dictionaries, sorted and stable."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Dict, List, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import (
    FREE,
    GpuReading,
    Holder,
    MigDevice,
    Verdict,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.observer import Look
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.recovery import warnings as recovery_warnings
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.verdict import Limits
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.waiting import Change
from ansible_collections.inferops.sglang.plugins.module_utils.system.containers import Container
from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import PATH, visible

if TYPE_CHECKING:
    from ansible_collections.inferops.sglang.plugins.module_utils.gpu.open import Session


def look_result(session: Session, look: Look, limits: Limits) -> Dict[str, Any]:
    """The keys that every GPU module returns."""
    verdicts = look.verdicts(limits)
    system = session.system
    return {
        "reader": session.reader,
        "driver_version": system.driver_version,
        "nvml_version": system.nvml_version,
        "selected": [reading.uuid for reading in look.readings if reading.uuid],
        "gpus": [gpu_result(reading, verdict) for reading, verdict in zip(look.readings, verdicts)],
        "holders": holder_results(look.holders),
        "uninspected": look.view.uninspected,
    }


def gpu_result(reading: GpuReading, verdict: Verdict) -> Dict[str, Any]:
    """One GPU; what is not known is null, or "" for text."""
    identity, memory = reading.identity, reading.memory
    return {
        "index": reading.index,
        "uuid": reading.uuid,
        "pci_bus_id": identity.pci_bus_id if identity else "",
        "minor": identity.minor if identity else None,
        "name": identity.name if identity else "",
        "memory_total_mib": memory.total_mib if memory else None,
        "memory_used_mib": memory.used_mib if memory else None,
        "memory_reserved_mib": memory.reserved_mib if memory else None,
        "memory_source": memory.source if memory else "",
        "persistence_mode": reading.persistence_mode,
        "mig_mode": reading.mig_mode,
        "recovery_action": reading.recovery_action,
        "addressing_mode": reading.addressing_mode,
        "mig_devices": [_mig_result(device) for device in reading.mig_devices] if not reading.instance else [],
        "mig_instance": _mig_result(reading.instance) if reading.instance else None,
        "verdict": verdict.state,
        "reason": verdict.reason,
        "message": verdict.message,
    }


def _mig_result(device: MigDevice) -> Dict[str, Any]:
    return {
        "uuid": device.uuid,
        "gpu_instance": device.gpu_instance,
        "compute_instance": device.compute_instance,
        "memory_total_mib": device.memory.total_mib if device.memory else None,
        "memory_used_mib": device.memory.used_mib if device.memory else None,
    }


def holder_results(holders: Sequence[Holder]) -> List[Dict[str, Any]]:
    """The holders by ascending PID."""
    return [holder_result(holder) for holder in sorted(holders, key=lambda holder: holder.pid)]


def holder_result(holder: Holder) -> Dict[str, Any]:
    """One holder.  Its command line is left out: it may contain secrets."""
    process = holder.process
    return {
        "pid": holder.pid,
        "start_time": _utc(process.started_at) if process else None,
        "start_ticks": process.start_time if process else None,
        "user": process.user if process else None,
        "name": process.name if process else "",
        "exe": visible(process.exe, PATH) if process else "",
        "gpus": list(holder.gpus),
        "attached": list(holder.attached),
        "evidence": list(holder.evidence),
        "memory_mib": holder.memory_mib,
        "per_gpu_mib": holder.per_gpu_mib,
        "mig": [
            {"uuid": use.uuid, "gpu_instance": use.gpu_instance, "compute_instance": use.compute_instance}
            for use in holder.instances
        ],
        "state": process.state if process else "",
        "unit": process.unit if process else None,
        "cgroup": visible(process.cgroup, PATH) if process else "",
        "container": container_result(process.container) if process and process.container else None,
        "namespace_pid": process.namespace_pid if process else None,
        "protected": bool(holder.protected_by),
        "protected_by": holder.protected_by,
    }


def container_result(container: Container) -> Dict[str, Any]:
    """A container; name is "" where only the id is known."""
    return {"runtime": container.runtime, "id": visible(container.id), "name": visible(container.name)}


def change_result(change: Change) -> Dict[str, Any]:
    """One entry of a timeline."""
    return {
        "at": change.at,
        "index": change.index,
        "used_mib": change.used_mib,
        "holders": list(change.holders),
        "verdict": change.verdict,
        "reason": change.reason,
    }


def baseline_of(look: Look) -> Dict[str, int]:
    """MiB in use by UUID, of the GPUs that could be read and that nobody is listed on."""
    return {
        reading.uuid: reading.memory.used_mib
        for reading in look.readings
        if reading.uuid and reading.memory is not None and reading.failure is None and not reading.processes
    }


def warnings_of(look: Look, root: bool) -> List[str]:
    """What a person should know about a look: GPUs that are not sound, and what could not be seen."""
    found = recovery_warnings(look.readings)
    for pid in look.view.stuck:
        found.append(
            "PID %d is stuck in the kernel: a look at what it has open does not return. It may hold a GPU" % pid
        )
    if look.view.hidden:
        found.append(
            "%s: who holds a GPU cannot be told of them: run the task as root (become: true)" % look.view.hidden
        )
        return found
    hidden = look.view.uninspected - len(look.view.stuck)
    if hidden > 0 and not root:
        found.append(
            "%d processes of other users could not be looked into, so that who only has a GPU open is not known: run "
            "the task as root (become: true)" % hidden
        )
    return found


def not_free(look: Look, limits: Limits, state: str = "") -> List[str]:
    """A sentence for each GPU that is not free, or whose verdict is this one."""
    return [
        "GPU %d (%s) is %s (%s): %s" % (r.index, r.uuid or "not identified", v.state, v.reason, v.message)
        for r, v in zip(look.readings, look.verdicts(limits))
        if (v.state == state if state else v.state != FREE)
    ]


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
