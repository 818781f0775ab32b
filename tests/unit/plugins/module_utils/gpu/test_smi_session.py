# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A session on a tool that misbehaves as nvidia-smi does; nothing is started."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import GpuError, SystemInfo
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.smi_errors import missing
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.smi_runner import Answer, Hung
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.smi_session import SmiSession
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import FakeClock, identity, uuid

TIMEOUT = 10.0
VERSIONS = "NVML version        : 580.1\nDRIVER version      : 580.1.2\n"


def raised(value):
    """The value; an exception is raised."""
    if isinstance(value, Exception):
        raise value
    return value


class Stuck:
    """A process that does not end until the test wants it to."""

    def __init__(self, pid):
        self.pid = pid
        self.ended = False

    def gone(self):
        return self.ended


class Tool:
    """nvidia-smi on a host of GPUs.

    hanging, failing (index: status and words), missing: what it does with single GPUs; everywhere: a
    failure of all runs; unkillable: those that hang stay.  calls are the runs so far, as text.
    """

    def __init__(self, clock, count=4):
        self.clock = clock
        self.attached = count
        self.gpus = {index: identity(index) for index in range(count)}
        self.used = {}
        self.mig = {}
        self.hanging = set()
        self.failing = {}
        self.missing = set()
        self.everywhere = ()
        self.unkillable = False
        self.lists_several = True
        self.slow_together = False
        self.stuck = []
        self.calls = []

    def ask(self, arguments, timeout):
        self.calls.append(" ".join(arguments))
        self.clock.sleep(0.1)
        everywhere = raised(self.everywhere)
        if everywhere:
            return answer(*everywhere)
        if arguments == ["--version"]:
            return answer(0, VERSIONS)
        if arguments == ["-L"]:
            return self._listing(timeout)
        assert list(arguments[:2]) == ["-q", "-x"]
        return self._query(arguments[3].split(",") if len(arguments) > 2 else None, timeout)

    def _query(self, names, timeout):
        if names and len(names) > 1 and not self.lists_several:
            return answer(2, "invalid")
        wanted = [i for i, gpu in self.gpus.items() if names is None or str(i) in names or gpu.pci_bus_id in names]
        if any(index in self.hanging for index in wanted) or (self.slow_together and len(wanted) > 1):
            self._hang(timeout)
        if not wanted:
            return answer(6, "No devices were found")
        if len(wanted) == 1 and wanted[0] in self.failing:
            return answer(*self.failing[wanted[0]])
        shown = [self._gpu(i) for i in wanted if i not in self.failing and i not in self.missing]
        return answer(
            0,
            "<?xml version='1.0' ?>\n<nvidia_smi_log><driver_version>580.1.2</driver_version>"
            "<attached_gpus>%d</attached_gpus>%s</nvidia_smi_log>" % (self.attached, "".join(shown)),
        )

    def _hang(self, timeout):
        self.clock.sleep(timeout)
        if self.unkillable:
            self.stuck.append(Stuck(9000 + len(self.stuck)))
        raise Hung(self.stuck[-1] if self.unkillable else None)

    def _gpu(self, index):
        gpu = self.gpus[index]
        used = self.used.get(index, 0)
        parts = "".join(
            "<mig_device><index>%d</index><gpu_instance_id>%d</gpu_instance_id><compute_instance_id>0"
            "</compute_instance_id>%s</mig_device>" % (number, instance, memory(1000, 0, 0))
            for number, instance in self.mig.get(index, {}).items()
        )
        return (
            '<gpu id="%s"><product_name>%s</product_name><uuid>%s</uuid><minor_number>%d</minor_number>'
            "<mig_mode><current_mig>%s</current_mig></mig_mode><mig_devices>%s</mig_devices>%s<processes/></gpu>"
        ) % (
            gpu.pci_bus_id,
            gpu.name,
            gpu.uuid,
            gpu.minor,
            "Enabled" if index in self.mig else "Disabled",
            parts or "None",
            used if isinstance(used, str) else memory(81920, 600, used),
        )

    def _listing(self, timeout):
        if self.hanging:
            self._hang(timeout)
        lines = []
        for index, gpu in self.gpus.items():
            lines.append("GPU %d: x (UUID: %s)" % (index, gpu.uuid))
            lines += ["  MIG x  Device %d: (UUID: MIG-%d-%d)" % (n, index, n) for n in self.mig.get(index, {})]
        return answer(0, "\n".join(lines))


def answer(status, words, errors=""):
    return Answer(status, words.encode(), errors.encode())


def memory(total, reserved, used):
    figures = (("total", total), ("reserved", reserved), ("used", used), ("free", total - reserved - used))
    return "<fb_memory_usage>%s</fb_memory_usage>" % "".join("<%s>%d MiB</%s>" % (n, v, n) for n, v in figures)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def tool(clock):
    return Tool(clock)


def opened(tool):
    return SmiSession(tool, TIMEOUT, 4194304, tool.clock.monotonic)


@pytest.fixture
def session(tool):
    with opened(tool) as value:
        tool.calls.clear()
        yield value


def codes(readings):
    return [reading.failure.code if reading.failure else "" for reading in readings]


# ---- the start


def test_the_start_asks_about_one_gpu_only(tool):
    session = opened(tool)
    assert session.system == SystemInfo("580.1.2", "580.1", 4)
    assert tool.calls == ["-q -x -i 0", "--version"]


def test_a_sick_first_gpu_does_not_hinder_the_start(tool):
    tool.failing[0] = (15, "GPU is lost")
    session = opened(tool)
    assert session.system.count == 4
    assert codes(session.read(range(4))) == ["lost", "", "", ""]


def test_a_first_gpu_that_hangs_costs_its_time_once(tool, clock):
    tool.hanging.add(0)
    session = opened(tool)
    began = clock.now
    assert codes(session.read(range(4))) == ["hung", "", "", ""]
    assert clock.now - began < 1.0


def test_a_driver_that_hangs_altogether_is_an_error(tool, clock):
    tool.hanging.update(range(4))
    began = clock.now
    with pytest.raises(GpuError) as stop:
        opened(tool)
    assert stop.value.failure.code == "hung"
    assert clock.now - began < 2.5 * TIMEOUT


def test_one_gpu_and_it_hangs(clock):
    tool = Tool(clock, count=1)
    tool.hanging.add(0)
    began = clock.now
    with pytest.raises(GpuError) as stop:
        opened(tool)
    assert stop.value.failure.code == "hung"
    assert clock.now - began < 1.5 * TIMEOUT


def test_one_gpu_and_it_is_lost(clock):
    tool = Tool(clock, count=1)
    tool.failing[0] = (15, "Unable to determine the device handle for GPU 0000:01:00.0: GPU is lost")
    with pytest.raises(GpuError) as stop:
        opened(tool)
    assert stop.value.failure.code == "lost"


def test_one_gpu_that_only_an_answer_for_all_counts(clock):
    tool = Tool(clock, count=1)
    tool.gpus.clear()
    tool.gpus[7] = identity(7)  # no index that is tried names it
    tool.missing.add(7)
    assert opened(tool).system.count == 1


def test_a_host_without_a_gpu(clock):
    tool = Tool(clock, count=0)
    assert opened(tool).system == SystemInfo("580.1.2", "580.1", 0)


@pytest.mark.parametrize(
    ("everywhere", "reason"),
    [
        ((9, "couldn't communicate with the NVIDIA driver"), "driver_not_loaded"),
        ((18, "Failed to initialize NVML: Driver/library version mismatch"), "library_mismatch"),
        (GpuError(missing("is not installed")), "nvidia_smi_missing"),
        ((17, "Failed to initialize NVML: GPU access blocked by the operating system"), "operating_system"),
        ((255, "Failed to initialize NVML: Unknown Error"), "unknown_error"),
        ((-11, ""), "crashed"),
        ((0, "hello"), "nvidia_smi_output"),
        ((0, "<nvidia_smi_log><gpu>"), "nvidia_smi_output"),
    ],
)
def test_a_tool_that_cannot_be_used(tool, everywhere, reason):
    tool.everywhere = everywhere
    with pytest.raises(GpuError) as stop:
        opened(tool)
    assert stop.value.failure.code == reason
    assert len(tool.calls) <= 4


def test_an_answer_that_breaks_off_is_explained_by_the_tools_own_words(tool):
    broken = "<nvidia_smi_log>\n<display_mode>Requested functionality has been deprecated</display_mode>\n"
    tool.everywhere = (0, broken)
    with pytest.raises(GpuError) as stop:
        opened(tool)
    assert stop.value.failure.code == "nvidia_smi_output"
    tool.everywhere = (0, broken + "Unable to determine the device handle for GPU0: GPU is lost\n")
    with pytest.raises(GpuError) as stop:
        opened(tool)
    assert stop.value.failure.code == "lost"


# ---- reading


def test_all_gpus_take_one_run(session, tool):
    tool.used[2] = 500
    got = session.read([3, 2, 1, 0])
    assert [r.index for r in got] == [3, 2, 1, 0]
    assert [r.uuid for r in got] == [uuid(i) for i in (3, 2, 1, 0)]
    assert [r.memory.used_mib for r in got] == [0, 500, 0, 0]
    assert tool.calls == ["-q -x"]


def test_only_the_gpus_that_are_asked_for_are_opened(session, tool):
    assert codes(session.read([1, 3])) == ["", ""]
    assert codes(session.read([1, 3])) == ["", ""]
    assert codes(session.read([2])) == [""]
    buses = [identity(i).pci_bus_id for i in range(4)]
    assert tool.calls == ["-q -x -i 1,3", "-q -x -i %s,%s" % (buses[1], buses[3]), "-q -x -i 2"]


def test_nothing_is_asked_for_nobody(session, tool):
    assert session.read([]) == ()
    assert tool.calls == []


def test_identify_tells_names_only(session, tool):
    tool.used[1] = "<fb_memory_usage><total>GPU is lost</total></fb_memory_usage>"
    got = session.identify([0, 1])
    assert [(r.uuid, r.memory, r.failure) for r in got] == [(uuid(0), None, None), (uuid(1), None, None)]
    assert codes(session.read([0, 1])) == ["", "lost"]


def test_an_index_that_is_not_there(session):
    assert codes(session.read([0, 9])) == ["", "not_found"]


# ---- sick GPUs


def test_a_hung_gpu_does_not_hide_the_others(session, tool):
    tool.hanging.add(1)
    assert codes(session.read(range(4))) == ["", "hung", "", ""]


def test_a_hung_gpu_costs_time_only_once(session, tool, clock):
    tool.hanging.add(1)
    session.read(range(4))
    began = clock.now
    for _repeat in range(5):
        assert codes(session.read(range(4))) == ["", "hung", "", ""]
    assert clock.now - began < 1.0


def test_the_others_are_read_together_without_the_hung_one(session, tool):
    session.identify(range(4))
    tool.hanging.add(1)
    session.read(range(4))
    tool.calls.clear()
    assert codes(session.read(range(4))) == ["", "hung", "", ""]
    assert tool.calls == ["-q -x -i %s" % ",".join(identity(i).pci_bus_id for i in (0, 2, 3))]


def test_a_hung_gpu_keeps_its_name(session, tool):
    session.identify([1])
    tool.hanging.add(1)
    assert session.read([1])[0].uuid == uuid(1)


def test_a_gpu_that_recovers_is_read_again_later(session, tool, clock):
    tool.hanging.add(1)
    session.read([1])
    tool.hanging.clear()
    clock.sleep(29)
    assert codes(session.read([1])) == ["hung"]
    clock.sleep(2)
    assert codes(session.read([1])) == [""]


def test_a_gpu_that_does_not_recover_is_asked_less_and_less(session, tool, clock):
    tool.hanging.add(1)
    asked = 0
    for second in range(300):
        before = len(tool.calls)
        session.read([1])
        asked += len(tool.calls) - before
        clock.now = 200.0 + second
    assert asked <= 4


def test_stuck_processes_do_not_pile_up(session, tool, clock):
    tool.unkillable = True
    tool.hanging.update([1, 2])
    for _repeat in range(50):
        assert codes(session.read(range(4))) == ["", "hung", "hung", ""]
        clock.sleep(100)
    assert len(tool.stuck) == 3  # one for several GPUs together, one for each of the two
    assert session.pids == {9000, 9001, 9002}
    for process in tool.stuck:
        process.ended = True
    tool.hanging.clear()
    clock.sleep(10000)
    assert codes(session.read(range(4))) == [""] * 4
    assert session.pids == frozenset()


def test_a_process_that_ended_is_none_of_ours_any_more(session, tool):
    session.read(range(4))
    assert session.pids == frozenset()


def test_a_lost_gpu_is_unknown_and_not_absent(session, tool):
    session.identify(range(4))
    tool.failing[2] = (15, "Unable to determine the device handle for GPU2: 0000:03:00.0: GPU is lost")
    got = session.read(range(4))
    assert codes(got) == ["", "", "lost", ""]
    assert [r.uuid for r in got] == [uuid(i) for i in range(4)]


def test_indices_do_not_shift_where_a_gpu_is_left_out_from_the_start(session, tool):
    tool.failing[1] = (255, "Unable to determine the device handle for GPU1: 0000:02:00.0: Unknown Error")
    got = session.read(range(4))
    assert codes(got) == ["", "unknown_error", "", ""]
    assert [r.uuid for r in got] == [uuid(0), "", uuid(2), uuid(3)]


def test_a_gpu_that_is_silently_left_out(session, tool):
    tool.missing.add(3)
    assert codes(session.read(range(4))) == ["", "", "", "nvidia_smi_output"]


def test_a_sick_gpu_is_asked_about_apart(session, tool):
    session.identify(range(4))
    tool.failing[2] = (15, "GPU is lost")
    session.read(range(4))
    tool.calls.clear()
    session.read(range(4))
    assert len(tool.calls) == 2  # the three together, and the sick one
    tool.failing.clear()
    assert codes(session.read(range(4))) == [""] * 4
    tool.calls.clear()
    session.read(range(4))
    assert tool.calls == ["-q -x"]


def test_several_that_are_too_slow_together_are_read_one_by_one(session, tool, clock):
    tool.slow_together = True
    assert codes(session.read(range(4))) == [""] * 4
    tool.calls.clear()
    began = clock.now
    assert codes(session.read(range(4))) == [""] * 4
    assert len(tool.calls) == 4
    assert clock.now - began < 1.0
    tool.slow_together = False
    clock.sleep(31)
    tool.calls.clear()
    assert codes(session.read(range(4))) == [""] * 4
    assert tool.calls == ["-q -x"]


def test_a_tool_that_takes_only_one_gpu_at_a_time(session, tool, clock):
    tool.lists_several = False
    assert codes(session.read([0, 1])) == ["", ""]
    tool.calls.clear()
    assert codes(session.read([0, 1])) == ["", ""]
    assert len(tool.calls) == 2


def test_a_driver_that_goes_away_is_told_without_asking_everybody(session, tool):
    tool.everywhere = (9, "couldn't communicate with the NVIDIA driver")
    assert codes(session.read(range(4))) == ["driver_not_loaded"] * 4
    assert len(tool.calls) == 1
    tool.everywhere = None
    assert codes(session.read(range(4))) == [""] * 4


def test_another_gpu_under_the_same_index_is_refused(session, tool):
    session.read(range(4))
    tool.gpus[0] = identity(5)
    for got in (session.read(range(4))[0], session.identify(range(4))[0]):
        assert (got.failure.code, got.failure.permanent) == ("identity_changed", True)
        assert uuid(0) in got.failure.message
        assert uuid(5) in got.failure.message


def test_a_gpu_that_is_gone_from_its_bus(session, tool):
    session.read([1])
    tool.gpus[1] = identity(9)
    assert codes(session.read([1])) == ["not_found"]


def test_a_changed_number_of_gpus_is_refused(session, tool):
    tool.attached = 3
    del tool.gpus[3]
    got = session.read(range(4))
    assert codes(got) == ["count_changed"] * 4
    assert all(r.failure.permanent for r in got)
    assert codes(session.read([0])) == ["count_changed"]


# ---- MIG


def test_uuids_of_mig_instances_take_one_run_more_while_they_stay(session, tool):
    tool.mig[1] = {0: 7, 1: 9}
    for _repeat in range(3):
        got = session.read(range(4))[1]
        assert [(d.uuid, d.gpu_instance) for d in got.mig_devices] == [("MIG-1-0", 7), ("MIG-1-1", 9)]
    assert tool.calls.count("-L") == 1
    tool.mig[1] = {0: 7}
    assert [d.uuid for d in session.read([1])[0].mig_devices] == ["MIG-1-0"]
    assert tool.calls.count("-L") == 2


def test_without_mig_nothing_is_listed(session, tool):
    session.read(range(4))
    assert "-L" not in tool.calls


def test_a_list_that_hangs_costs_only_the_uuids(session, tool, clock):
    tool.mig[1] = {0: 7}
    tool.hanging.add(0)
    (got,) = session.read([1])
    assert (got.failure, [d.uuid for d in got.mig_devices]) == (None, [""])
    began = clock.now
    session.read([1])
    assert clock.now - began < 1.0
