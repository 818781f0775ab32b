# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads GPUs through NVML, by way of an nvidia-ml-py that the caller hands in.

Every call may block for ever in the driver, so this runs in a disposable process (nvml_child.py).
What cannot be read becomes a Failure: an answer is never filled in by a guess, and a list that
could not be read never passes for an empty one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Sequence, Tuple, TypeVar

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import nvml_errors
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.mig import DENIED, memory_together
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import (
    COMPUTE,
    GRAPHICS,
    MPS,
    NVML_V1,
    NVML_V2,
    UNKNOWN,
    Failure,
    GpuIdentity,
    GpuReading,
    ListedProcess,
    MemoryReading,
    MigDevice,
    SystemInfo,
    without_figures,
)

T = TypeVar("T")

_MIB = 1 << 20
_NO_INSTANCE = 0xFFFFFFFF
_FIELD_RECOVERY_ACTION = 230
_LIST_ATTEMPTS = 3
# The parts of memory v2 add up to the total exactly on sound drivers.
_SUM_TOLERANCE_MIB = 64

# nvmlDeviceAddressingModeType_t
_ADDRESSING_MODES = {0: "none", 1: "hmm", 2: "ats"}

RECOVERY_ACTIONS = {
    0: "none",
    1: "reset",
    2: "node_reboot",
    3: "drain_p2p",
    4: "drain_and_reset",
    5: "recover_imex_domain",
    6: "bus_reset",
    7: "system_reboot",
}

_LISTS = (
    (COMPUTE, "nvmlDeviceGetComputeRunningProcesses"),
    (GRAPHICS, "nvmlDeviceGetGraphicsRunningProcesses"),
    (MPS, "nvmlDeviceGetMPSComputeRunningProcesses"),
)
# Errors that mean "there can be no such process here".  A driver without the MPS list shows MPS clients
# in its compute list; a driver without one of the other two lists cannot be trusted to show everybody.
_MEANS_NONE: Dict[str, FrozenSet[int]] = {
    COMPUTE: frozenset(),
    GRAPHICS: frozenset([nvml_errors.NOT_SUPPORTED]),
    MPS: frozenset([nvml_errors.NOT_SUPPORTED, nvml_errors.FUNCTION_NOT_FOUND]),
}
# Errors of memory v2 after which v1 may still answer.
_TRY_V1 = frozenset([nvml_errors.NOT_SUPPORTED, nvml_errors.FUNCTION_NOT_FOUND, nvml_errors.ARGUMENT_VERSION_MISMATCH])


class _Unreadable(Exception):
    """Carries a Failure out of the steps of one reading."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class GpuReader:
    """One NVML session.  Call `open` first; handles are kept, values are read anew each time."""

    def __init__(self, pynvml: Any, pid_max: int) -> None:
        self._pynvml = pynvml
        self._pid_max = pid_max
        self._handles: Dict[int, Any] = {}
        self._identities: Dict[int, GpuIdentity] = {}

    def open(self) -> SystemInfo:
        """Start the session; opens no GPU yet.  Raises what the binding raises."""
        self._call("nvmlInit")
        return SystemInfo(
            driver_version=_text(self._call("nvmlSystemGetDriverVersion")),
            nvml_version=_text(self._call("nvmlSystemGetNVMLVersion")),
            count=int(self._call("nvmlDeviceGetCount")),
        )

    def identify(self, index: int) -> GpuReading:
        """Which GPU an index is: a reading without memory and processes."""
        try:
            return GpuReading(index, identity=self._identity(index))
        except _Unreadable as exc:
            return GpuReading(index, failure=exc.failure)

    def traits(self, index: int) -> Dict[str, Any]:
        """What decides how a GPU may be reset, as `traits_from_dict` takes it.  Never raises."""
        from ansible_collections.inferops.sglang.plugins.module_utils.gpu import reset_traits

        try:
            self._identity(index)
        except _Unreadable:
            return reset_traits.traits_to_dict(reset_traits.GpuTraits(index))
        reader = reset_traits.TraitsReader(self._call, nvml_errors.nvml_code, self._pynvml)
        return reset_traits.traits_to_dict(reader.read(index, self._handles[index]))

    def read(self, index: int) -> GpuReading:
        """Everything about one GPU now.  Never raises."""
        try:
            identity = self._identity(index)
        except _Unreadable as exc:
            return GpuReading(index, failure=exc.failure)
        handle = self._handles[index]
        # Asked first: a driver that wants a reboot may answer nothing after it.
        recovery_action = self._recovery_action(handle)
        mig_mode = self._mig_mode(handle)
        memory: Optional[MemoryReading] = None
        processes: Tuple[ListedProcess, ...] = ()
        mig: Tuple[Tuple[Any, MigDevice], ...] = ()
        processes_read = False
        failure: Optional[Failure] = None
        try:
            mig = self._mig_devices(handle) if mig_mode == "enabled" else ()
            try:
                memory = self._memory(handle, mig_mode, [device for _handle, device in mig])
            except _Unreadable as exc:
                if exc.failure.code != "not_supported":
                    raise
                failure = without_figures(exc.failure)
            processes = self._processes(handle, mig)
            processes_read = True
        except _Unreadable as exc:
            failure = exc.failure
        return GpuReading(
            index,
            identity=identity,
            memory=memory,
            processes=processes,
            persistence_mode=self._persistence_mode(handle),
            mig_mode=mig_mode,
            recovery_action=recovery_action,
            addressing_mode=self._addressing_mode(handle),
            mig_devices=tuple(device for _handle, device in mig),
            processes_read=processes_read,
            failure=failure,
        )

    # -- one question each

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        function = getattr(self._pynvml, name, None)
        if function is None:
            raise nvml_errors.MissingFunction(name)
        return function(*args, **kwargs)

    def _identity(self, index: int) -> GpuIdentity:
        if index in self._identities:
            return self._identities[index]

        def ask() -> GpuIdentity:
            handle = self._call("nvmlDeviceGetHandleByIndex", index)
            identity = GpuIdentity(
                index=index,
                uuid=_text(self._call("nvmlDeviceGetUUID", handle)),
                pci_bus_id=_text(self._call("nvmlDeviceGetPciInfo", handle).busId),
                minor=self._minor(handle),
                name=_text(self._call("nvmlDeviceGetName", handle)),
            )
            self._handles[index] = handle
            return identity

        self._identities[index] = _explained("opening it", ask)
        return self._identities[index]

    def _minor(self, handle: Any) -> Optional[int]:
        try:
            return int(self._call("nvmlDeviceGetMinorNumber", handle))
        except Exception as exc:  # pylint: disable=broad-except
            if nvml_errors.nvml_code(exc) == nvml_errors.NOT_SUPPORTED:  # WSL has no device nodes
                return None
            raise

    def _memory(self, handle: Any, mig_mode: str, mig: Sequence[MigDevice]) -> MemoryReading:
        """The memory of a whole GPU; where that is denied, what its MIG instances have together."""
        doing = "reading its memory"
        if mig_mode == "enabled":
            doing += " (in MIG mode the memory of the whole GPU is shown to root only)"
        try:
            return self._memory_of(handle, doing)
        except _Unreadable as exc:
            together = memory_together(mig) if exc.failure.code in DENIED else None
            if together is None:
                raise
            return together

    def _memory_of(self, handle: Any, doing: str) -> MemoryReading:
        try:
            version = getattr(self._pynvml, "nvmlMemory_v2", None)
            if version is None:
                raise nvml_errors.MissingFunction("nvmlMemory_v2")
            return _memory_v2(self._call("nvmlDeviceGetMemoryInfo", handle, version=version))
        except _Unreadable:
            raise
        except Exception as exc:  # pylint: disable=broad-except
            if nvml_errors.nvml_code(exc) in _TRY_V1:
                return _explained(doing, lambda: _memory_v1(self._call("nvmlDeviceGetMemoryInfo", handle)))
            raise _Unreadable(nvml_errors.failure_of(exc, doing)) from exc

    def _persistence_mode(self, handle: Any) -> str:
        return self._mode("nvmlDeviceGetPersistenceMode", handle, lambda value: value)

    def _mig_mode(self, handle: Any) -> str:
        return self._mode("nvmlDeviceGetMigMode", handle, lambda value: value[0])

    def _mode(self, name: str, handle: Any, pick: Callable[[Any], Any]) -> str:
        """An on/off property that is for information: an error is told, not raised."""
        try:
            return "enabled" if int(pick(self._call(name, handle))) else "disabled"
        except Exception as exc:  # pylint: disable=broad-except
            return "not_supported" if _is_absence(nvml_errors.nvml_code(exc)) else UNKNOWN

    def _recovery_action(self, handle: Any) -> str:
        try:
            field = self._call("nvmlDeviceGetFieldValues", handle, [_FIELD_RECOVERY_ACTION])[0]
            if field.nvmlReturn:  # the call may succeed while this one value did not
                return "not_supported" if _is_absence(int(field.nvmlReturn)) else UNKNOWN
            return RECOVERY_ACTIONS.get(int(field.value.uiVal), UNKNOWN)
        except Exception as exc:  # pylint: disable=broad-except
            return "not_supported" if _is_absence(nvml_errors.nvml_code(exc)) else UNKNOWN

    def _addressing_mode(self, handle: Any) -> str:
        try:
            answer = self._call("nvmlDeviceGetAddressingMode", handle)
            return _ADDRESSING_MODES.get(int(getattr(answer, "value", answer)), UNKNOWN)
        except Exception as exc:  # pylint: disable=broad-except
            return "not_supported" if _is_absence(nvml_errors.nvml_code(exc)) else UNKNOWN

    # -- the three process lists

    def _processes(self, handle: Any, mig: Sequence[Tuple[Any, MigDevice]]) -> Tuple[ListedProcess, ...]:
        found: List[ListedProcess] = []
        for kind, function in _LISTS:
            found.extend(
                self._list_with_mig(handle, mig, kind, function) if mig else self._list(handle, kind, function)
            )
        return tuple(sorted(found, key=lambda p: (p.pid, p.kind, p.gpu_instance or 0, p.compute_instance or 0)))

    def _list_with_mig(
        self, handle: Any, mig: Sequence[Tuple[Any, MigDevice]], kind: str, function: str
    ) -> List[ListedProcess]:
        """The lists of the MIG instances, and whom only the list of the whole GPU shows.

        Which of the two a driver fills depends on its version and on who asks, so both are read, and one
        that is denied must be made up for by the other.
        """
        whole: List[ListedProcess] = []
        denied: Optional[_Unreadable] = None
        try:
            whole = self._list(handle, kind, function)
        except _Unreadable as exc:
            if exc.failure.code not in DENIED:
                raise
            denied = exc
        parts: List[ListedProcess] = []
        for part, device in mig:
            try:
                rows = self._list(part, kind, function)
            except _Unreadable:
                if denied is not None:
                    raise denied from None
                continue  # the whole GPU's own list was readable, and it counts
            parts.extend(row if row.gpu_instance is not None else _within(row, device) for row in rows)
        named = {(row.pid, row.gpu_instance, row.compute_instance) for row in parts}
        pids = {row.pid for row in parts}
        for row in whole:
            key = (row.pid, row.gpu_instance, row.compute_instance)
            if key not in named and not (row.gpu_instance is None and row.pid in pids):
                parts.append(row)
        return parts

    def _mig_devices(self, handle: Any) -> Tuple[Tuple[Any, MigDevice], ...]:
        """Handle and description of each MIG instance."""

        def ask() -> List[Any]:
            devices = []
            for slot in range(int(self._call("nvmlDeviceGetMaxMigDeviceCount", handle))):
                try:
                    devices.append(self._call("nvmlDeviceGetMigDeviceHandleByIndex", handle, slot))
                except Exception as exc:  # pylint: disable=broad-except
                    if nvml_errors.nvml_code(exc) != nvml_errors.NOT_FOUND:  # an empty slot
                        raise
            return devices

        found = []
        for part in _explained("listing its MIG instances", ask):
            memory: Optional[MemoryReading] = None
            try:
                memory = self._memory_of(part, "reading the memory of a MIG instance")
            except _Unreadable as exc:
                if exc.failure.code not in DENIED:
                    raise
            found.append((part, self._mig_device(part, memory)))
        return tuple(found)

    def _mig_device(self, part: Any, memory: Optional[MemoryReading]) -> MigDevice:
        def ask() -> MigDevice:
            return MigDevice(
                uuid=_text(self._call("nvmlDeviceGetUUID", part)),
                gpu_instance=int(self._call("nvmlDeviceGetGpuInstanceId", part)),
                compute_instance=int(self._call("nvmlDeviceGetComputeInstanceId", part)),
                memory=memory,
            )

        return _explained("describing a MIG instance", ask)

    def _list(self, handle: Any, kind: str, function: str) -> List[ListedProcess]:
        try:
            rows = self._rows(handle, function)
        except Exception as exc:  # pylint: disable=broad-except
            if nvml_errors.nvml_code(exc) in _MEANS_NONE[kind]:
                return []
            raise _Unreadable(nvml_errors.failure_of(exc, "listing its %s processes" % kind)) from exc
        return [self._listed(row, kind) for row in rows]

    def _rows(self, handle: Any, function: str) -> List[Any]:
        """The rows of one list, with the newest function that the library has."""
        for attempt in range(_LIST_ATTEMPTS):
            try:
                return list(self._call(function, handle))
            except Exception as exc:  # pylint: disable=broad-except
                code = nvml_errors.nvml_code(exc)
                if code == nvml_errors.FUNCTION_NOT_FOUND:
                    break
                # The list grew between asking its length and reading it.
                if code != nvml_errors.INSUFFICIENT_SIZE or attempt == _LIST_ATTEMPTS - 1:
                    raise
        return list(self._call(function + "_v2", handle))

    def _listed(self, row: Any, kind: str) -> ListedProcess:
        pid = int(row.pid)
        if pid <= 1 or pid > self._pid_max:
            raise _Unreadable(
                Failure(
                    "implausible_pid",
                    "The driver's list of %s processes contains the impossible PID %d" % (kind, pid),
                    "The structures of driver and nvidia-ml-py do not fit (known of driver 535.43 to 535.86); "
                    "upgrade both",
                    permanent=True,
                )
            )
        used = row.usedGpuMemory
        return ListedProcess(
            pid=pid,
            kind=kind,
            memory_mib=None if used is None else _mib_up(int(used)),
            gpu_instance=_instance(getattr(row, "gpuInstanceId", None)),
            compute_instance=_instance(getattr(row, "computeInstanceId", None)),
        )


def _within(row: ListedProcess, device: MigDevice) -> ListedProcess:
    """A row of an instance's list; some drivers leave out which instance that is."""
    return replace(row, gpu_instance=device.gpu_instance, compute_instance=device.compute_instance)


def _explained(doing: str, ask: Callable[[], T]) -> T:
    """Run a question; turn whatever the binding raises into a Failure."""
    try:
        return ask()
    except _Unreadable:
        raise
    except Exception as exc:  # pylint: disable=broad-except
        raise _Unreadable(nvml_errors.failure_of(exc, doing)) from exc


def _is_absence(code: Optional[int]) -> bool:
    return code in (nvml_errors.NOT_SUPPORTED, nvml_errors.FUNCTION_NOT_FOUND)


def _memory_v2(info: Any) -> MemoryReading:
    _check_sum(int(info.total), int(info.reserved) + int(info.used) + int(info.free))
    return _memory(info, _mib_up(int(info.reserved)), NVML_V2)


def _memory_v1(info: Any) -> MemoryReading:
    return _memory(info, None, NVML_V1)


def _memory(info: Any, reserved_mib: Optional[int], source: str) -> MemoryReading:
    """Reject a GPU without memory: on some the driver answers with nothing but zeros."""
    if int(info.total) < _MIB:
        raise _Unreadable(
            Failure("no_memory_figures", "The driver reports a total memory of 0 MiB", "Check with nvidia-smi")
        )
    return MemoryReading(int(info.total) // _MIB, _mib_up(int(info.used)), reserved_mib, source)


def _check_sum(total: int, parts: int) -> None:
    """Reject figures that contradict each other: the structures of binding and driver then differ."""
    if abs(total - parts) > _SUM_TOLERANCE_MIB * _MIB:
        raise _Unreadable(
            Failure(
                "inconsistent_memory",
                "The driver's memory figures do not add up (total %d MiB, parts %d MiB)"
                % (total // _MIB, parts // _MIB),
                "Check that nvidia-ml-py fits the driver",
            )
        )


def _mib_up(count: int) -> int:
    """Bytes to MiB, rounded up, so that a use never looks smaller than it is."""
    return -(-count // _MIB)


def _instance(value: Optional[int]) -> Optional[int]:
    return None if value is None or value == _NO_INSTANCE else int(value)


def _text(value: Any) -> str:
    """Older bindings return bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
