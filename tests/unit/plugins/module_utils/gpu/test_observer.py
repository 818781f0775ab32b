# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.device_nodes import DeviceNodes
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.holders import GONE, HIDDEN
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import (
    Failure,
    GpuError,
    MemoryReading,
    MigDevice,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.observer import EVERYTHING, KNOWN, Observer, select
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.results import warnings_of
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.selection import Target
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.verdict import Limits
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import (
    FakeSession,
    identity,
    listed,
    reading,
    uuid,
)

ME = os.getpid()


def test_only_the_gpus_that_are_meant_are_opened_where_indices_tell():
    session = FakeSession(reading, count=8)
    assert select(session, ["3", "1"], 8) == (Target(1), Target(3))
    assert session.identified == []


def test_all_gpus_are_identified_where_something_must_be_looked_up():
    session = FakeSession(reading, count=4)
    assert select(session, [uuid(2)[:12], "0"], None) == (Target(0), Target(2))
    assert session.identified == [0, 1, 2, 3]


def test_a_wrong_number_of_gpus_comes_first():
    session = FakeSession(reading, count=7)
    with pytest.raises(GpuError, match="expected_count"):
        select(session, ["GPU-nonsense"], 8)
    assert session.identified == []


def test_a_look_joins_gpus_and_processes():
    session = FakeSession(lambda index: reading(index, processes=[listed(ME)] if index else []))
    look = Observer(session, ProcFs(), [Target(0), Target(1)]).look()
    assert look.uuids == {uuid(0), uuid(1)}
    (holder,) = look.holders
    assert holder.gpus == (uuid(1),)
    assert holder.protected_by == "this task itself"


class Hiding(ProcFs):
    """A /proc on which no process shows but this one."""

    def hidden(self):
        return "/proc is mounted with hidepid=2, so that processes of other users do not show"

    def pids(self):
        return [ME]

    def read(self, pid):
        return super().read(pid) if pid == ME else None


def test_processes_that_do_not_show_are_not_counted_as_none(childless):
    busy = reading(0, 5000, processes=[listed(1), listed(1 << 22)])
    look = Observer(FakeSession([busy, reading(1, 5000)].__getitem__), Hiding(), [Target(0), Target(1)]).look(
        EVERYTHING
    )
    there, gone = look.holders
    assert there.doubt == HIDDEN and gone.doubt == GONE
    assert look.view.uninspected == 1 and "hidepid" in look.view.hidden
    verdicts = look.verdicts(Limits())
    assert [verdict.state for verdict in verdicts] == ["busy", "busy"]
    assert "become: true" in verdicts[0].message
    assert "hidepid=2" in verdicts[1].message and "No process on this host" not in verdicts[1].message
    (warning,) = warnings_of(look, root=False)
    assert "hidepid=2" in warning and "become: true" in warning
    childless()


def test_our_own_parents_are_protected():
    session = FakeSession(lambda index: reading(index, processes=[listed(os.getppid())]))
    (holder,) = Observer(session, ProcFs(), [Target(0)]).look().holders
    assert holder.protected_by


def test_the_children_that_ask_nvml_are_no_holders():
    session = FakeSession(lambda index: reading(index, processes=[listed(4242)]), pids=[4242])
    look = Observer(session, ProcFs(), [Target(0)]).look()
    assert look.holders == ()
    assert look.readings[0].processes == ()


@pytest.fixture
def nodes(tmp_path):
    """Device nodes of two GPUs, with the minors of the fake ones; opened by this process until the test is over."""
    for name in ["nvidia%d" % identity(index).minor for index in (0, 1)] + ["nvidiactl", "nvidia-uvm"]:
        (tmp_path / "dev").mkdir(exist_ok=True)
        (tmp_path / "dev" / name).touch()
    return DeviceNodes(str(tmp_path / "dev"))


@pytest.fixture
def holding(nodes):
    """Start a process that has nodes open; it ends with the test."""
    started = []

    def start(*names):
        code = "import sys; files = [open(n) for n in sys.argv[1:]]; print(1, flush=True); sys.stdin.read()"
        paths = [nodes.dev + "/" + name for name in names]
        process = subprocess.Popen(
            [sys.executable, "-c", code, *paths], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        process.stdout.readline()
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def gpu_node(index):
    return "nvidia%d" % identity(index).minor


def test_a_listed_process_without_an_open_device_is_looked_at_again(nodes, holding):
    session = FakeSession(lambda index: reading(index, processes=[listed(ME)]))
    observer = Observer(session, ProcFs(), [Target(0)], nodes=nodes)
    assert observer.look().holders[0].process is None
    with open(nodes.dev + "/nvidiactl", encoding="ascii"):
        assert observer.look().holders[0].process is not None
    # What was seen once is remembered: finding out is not cheap.
    assert observer.look().holders[0].process is not None


def test_a_host_without_device_nodes_says_nothing_against_a_listed_process(tmp_path):
    session = FakeSession(lambda index: reading(index, processes=[listed(ME)]))
    observer = Observer(session, ProcFs(), [Target(0)], nodes=DeviceNodes(str(tmp_path)))
    assert observer.look().holders[0].doubt == ""


def test_who_only_has_a_gpu_open_is_seen_by_a_look_at_everything(nodes, holding):
    process = holding(gpu_node(0), gpu_node(1), "nvidiactl", "nvidia-uvm")
    observer = Observer(FakeSession(reading), ProcFs(), [Target(0)], nodes=nodes)
    assert observer.look().holders == ()
    look = observer.look(EVERYTHING)
    (row,) = look.holders
    assert (row.pid, row.gpus, row.evidence, row.elsewhere) == (process.pid, (), ("fd",), True)
    assert row.attached == (uuid(0), "/dev/" + gpu_node(1))
    assert look.view.scanned
    # A later look at those that are known does not search all others again.
    other = holding(gpu_node(0))
    assert [h.pid for h in observer.look(KNOWN).holders] == [process.pid]
    assert [h.pid for h in observer.look(EVERYTHING).holders] == sorted([process.pid, other.pid])


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"processes": "its own"}, "it uses GPU 1"),
        ({"failure": Failure("hung", "No answer", "Wait")}, "GPU 1 open, which cannot be read"),
        ({}, ""),
    ],
)
def test_a_process_with_other_gpus_open_is_looked_up_in_their_lists(nodes, holding, other, words):
    process = holding(gpu_node(0), gpu_node(1), "nvidiactl", "nvidia-uvm")
    rows = {"processes": [listed(process.pid)]} if "processes" in other else other
    session = FakeSession(lambda index: reading(index, **(rows if index == 1 else {})))
    (row,) = Observer(session, ProcFs(), [Target(0)], nodes=nodes).look(EVERYTHING).holders
    assert row.pid == process.pid
    assert words in row.outside if words else row.outside == ""


def test_the_other_gpus_are_not_read_without_need(nodes, holding):
    holding(gpu_node(0), "nvidiactl", "nvidia-uvm")
    session = FakeSession(lambda index: reading(index) if index == 0 else pytest.fail("read"))
    assert len(Observer(session, ProcFs(), [Target(0)], nodes=nodes).look(EVERYTHING).holders) == 1


def test_a_look_can_be_explained_later_without_reading_the_gpus_again(nodes, holding):
    session = FakeSession(lambda index: reading(index, used=9000))
    observer = Observer(session, ProcFs(), [Target(0)], nodes=nodes)
    process = holding(gpu_node(0), "nvidiactl", "nvidia-uvm")
    look = observer.look()
    session.read_one = lambda index: pytest.fail("read again")
    explained = observer.explain(look, Limits())
    assert [h.pid for h in explained.holders] == [process.pid]
    assert "PID %d" % process.pid in explained.verdicts(Limits())[0].message


def test_a_mig_instance_is_a_device_of_its_own():
    devices = (
        MigDevice("MIG-one", 1, 0, MemoryReading(9000, 5, None, "nvml_v2")),
        MigDevice("MIG-two", 2, 0, MemoryReading(9000, 4000, None, "nvml_v2")),
    )
    rows = [listed(ME, gpu_instance=2, compute_instance=0)]
    session = FakeSession(lambda index: reading(index, used=4005, processes=rows, mig_devices=devices))
    look = Observer(session, ProcFs(), [Target(0, "MIG-one"), Target(0, "MIG-two")]).look()
    assert [r.uuid for r in look.readings] == ["MIG-one", "MIG-two"]
    assert [v.state for v in look.verdicts(Limits())] == ["free", "busy"]
    (row,) = look.holders
    assert row.gpus == ("MIG-two",)
