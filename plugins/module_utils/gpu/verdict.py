# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a GPU is free.  What is not known is never free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import (
    BUSY,
    FREE,
    NVML_V1,
    UNKNOWN,
    GpuReading,
    Holder,
    MemoryReading,
    Verdict,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.protection import Allowance

DEFAULT_MAX_USED_MIB = 256

_UNATTRIBUTED = (
    "nobody is listed as using it. Usual causes: a process in another PID namespace, container or virtual "
    "machine (look from the host itself); a child of an ended process, or a CUDA IPC peer, that keeps the "
    "memory; a driver that has not released it, or lost track of it (reset the GPU)."
)


@dataclass(frozen=True)
class Limits:
    """What still counts as free.

    max_used_mib: memory in use, in MiB; allow_mib: so much more where an allowed holder is listed.
    """

    max_used_mib: int = DEFAULT_MAX_USED_MIB
    allow_mib: int = 0
    allowance: Allowance = Allowance()


def holders_of(reading: GpuReading, holders: Sequence[Holder]) -> List[Holder]:
    """Those of the holders that this GPU's lists contain."""
    pids = {process.pid for process in reading.processes}
    return [holder for holder in holders if holder.pid in pids]


def judge(reading: GpuReading, holders: Sequence[Holder], limits: Limits) -> Verdict:
    """The verdict about one GPU; holders are those of all GPUs."""
    if reading.failure is not None:
        return Verdict(UNKNOWN, reading.failure.code, reading.failure.text, reading.failure.permanent)
    if reading.identity is None or reading.memory is None:
        return Verdict(UNKNOWN, "unread", "The GPU has not been read. Run the task again.")

    present = holders_of(reading, holders)
    foreign = [holder for holder in present if not limits.allowance.covers(holder)]
    unjoined = {process.pid for process in reading.processes} - {holder.pid for holder in present}
    if foreign or unjoined:
        users = [_with_memory(holder, reading.uuid) for holder in foreign] + ["PID %d" % p for p in sorted(unjoined)]
        return Verdict(
            BUSY,
            "holder",
            "%d MiB used, by %s. End what is not needed (gpu_reclaim), or allow it."
            % (reading.memory.used_mib, "; ".join(users)),
        )

    limit = limits.max_used_mib + (limits.allow_mib if present else 0)
    if reading.memory.used_mib <= limit:
        return Verdict(FREE, "", _free_message(reading.memory, present))
    excess = "%d MiB used, which is more than %d MiB%s" % (
        reading.memory.used_mib,
        limit,
        _v1_hint(reading.memory),
    )
    if present:
        return Verdict(
            BUSY,
            "memory",
            "%s, by the allowed %s. Raise allow_mib, or end it."
            % (excess, "; ".join(_with_memory(holder, reading.uuid) for holder in present)),
        )
    return Verdict(BUSY, "unattributed", "%s, and %s" % (excess, _UNATTRIBUTED))


def _with_memory(holder: Holder, uuid: str) -> str:
    mib = holder.per_gpu_mib.get(uuid)
    return "%s with %s" % (holder.label, "%d MiB" % mib if mib is not None else "an unknown share")


def _free_message(memory: MemoryReading, allowed: Sequence[Holder]) -> str:
    if allowed:
        return "%d MiB used, only by allowed: %s." % (memory.used_mib, "; ".join(holder.label for holder in allowed))
    return "%d MiB used and no process listed." % memory.used_mib


def _v1_hint(memory: MemoryReading) -> str:
    if memory.source != NVML_V1:
        return ""
    return " (this driver's figure contains the memory that it reserves for itself: max_used_mib must allow for it)"
