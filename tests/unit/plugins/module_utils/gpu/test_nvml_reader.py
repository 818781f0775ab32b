# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import ListedProcess, MemoryReading
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.nvml_reader import GpuReader
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import (
    MIB,
    FakePynvml,
    NVMLError,
    NVMLLibraryMismatchError,
    default_answers,
    field_value,
    identity,
    row,
    uuid,
)

COMPUTE = "nvmlDeviceGetComputeRunningProcesses"
GRAPHICS = "nvmlDeviceGetGraphicsRunningProcesses"
MPS = "nvmlDeviceGetMPSComputeRunningProcesses"
MISSING = [NVMLError(13), NVMLLibraryMismatchError("x")]


def read(index=0, **kwargs):
    return GpuReader(FakePynvml(**kwargs), pid_max=4194304).read(index)


def test_open_reports_versions_and_count():
    system = GpuReader(FakePynvml(count=8), 100).open()
    assert (system.driver_version, system.nvml_version, system.count) == ("580.1", "13.580.1", 8)


def test_a_sound_gpu():
    got = read(1)
    assert got.failure is None
    assert got.identity == identity(1)
    assert got.memory == MemoryReading(81920, 5, 601, "nvml_v2")  # 4 MiB and a byte are 5 MiB
    assert got.processes == ()
    assert (got.persistence_mode, got.mig_mode, got.recovery_action) == ("enabled", "disabled", "none")


def test_identify_asks_for_no_values():
    fake = FakePynvml()
    got = GpuReader(fake, 100).identify(0)
    assert got.identity == identity(0)
    assert got.memory is None
    assert "nvmlDeviceGetMemoryInfo" not in fake.calls


def test_handles_are_kept_and_values_are_not():
    fake = FakePynvml()
    reader = GpuReader(fake, 100)
    reader.read(0)
    reader.read(0)
    assert fake.calls.count("nvmlDeviceGetHandleByIndex") == 1
    assert fake.calls.count("nvmlDeviceGetMemoryInfo") == 2
    assert fake.calls.count(COMPUTE) == 2


@pytest.mark.parametrize(
    ("code", "reason"),
    [(4, "no_permission"), (15, "lost"), (16, "reset_required"), (17, "operating_system"), (999, "unknown_error")],
)
@pytest.mark.parametrize(
    "function", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo", COMPUTE]
)
def test_an_error_of_any_needed_call_is_a_failure(function, code, reason):
    assert read(**{function: NVMLError(code)}).failure.code == reason


def test_a_gpu_that_could_not_be_opened_is_tried_again():
    fake = FakePynvml(nvmlDeviceGetHandleByIndex=NVMLError(27))
    reader = GpuReader(fake, 100)
    assert reader.read(0).failure.code == "not_ready"
    fake.answers["nvmlDeviceGetHandleByIndex"] = 0
    assert reader.read(0).failure is None


def test_what_the_binding_was_never_expected_to_raise_is_a_failure_too():
    assert read(nvmlDeviceGetMemoryInfo=RuntimeError("boom")).failure.code == "unexpected"


def test_an_unreadable_list_keeps_the_memory_figures():
    got = read(**{COMPUTE: NVMLError(999)})
    assert got.memory.used_mib == 5
    assert got.failure.code == "unknown_error"


@pytest.mark.parametrize("error", [*MISSING, NVMLError(25), NVMLError(3)])
def test_memory_falls_back_to_v1_and_says_so(error):
    def memory(_handle, version=None):
        if version:
            raise error
        return FakePynvml().nvmlDeviceGetMemoryInfo(0)

    got = read(nvmlDeviceGetMemoryInfo=memory)
    assert got.memory == MemoryReading(81920, 606, None, "nvml_v1")


def test_memory_without_v2_in_the_binding_falls_back_to_v1():
    assert read(missing=["nvmlMemory_v2"]).memory.source == "nvml_v1"


def test_memory_that_no_version_can_read_is_a_failure():
    got = read(nvmlDeviceGetMemoryInfo=NVMLError(3))
    assert (got.memory, got.failure.code) == (None, "not_supported")


@pytest.mark.parametrize("off", [-4096, 4096])
def test_memory_figures_that_contradict_each_other_are_refused(off):
    info = SimpleNamespace(total=81920 * MIB, used=0, reserved=600 * MIB, free=(81320 + off) * MIB)
    got = read(nvmlDeviceGetMemoryInfo=lambda _h, version=None: info)
    assert (got.memory, got.failure.code) == (None, "inconsistent_memory")


def test_a_total_of_nothing_is_refused():
    info = SimpleNamespace(total=0, used=0, reserved=0, free=0)
    assert read(nvmlDeviceGetMemoryInfo=lambda _h, version=None: info).failure.code == "no_memory_figures"


def test_all_three_lists_are_read():
    got = read(**{COMPUTE: [row(20)], GRAPHICS: [row(10, 5 * MIB)], MPS: [row(30, None)]})
    assert got.processes == (
        ListedProcess(10, "graphics", 5),
        ListedProcess(20, "compute", 1000),
        ListedProcess(30, "mps", None),
    )


@pytest.mark.parametrize("error", MISSING)
@pytest.mark.parametrize("function", [COMPUTE, GRAPHICS, MPS])
def test_an_older_library_is_asked_with_the_older_function(function, error):
    got = read(**{function: error, function + "_v2": [row(42)]})
    assert [p.pid for p in got.processes] == [42]


@pytest.mark.parametrize("error", MISSING)
@pytest.mark.parametrize("function", [COMPUTE, GRAPHICS])
def test_a_missing_list_is_never_an_empty_one(function, error):
    assert read(**{function: error, function + "_v2": NVMLError(13)}).failure.code == "function_not_found"
    assert read(**{function: error}).failure.code == "function_not_found"


@pytest.mark.parametrize("error", [*MISSING, NVMLError(3)])
def test_a_driver_without_the_mps_list_has_its_clients_in_the_compute_list(error):
    assert read(**{MPS: error, MPS + "_v2": error}).failure is None


def test_a_card_without_graphics_has_no_graphics_processes():
    assert read(**{GRAPHICS: NVMLError(3)}).failure is None
    assert read(**{COMPUTE: NVMLError(3)}).failure.code == "not_supported"


def test_a_list_that_grows_is_read_again():
    calls = []

    def grows(_handle):
        calls.append(1)
        if len(calls) < 3:
            raise NVMLError(7)
        return [row(42)]

    assert [p.pid for p in read(**{COMPUTE: grows}).processes] == [42]
    assert read(**{COMPUTE: NVMLError(7)}).failure.code == "insufficient_size"


@pytest.mark.parametrize("pid", [0, 1, 4194305, 4294967295])
@pytest.mark.parametrize("function", [COMPUTE, GRAPHICS, MPS])
def test_an_impossible_pid_spoils_the_reading(function, pid):
    failure = read(**{function: [row(42), row(pid)]}).failure
    assert failure.code == "implausible_pid"
    assert str(pid) in failure.message


@pytest.mark.parametrize("number", [2, 4194304])
def test_the_least_and_the_greatest_possible_pid(number):
    assert read(**{COMPUTE: [row(number)]}).failure is None


RECOVERY = ["none", "reset", "node_reboot", "drain_p2p", "drain_and_reset", "recover_imex_domain", "bus_reset"]


@pytest.mark.parametrize(("number", "word"), [*enumerate([*RECOVERY, "system_reboot"]), (8, "unknown")])
def test_recovery_action(number, word):
    assert read(nvmlDeviceGetFieldValues=lambda _h, fields: [field_value(number)]).recovery_action == word


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (lambda _h, fields: [field_value(0, code=3)], "not_supported"),
        (lambda _h, fields: [field_value(0, code=999)], "unknown"),
        (NVMLError(13), "not_supported"),
        (NVMLError(999), "unknown"),
    ],
)
def test_a_recovery_action_that_was_not_told_is_not_none(answer, word):
    got = read(nvmlDeviceGetFieldValues=answer)
    assert got.recovery_action == word
    assert got.failure is None


def test_field_230_is_asked_for():
    asked = []

    def values(_handle, fields):
        asked.extend(fields)
        return [field_value(0)]

    read(nvmlDeviceGetFieldValues=values)
    assert asked == [230]


def test_modes_that_cannot_be_read_do_not_spoil_the_reading():
    got = read(nvmlDeviceGetPersistenceMode=NVMLError(999), nvmlDeviceGetMigMode=NVMLError(3))
    assert (got.persistence_mode, got.mig_mode, got.failure) == ("unknown", "not_supported", None)


def test_a_gpu_without_a_device_node_has_no_minor():
    assert read(nvmlDeviceGetMinorNumber=NVMLError(3)).identity.minor is None


def mig(parent, devices, **more):
    """A GPU in MIG mode: its own answer to COMPUTE, and one for each slot (an exception: at taking the handle)."""

    def handle(_parent, slot):
        if isinstance(devices[slot], Exception):
            raise devices[slot]
        return "mig%d" % slot

    def processes(asked):
        answer = devices[int(asked[3:])] if isinstance(asked, str) else parent
        if isinstance(answer, Exception):
            raise answer
        return answer

    return read(
        nvmlDeviceGetMigMode=lambda _h: [1, 1],
        nvmlDeviceGetMaxMigDeviceCount=len(devices),
        nvmlDeviceGetMigDeviceHandleByIndex=handle,
        **{COMPUTE: processes, **more},
    )


def test_mig_the_whole_gpus_list_and_those_of_the_instances_are_joined():
    # One driver lists a process of an instance on the whole GPU, another one does not.
    got = mig([row(42, gi=1, ci=0)], [[row(43)]])
    assert got.processes == (ListedProcess(42, "compute", 1000, 1, 0), ListedProcess(43, "compute", 1000, 1, 0))


def test_mig_a_process_in_both_lists_is_one_row():
    got = mig([row(42)], [[row(42, gi=1, ci=0)], []])
    assert got.processes == (ListedProcess(42, "compute", 1000, 1, 0),)


def test_mig_instances_are_asked_where_the_whole_gpu_is_denied():
    got = mig(NVMLError(4), [NVMLError(6), [row(42, gi=2, ci=0)], [row(43, gi=3, ci=0)]])
    assert got.failure is None
    assert [(p.pid, p.gpu_instance) for p in got.processes] == [(42, 2), (43, 3)]
    assert [(d.uuid, d.gpu_instance, d.memory.used_mib) for d in got.mig_devices] == [
        (uuid("mig1"), 2, 5),
        (uuid("mig2"), 3, 5),
    ]


@pytest.mark.parametrize("devices", [[], [NVMLError(6)], [NVMLError(4)], [[row(42)], NVMLError(4)]])
def test_mig_what_stays_denied_is_unknown(devices):
    assert mig(NVMLError(4), devices).failure.code == "no_permission"


def memory_of_instances_only(handle, version=None):
    if not isinstance(handle, str):
        raise NVMLError(4)
    return default_answers(1)["nvmlDeviceGetMemoryInfo"](handle, version)


def test_mig_memory_that_is_denied_is_that_of_the_instances_together():
    got = mig([], [[], []], nvmlDeviceGetMemoryInfo=memory_of_instances_only)
    assert got.failure is None
    assert (got.memory.total_mib, got.memory.used_mib, got.memory.source) == (2 * 81920, 10, "mig_instances")
    assert got.memory.reserved_mib is None


@pytest.mark.parametrize("devices", [[], [[]]])
def test_mig_memory_that_is_denied_is_unknown(devices):
    got = mig([], devices, nvmlDeviceGetMemoryInfo=NVMLError(4))
    assert got.failure.code == "no_permission"
    assert "MIG" in got.failure.message


def test_mig_instances_that_cannot_be_described_are_unknown():
    assert mig([], [[]], nvmlDeviceGetGpuInstanceId=NVMLError(999)).failure.code == "unknown_error"


@pytest.mark.parametrize(
    ("answer", "word"),
    [(0, "none"), (1, "hmm"), (2, "ats"), (9, "unknown"), (NVMLError(3), "not_supported"), (NVMLError(999), "unknown")],
)
def test_the_addressing_mode(answer, word):
    got = read(nvmlDeviceGetAddressingMode=answer)
    assert (got.addressing_mode, got.failure) == (word, None)


def test_the_recovery_action_is_asked_before_memory_and_processes():
    pynvml = FakePynvml()
    reader = GpuReader(pynvml, 4194304)
    reader.open()
    reader.read(0)
    calls = [call for call in pynvml.calls if call != "nvmlInit"]
    assert calls.index("nvmlDeviceGetFieldValues") < calls.index("nvmlDeviceGetMemoryInfo")
    assert calls.index("nvmlDeviceGetFieldValues") < calls.index("nvmlDeviceGetComputeRunningProcesses")


def test_a_gpu_without_memory_figures_still_tells_its_processes():
    got = read(nvmlDeviceGetMemoryInfo=NVMLError(3), **{COMPUTE: [row(42)]})
    assert (got.memory, got.failure.code, got.failure.permanent) == (None, "not_supported", True)
    assert "GB10" in got.failure.message
    assert [p.pid for p in got.processes] == [42]
    assert got.processes_read


@pytest.mark.parametrize("code", [4, 15, 999])
def test_any_other_failure_leaves_the_processes_unknown(code):
    got = read(nvmlDeviceGetMemoryInfo=NVMLError(code), **{COMPUTE: [row(42)]})
    assert (got.processes, got.processes_read) == ((), False)


def test_lists_that_cannot_be_read_are_not_complete():
    assert not read(**{COMPUTE: NVMLError(999)}).processes_read
    assert not read(nvmlDeviceGetMemoryInfo=NVMLError(3), **{COMPUTE: NVMLError(999)}).processes_read
    assert read().processes_read
