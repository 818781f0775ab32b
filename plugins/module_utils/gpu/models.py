# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known about GPUs and about the processes that use them, as plain values.

Nothing in here reads or decides anything.  All memory is in MiB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Optional, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessInfo
from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import visible

FREE = "free"
BUSY = "busy"
UNKNOWN = "unknown"

NVML_V1 = "nvml_v1"
NVML_V2 = "nvml_v2"
NVIDIA_SMI = "nvidia_smi"
NVIDIA_SMI_V1 = "nvidia_smi_v1"
# The sum over the GPU's MIG instances, where the figure of the whole GPU is denied.
MIG_INSTANCES = "mig_instances"
# Sources whose figure of used memory contains what the driver keeps for itself.
WITH_RESERVED = frozenset([NVML_V1, NVIDIA_SMI_V1])

COMPUTE = "compute"
GRAPHICS = "graphics"
MPS = "mps"


@dataclass(frozen=True)
class Failure:
    """Why something could not be learnt.

    code is one stable word for programs; message says what happened, remedy what to do about it.
    permanent: asking again soon cannot help.
    """

    code: str
    message: str
    remedy: str
    permanent: bool = False

    @property
    def text(self) -> str:
        """Message and remedy as sentences."""
        return "%s. %s." % (self.message.rstrip("."), self.remedy.rstrip("."))


def without_figures(failure: Failure) -> Failure:
    """What it means that the driver gives no memory figures for a whole GPU."""
    return Failure(
        failure.code,
        "The driver gives no memory figures for this GPU, as where it shares the memory of the system (GB10): %s"
        % failure.message,
        "Its processes are known and can be ended; that it is free cannot be proven",
        permanent=True,
    )


class GpuError(Exception):
    """A failure that ends the task; str() of it is fit for people."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure


@dataclass(frozen=True)
class SystemInfo:
    """The driver as a whole; count includes GPUs that cannot be opened."""

    driver_version: str
    nvml_version: str
    count: int


@dataclass(frozen=True)
class GpuIdentity:
    """Which GPU it is.  minor is the N of /dev/nvidiaN, which need not be the NVML index.

    A MIG instance that is looked at by itself has the index, PCI bus id and minor of its GPU, and a
    UUID of its own.
    """

    index: int
    uuid: str
    pci_bus_id: str
    minor: Optional[int]
    name: str


@dataclass(frozen=True)
class MemoryReading:
    """A GPU's memory in MiB.

    used is what processes allocated.  Where the source is one of WITH_RESERVED, it also contains what
    the driver keeps for itself (hundreds of MiB on some cards), and reserved_mib is not known.
    """

    total_mib: int
    used_mib: int
    reserved_mib: Optional[int]
    source: str


@dataclass(frozen=True)
class ListedProcess:
    """A process in one of NVML's three lists.

    memory_mib is None where the driver does not say; the instances are None without MIG.
    """

    pid: int
    kind: str
    memory_mib: Optional[int]
    gpu_instance: Optional[int] = None
    compute_instance: Optional[int] = None


@dataclass(frozen=True)
class MigDevice:
    """One MIG instance of a GPU; uuid is "" and memory None where they could not be learnt."""

    uuid: str
    gpu_instance: int
    compute_instance: int
    memory: Optional[MemoryReading] = None


@dataclass(frozen=True)
class GpuReading:
    """One GPU at one moment, or one MIG instance of it (instance says which).

    With a failure the rest is what could be learnt nevertheless: never evidence that a GPU is free.
    addressing_mode is none, hmm or ats (the operating system may own the GPU's memory),
    not_supported or unknown.  processes_read: its lists are complete, whatever else failed.
    """

    index: int
    identity: Optional[GpuIdentity] = None
    memory: Optional[MemoryReading] = None
    processes: Tuple[ListedProcess, ...] = ()
    persistence_mode: str = UNKNOWN
    mig_mode: str = UNKNOWN
    recovery_action: str = UNKNOWN
    addressing_mode: str = UNKNOWN
    mig_devices: Tuple[MigDevice, ...] = ()
    instance: Optional[MigDevice] = None
    processes_read: bool = False
    failure: Optional[Failure] = None

    @property
    def uuid(self) -> str:
        """The UUID, or "" where the GPU could not be identified."""
        return self.identity.uuid if self.identity else ""

    @property
    def minor(self) -> Optional[int]:
        """The N of its /dev/nvidiaN, or None where it is not known."""
        return self.identity.minor if self.identity else None


@dataclass(frozen=True)
class InstanceUse:
    """Which MIG instance a process is listed on; uuid is the GPU's."""

    uuid: str
    gpu_instance: int
    compute_instance: Optional[int]


@dataclass(frozen=True)
class Holder:
    """A process that uses GPUs or has them open, joined from NVML's lists and /proc.

    memory maps the UUID of each GPU it uses to MiB (None: the driver does not say); attached are the
    GPUs that it merely has open, by UUID, or as /dev/nvidiaN where the UUID was not asked for.
    monitor: it only asks the driver about the selected GPUs, as nvtop does.  elsewhere: it may be using
    GPUs outside the selection; outside says that it does, or that it cannot be told: such a process is not
    ended for what it merely has open.  doubt is "" or says why this PID must not be signalled; process is
    None where the PID names no process that could be the one the driver means.
    """

    pid: int
    process: Optional[ProcessInfo]
    doubt: str
    memory: Tuple[Tuple[str, Optional[int]], ...]
    evidence: Tuple[str, ...]
    protected_by: str = ""
    attached: Tuple[str, ...] = ()
    instances: Tuple[InstanceUse, ...] = ()
    monitor: bool = False
    elsewhere: bool = False
    outside: str = ""
    heir_of: Optional[int] = None

    @property
    def listed(self) -> bool:
        """Whether the driver lists it."""
        return any(kind.startswith("nvml_") for kind in self.evidence)

    @property
    def gpus(self) -> Tuple[str, ...]:
        """The UUIDs of the GPUs it uses."""
        return tuple(uuid for uuid, _mib in self.memory)

    @property
    def per_gpu_mib(self) -> Dict[str, Optional[int]]:
        """MiB by UUID."""
        return dict(self.memory)

    @property
    def memory_mib(self) -> Optional[int]:
        """MiB on all its GPUs together; None where any part of it is not known."""
        known = [mib for _uuid, mib in self.memory if mib is not None]
        return sum(known) if known and len(known) == len(self.memory) else None

    @property
    def key(self) -> Tuple[int, Optional[int]]:
        """PID and start time: what tells this process from a later one with the same PID."""
        return self.pid, self.process.start_time if self.process else None

    @property
    def label(self) -> str:
        """It in words, for messages: PID, name, user, unit, container, state where that matters."""
        if self.process is None:
            return "PID %d (%s)" % (self.pid, self.doubt)
        words = "PID %d %s of %s" % (self.pid, printable(self.process.name) or "?", self.process.user)
        if self.process.unit:
            words += " in %s" % self.process.unit
        if self.process.container:
            words += " in %s" % self.process.container.label
        if self.process.state not in ("R", "S", "I"):
            words += " in state %s" % self.process.state
        if self.doubt:
            words += " (%s)" % self.doubt
        return words


def printable(text: str, longest: int = 80) -> str:
    """Text that a process chose, in which everything shows and nothing steers a terminal, and not endless."""
    return visible(text, longest)


@dataclass(frozen=True)
class Verdict:
    """Whether a GPU can be given to a new server.

    state: free, busy or unknown; reason: a stable code, "" where free; message: one or two sentences
    with the remedy.  permanent: waiting cannot change it.
    """

    state: str
    reason: str
    message: str
    permanent: bool = False
