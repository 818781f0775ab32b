# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The public form of GPUs and holders: plain dictionaries, sorted and stable."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import (
    GpuReading,
    Holder,
    SystemInfo,
    Verdict,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.observer import Look
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.verdict import Limits
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.waiting import Change

# What the driver's recovery action asks for, where ending processes cannot be enough.
_BEYOND_PROCESSES = {
    "reset": "be reset",
    "node_reboot": "have its host rebooted",
    "drain_p2p": "have its peer-to-peer users ended",
    "drain_and_reset": "be drained and reset",
    "recover_imex_domain": "have its IMEX domain recovered",
    "bus_reset": "have its bus reset",
    "system_reboot": "have its host rebooted",
}


def look_result(system: SystemInfo, look: Look, limits: Limits) -> Dict[str, Any]:
    """The keys that every GPU module returns."""
    verdicts = look.verdicts(limits)
    return {
        "driver_version": system.driver_version,
        "nvml_version": system.nvml_version,
        "selected": [reading.uuid for reading in look.readings if reading.uuid],
        "gpus": [gpu_result(reading, verdict) for reading, verdict in zip(look.readings, verdicts)],
        "holders": holder_results(look.holders),
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
        "verdict": verdict.state,
        "reason": verdict.reason,
        "message": verdict.message,
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
        "exe": process.exe if process else "",
        "gpus": list(holder.gpus),
        "attached": [],
        "evidence": list(holder.evidence),
        "memory_mib": holder.memory_mib,
        "per_gpu_mib": holder.per_gpu_mib,
        "state": process.state if process else "",
        "unit": process.unit if process else None,
        "container": None,
        "protected": bool(holder.protected_by),
        "protected_by": holder.protected_by,
    }


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


def recovery_warnings(readings: Sequence[GpuReading]) -> List[str]:
    """A warning for each GPU whose driver says that it will not be sound again by itself."""
    return [
        "GPU %d (%s) needs to %s, says the driver (recovery action %s): freeing it does not repair it"
        % (reading.index, reading.uuid, _BEYOND_PROCESSES[reading.recovery_action], reading.recovery_action)
        for reading in readings
        if reading.recovery_action in _BEYOND_PROCESSES
    ]


def not_free(look: Look, limits: Limits) -> List[str]:
    """A sentence for each GPU that is not free."""
    return [
        "GPU %d (%s) is %s (%s): %s" % (r.index, r.uuid or "not identified", v.state, v.reason, v.message)
        for r, v in zip(look.readings, look.verdicts(limits))
        if v.state != "free"
    ]


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
