# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a GPU is free.  What is not known is never free."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Mapping, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import recovery
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import (
    BUSY,
    FREE,
    UNKNOWN,
    WITH_RESERVED,
    GpuReading,
    Holder,
    MemoryReading,
    Verdict,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.protection import Allowance

DEFAULT_MAX_USED_MIB = 256


@dataclass(frozen=True)
class Limits:
    """What still counts as free.

    max_used_mib: memory in use, in MiB (None: the default, unless there is a fraction);
    max_used_fraction: the same as a part of all memory, 0 to 1; baseline: MiB by UUID that were in use
    when the GPU was known to be idle, on top of which the rest comes; allow_mib: so much more where an
    allowed holder is listed.  ignore_recovery: a GPU that the driver wants reset may be free.
    """

    max_used_mib: Optional[int] = None
    max_used_fraction: Optional[float] = None
    baseline: Mapping[str, int] = field(default_factory=dict)
    allow_mib: int = 0
    allowance: Allowance = Allowance()
    ignore_recovery: bool = False

    def mib_for(self, reading: GpuReading) -> int:
        """Up to how many MiB in use this GPU is free, allowed holders aside."""
        if self.max_used_mib is not None:
            slack = self.max_used_mib
        elif self.max_used_fraction is not None and reading.memory is not None:
            slack = int(reading.memory.total_mib * self.max_used_fraction)
        else:
            slack = DEFAULT_MAX_USED_MIB
        return self.baseline.get(reading.uuid, 0) + slack

    def words_for(self, reading: GpuReading) -> str:
        """How that limit came about, or "" where it is a plain number."""
        parts = []
        if reading.uuid in self.baseline:
            parts.append("baseline %d MiB" % self.baseline[reading.uuid])
        if self.max_used_mib is None and self.max_used_fraction is not None:
            parts.append("max_used_fraction %g" % self.max_used_fraction)
        return " (%s)" % ", ".join(parts) if parts else ""


@dataclass(frozen=True)
class View:
    """What limits the sight of this task: facts that explain memory of nobody.

    scanned: descriptors and mappings have been looked at; namespaced: it runs in a PID namespace of its
    own; uninspected: how many processes it may not look into, at least; stuck: the PIDs of those among them
    that a look into never returned from; hidden: why others may be there that do not even show, "" where all do.
    """

    scanned: bool = False
    namespaced: bool = False
    uninspected: int = 0
    stuck: Tuple[int, ...] = ()
    hidden: str = ""


def holders_of(reading: GpuReading, holders: Sequence[Holder]) -> List[Holder]:
    """Those of the holders that this GPU's lists contain."""
    pids = {process.pid for process in reading.processes}
    return [holder for holder in holders if holder.pid in pids]


def judge(reading: GpuReading, holders: Sequence[Holder], limits: Limits, view: View = View()) -> Verdict:
    """The verdict about one GPU; holders are those of all GPUs."""
    # First of all: a driver that asks for a reboot may answer the rest as if nothing were wrong.
    if not limits.ignore_recovery and recovery.wanted(reading):
        return Verdict(UNKNOWN, recovery.REASON, recovery.sentence(reading), permanent=True)
    if reading.failure is not None:
        return Verdict(UNKNOWN, reading.failure.code, reading.failure.text, reading.failure.permanent)
    if reading.identity is None or reading.memory is None:
        return Verdict(UNKNOWN, "unread", "The GPU has not been read. Run the task again.")

    present = holders_of(reading, holders)
    foreign = [holder for holder in present if not limits.allowance.covers(holder)]
    unjoined = {process.pid for process in reading.processes} - {holder.pid for holder in present}
    if foreign and not unjoined and _nobody_alive(reading, foreign, holders, view):
        return Verdict(
            BUSY,
            "unattributed",
            "%d MiB used, and nobody alive uses it: the driver still lists %s. %s"
            % (reading.memory.used_mib, "; ".join(h.label for h in foreign), _explain(reading, (), view)),
        )
    if foreign or unjoined:
        users = [_with_memory(holder, reading.uuid) for holder in foreign] + ["PID %d" % p for p in sorted(unjoined)]
        heirs = [h.label for h in holders if h.heir_of is not None and reading.uuid in h.gpus]
        kept = "; what it had is kept by %s" % "; ".join(heirs) if heirs else ""
        return Verdict(
            BUSY,
            "holder",
            "%d MiB used, by %s%s. End what is not needed (gpu_reclaim), or allow it."
            % (reading.memory.used_mib, "; ".join(users), kept),
        )

    limit = limits.mib_for(reading) + (limits.allow_mib if present else 0)
    if reading.memory.used_mib <= limit:
        return Verdict(FREE, "", _free_message(reading.memory, present))
    excess = "%d MiB used, which is more than %d MiB%s%s" % (
        reading.memory.used_mib,
        limit,
        limits.words_for(reading),
        _reserved_hint(reading.memory),
    )
    if present:
        return Verdict(
            BUSY,
            "memory",
            "%s, by the allowed %s. Raise allow_mib, or end it."
            % (excess, "; ".join(_with_memory(holder, reading.uuid) for holder in present)),
        )
    return Verdict(
        BUSY, "unattributed", "%s, and nobody is listed as using it. %s" % (excess, _explain(reading, holders, view))
    )


def _nobody_alive(reading: GpuReading, foreign: Sequence[Holder], holders: Sequence[Holder], view: View) -> bool:
    """Whether the driver lists only PIDs without a process, and nobody who has the GPU open can be their heir."""
    if not view.scanned or view.uninspected:
        return False
    if any(holder.process is not None and not holder.process.dead for holder in foreign):
        return False
    return not any(
        reading.uuid in holder.attached + holder.gpus and not holder.monitor and holder not in foreign
        for holder in holders
    )


def _explain(reading: GpuReading, holders: Sequence[Holder], view: View) -> str:
    """What memory without a listed process most likely is, and what to do."""
    having_it_open = [h for h in holders if reading.uuid in h.attached + h.gpus and not h.monitor]
    if having_it_open:
        return "It is open in %s: end what of these is not needed (gpu_reclaim)." % "; ".join(
            holder.label for holder in having_it_open
        )
    causes = []
    if view.namespaced:
        causes.append(
            "this task runs in a PID namespace of its own (a container or an LXC guest), where the driver shows no "
            "process from outside: run it on the host itself"
        )
    if view.hidden:
        causes.append("%s: run the task as root (become: true)" % view.hidden)
    elif view.uninspected:
        causes.append("%d processes may not be looked into: run the task as root (become: true)" % view.uninspected)
    if reading.addressing_mode == "ats":
        causes.append(
            "the operating system may use this GPU's memory as its own (a NUMA node): give a baseline or max_used_mib"
        )
    if reading.mig_mode == "enabled" and not reading.processes:
        causes.append("MIG instances show their processes to root only")
    causes.append(
        "a process in another container or virtual machine, or a CUDA IPC peer, keeps it; or the driver has not "
        "released it or lost track of it (reset the GPU)"
    )
    nobody = "No process on this host has it open. " if view.scanned and not view.uninspected else ""
    return "%sLikely causes: %s." % (nobody, "; ".join(causes))


def _with_memory(holder: Holder, uuid: str) -> str:
    mib = holder.per_gpu_mib.get(uuid)
    return "%s with %s" % (holder.label, "%d MiB" % mib if mib is not None else "an unknown share")


def _free_message(memory: MemoryReading, allowed: Sequence[Holder]) -> str:
    if allowed:
        return "%d MiB used, only by allowed: %s." % (memory.used_mib, "; ".join(holder.label for holder in allowed))
    return "%d MiB used and no process listed." % memory.used_mib


def _reserved_hint(memory: MemoryReading) -> str:
    if memory.source not in WITH_RESERVED:
        return ""
    return " (this driver's figure contains the memory that it reserves for itself: max_used_mib must allow for it)"
