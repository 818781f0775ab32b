# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known about GPUs and about the processes that use them, as plain values.

Nothing in here reads or decides anything.  All memory is in MiB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Optional, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessInfo

FREE = "free"
BUSY = "busy"
UNKNOWN = "unknown"

NVML_V1 = "nvml_v1"
NVML_V2 = "nvml_v2"

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
    """Which GPU it is.  minor is the N of /dev/nvidiaN, which need not be the NVML index."""

    index: int
    uuid: str
    pci_bus_id: str
    minor: Optional[int]
    name: str


@dataclass(frozen=True)
class MemoryReading:
    """A GPU's memory in MiB.

    source nvml_v2: used is what processes allocated.  source nvml_v1: used also contains what the
    driver keeps for itself (hundreds of MiB on some cards), and reserved_mib is not known.
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
class GpuReading:
    """One GPU at one moment.

    With a failure the rest is what could be learnt nevertheless: never evidence that a GPU is free.
    """

    index: int
    identity: Optional[GpuIdentity] = None
    memory: Optional[MemoryReading] = None
    processes: Tuple[ListedProcess, ...] = ()
    persistence_mode: str = UNKNOWN
    mig_mode: str = UNKNOWN
    recovery_action: str = UNKNOWN
    failure: Optional[Failure] = None

    @property
    def uuid(self) -> str:
        """The UUID, or "" where the GPU could not be identified."""
        return self.identity.uuid if self.identity else ""


@dataclass(frozen=True)
class Holder:
    """A process that uses GPUs, joined from NVML's lists and /proc.

    memory maps the UUID of each GPU it uses to MiB (None: the driver does not say).  doubt is "" or
    says why this PID must not be signalled; process is None where the PID names no process that could
    be the one the driver means.
    """

    pid: int
    process: Optional[ProcessInfo]
    doubt: str
    memory: Tuple[Tuple[str, Optional[int]], ...]
    evidence: Tuple[str, ...]
    protected_by: str = ""

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
        return sum(known) if len(known) == len(self.memory) else None

    @property
    def key(self) -> Tuple[int, Optional[int]]:
        """PID and start time: what tells this process from a later one with the same PID."""
        return self.pid, self.process.start_time if self.process else None

    @property
    def label(self) -> str:
        """It in words, for messages: PID, name, user, unit, state where that matters."""
        if self.process is None:
            return "PID %d (%s)" % (self.pid, self.doubt)
        words = "PID %d %s of %s" % (self.pid, self.process.name or "?", self.process.user)
        if self.process.unit:
            words += " in %s" % self.process.unit
        if self.process.state not in ("R", "S", "I"):
            words += " in state %s" % self.process.state
        if self.doubt:
            words += " (%s)" % self.doubt
        return words


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
