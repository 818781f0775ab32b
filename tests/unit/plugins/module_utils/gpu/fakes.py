# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stand-ins for NVML, for a session and for time, and short ways to make values."""

from __future__ import annotations

from types import SimpleNamespace

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import (
    COMPUTE,
    NVML_V2,
    GpuIdentity,
    GpuReading,
    Holder,
    ListedProcess,
    MemoryReading,
    SystemInfo,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessInfo

MIB = 1 << 20


def uuid(index):
    """The UUID of the fake GPU with this index, or of the MIG instance with this handle ("mig0")."""
    if isinstance(index, str):
        return "MIG-%08x-0000-5000-8000-000000000000" % int(index[3:])
    return "GPU-%08x-0000-4000-8000-%012x" % (0xA0000000 + index * 0x01010101, index)


def identity(index):
    return GpuIdentity(index, uuid(index), "00000000:%02X:00.0" % (index + 1), 7 - index, "Fake GPU")


def listed(pid, mib=1000, kind=COMPUTE, **instances):
    return ListedProcess(pid, kind, mib, **instances)


def reading(index=0, used=0, processes=(), **changes):
    """A sound reading of an 80 GiB GPU."""
    fields = {
        "identity": identity(index),
        "memory": MemoryReading(81920, used, 600, NVML_V2),
        "processes": tuple(processes),
        "persistence_mode": "enabled",
        "mig_mode": "disabled",
        "recovery_action": "none",
        "addressing_mode": "none",
    }
    fields.update(changes)
    fields.setdefault("processes_read", fields.get("failure") is None)
    return GpuReading(index, **fields)


def process(pid, **changes):
    """A process of user 1000 that runs Python."""
    fields = {
        "pid": pid,
        "start_time": 5000 + pid,
        "ppid": 1,
        "state": "S",
        "comm": "python3",
        "exe": "/opt/llm/bin/python3.12",
        "argv": ("sglang::scheduler_TP0",),
        "uid": 1000,
        "user": "llm",
        "session": pid,
        "pgid": pid,
        "cgroup": "",
        "unit": None,
        "started_at": 1796000000.5,
    }
    fields.update(changes)
    return ProcessInfo(**fields)


def holder(pid, gpus=(0,), mib=1000, doubt="", protected_by="", info=True, attached=(), **changes):
    """A holder of the fake GPUs with these indices; info=False: there is no such process.

    attached are the indices of those that it merely has open; without gpus it is listed nowhere.
    """
    own = {
        name: changes.pop(name)
        for name in ("monitor", "elsewhere", "outside", "heir_of", "evidence")
        if name in changes
    }
    listed_evidence = ("nvml_compute",) if gpus and "heir_of" not in own else ()
    return Holder(
        pid=pid,
        process=process(pid, **changes) if info else None,
        doubt=doubt,
        memory=tuple((uuid(index), mib) for index in gpus),
        evidence=own.pop("evidence", listed_evidence + (("fd",) if attached else ())),
        protected_by=protected_by,
        attached=tuple(uuid(index) for index in attached),
        **own,
    )


class FakeClock:
    """Time that passes only when somebody sleeps."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class FakeSession:
    """An NVML session whose readings come from `read_one(index)`."""

    reader = "nvml"

    def __init__(self, read_one, count=2, pids=frozenset()):
        self.system = SystemInfo("580.159.04", "13.580.159.04", count)
        self.pids = frozenset(pids)
        self.read_one = read_one
        self.closed = False
        self.identified = []

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.closed = True

    def identify(self, indices):
        self.identified.extend(indices)
        return tuple(GpuReading(i, identity=identity(i)) for i in indices)

    def read(self, indices):
        return tuple(self.read_one(index) for index in indices)


class NVMLError(Exception):
    """Like the binding's: the code is in `value`."""

    def __init__(self, value):
        super().__init__("error %d" % value)
        self.value = value


class NVMLLibraryMismatchError(Exception):
    """Like the binding's: not an NVMLError."""


def _memory(version):
    parts = {"total": 81920 * MIB, "used": 4 * MIB + 1, "free": 81315 * MIB - 1}
    if version:
        return SimpleNamespace(reserved=601 * MIB, **parts)
    parts["used"] += 601 * MIB  # version 1 counts it as used
    return SimpleNamespace(**parts)


def default_answers(count):
    """What the functions of the binding return for `count` sound and idle GPUs."""
    return {
        "nvmlInit": None,
        "nvmlSystemGetDriverVersion": b"580.1",
        "nvmlSystemGetNVMLVersion": "13.580.1",
        "nvmlDeviceGetCount": count,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": uuid,
        "nvmlDeviceGetPciInfo": lambda handle: SimpleNamespace(busId=identity(handle).pci_bus_id),
        "nvmlDeviceGetMinorNumber": lambda handle: identity(handle).minor,
        "nvmlDeviceGetName": "Fake GPU",
        "nvmlDeviceGetPersistenceMode": 1,
        "nvmlDeviceGetMigMode": lambda _handle: [0, 0],
        "nvmlDeviceGetAddressingMode": 0,
        "nvmlDeviceGetGpuInstanceId": lambda handle: int(str(handle)[3:]) + 1,
        "nvmlDeviceGetComputeInstanceId": 0,
        "nvmlDeviceGetMemoryInfo": lambda _handle, version=None: _memory(version),
        "nvmlDeviceGetFieldValues": lambda _handle, fields: [field_value(0) for _field in fields],
        "nvmlDeviceGetComputeRunningProcesses": [],
        "nvmlDeviceGetGraphicsRunningProcesses": [],
        "nvmlDeviceGetMPSComputeRunningProcesses": [],
    }


class FakePynvml:
    """The part of nvidia-ml-py that the reader uses; `calls` are the functions it called.

    answers replaces a function's result: by a value, an exception to raise, or a callable that gets the
    function's arguments.  missing are names that the binding does not have.
    """

    def __init__(self, count=2, missing=(), **answers):
        self.answers = {**default_answers(count), **answers}
        self.calls = []
        self._missing = missing

    def __getattr__(self, name):
        if name == "nvmlMemory_v2" and name not in self._missing:
            return 0x2000028
        if name not in self.answers:
            raise AttributeError(name)

        def function(*args, **kwargs):
            self.calls.append(name)
            answer = self.answers[name]
            if isinstance(answer, Exception):
                raise answer
            return answer(*args, **kwargs) if callable(answer) else answer

        return function


def field_value(number, code=0):
    """One value of nvmlDeviceGetFieldValues."""
    return SimpleNamespace(nvmlReturn=code, value=SimpleNamespace(uiVal=number))


def row(pid, used=1000 * MIB, gi=0xFFFFFFFF, ci=0xFFFFFFFF):
    """One row of a process list as the binding returns it (bytes)."""
    return SimpleNamespace(pid=pid, usedGpuMemory=used, gpuInstanceId=gi, computeInstanceId=ci)
