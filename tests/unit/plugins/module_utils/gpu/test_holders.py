# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import holders
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.device_inspector import OpenDevices
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.device_scan import Scan
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import MigDevice
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import listed, process, reading, uuid


def join(readings, processes=(), protected=(), holds=lambda _process: True, scan=None):
    table = {p.pid: p for p in processes}

    def protected_by(process):
        return "why" if process.pid in protected else ""

    return holders.join(readings, holders.Sources(table.get, protected_by, holds, scan))


def test_one_process_on_two_gpus_is_one_holder():
    (found,) = join([reading(0, processes=[listed(5, 100)]), reading(1, processes=[listed(5, 30)])], [process(5)])
    assert found.gpus == (uuid(0), uuid(1))
    assert found.per_gpu_mib == {uuid(0): 100, uuid(1): 30}
    assert found.memory_mib == 130
    assert (found.doubt, found.protected_by) == ("", "")


def test_they_are_sorted_by_pid_and_carry_their_evidence():
    rows = [listed(9, kind="mps"), listed(5), listed(9, kind="graphics")]
    found = join([reading(0, processes=rows)], [process(5), process(9)], protected=[9])
    assert [h.pid for h in found] == [5, 9]
    assert [h.evidence for h in found] == [("nvml_compute",), ("nvml_graphics", "nvml_mps")]
    assert [h.protected_by for h in found] == ["", "why"]


def test_the_same_memory_in_two_lists_counts_once():
    (found,) = join([reading(0, processes=[listed(5, 100), listed(5, 120, kind="graphics")])], [process(5)])
    assert found.memory_mib == 120


def test_mig_instances_add_up():
    rows = [listed(5, 100, gpu_instance=1, compute_instance=0), listed(5, 50, gpu_instance=2, compute_instance=0)]
    (found,) = join([reading(0, processes=rows)], [process(5)])
    assert found.memory_mib == 150


def test_unknown_memory_is_never_a_sum():
    (found,) = join([reading(0, processes=[listed(5, None)]), reading(1, processes=[listed(5, 30)])], [process(5)])
    assert found.memory_mib is None
    assert found.per_gpu_mib == {uuid(0): None, uuid(1): 30}


def test_a_pid_without_a_process_is_in_doubt():
    (found,) = join([reading(0, processes=[listed(5)])])
    assert (found.process, found.doubt) == (None, holders.GONE)
    assert "PID 5" in found.label
    assert found.key == (5, None)


@pytest.mark.parametrize(
    ("changes", "doubt"),
    [
        ({"state": "Z", "exe": "", "argv": ()}, holders.ZOMBIE),
        ({"state": "D", "exe": "", "argv": ()}, holders.ENDING),
        ({"exe": ""}, ""),  # unreadable without root, but a process nevertheless
    ],
)
def test_processes_that_are_ending(changes, doubt):
    (found,) = join([reading(0, processes=[listed(5)])], [process(5, **changes)])
    assert found.doubt == doubt
    assert found.process is not None


def test_a_pid_that_was_given_to_somebody_else_is_in_doubt():
    (found,) = join([reading(0, processes=[listed(5)])], [process(5)], holds=lambda _process: False)
    assert (found.process, found.doubt, found.protected_by) == (None, holders.REUSED, "")


def test_what_cannot_be_told_is_no_evidence():
    (found,) = join([reading(0, processes=[listed(5)])], [process(5)], holds=lambda _process: None)
    assert found.doubt == ""


def test_a_label_tells_user_unit_and_an_unusual_state():
    rows = [reading(0, processes=[listed(5)])]
    (plain,) = join(rows, [process(5)])
    (stuck,) = join(rows, [process(5, state="D", unit="sglang-main.service")])
    assert plain.label == "PID 5 sglang::scheduler_TP0 of llm"
    assert stuck.label == "PID 5 sglang::scheduler_TP0 of llm in sglang-main.service in state D"


# -- descriptors and mappings


def opened(**by_pid):
    """A scan: the process of each PID has these minors open (pid_5=[0]), the first one mapped (maps_5=[0, 1])."""
    found = {}
    for name, minors in by_pid.items():
        kind, pid = name.split("_")
        devices = OpenDevices(
            frozenset(minors),
            mapped=frozenset(minors[:1] if kind == "maps" else ()),
            control=True,
            evidence=("fd",),
            nvml=kind == "monitor",
        )
        found[ProcessIdentity(int(pid), 5000 + int(pid))] = devices
    return Scan(found)


# The fake GPU with index i has the minor 7 - i.
FIRST, SECOND, OTHER = 7, 6, 0


def test_a_listed_process_says_what_else_it_has_open():
    (found,) = join([reading(0, processes=[listed(5)])], [process(5)], scan=opened(pid_5=[FIRST, SECOND, OTHER]))
    assert found.gpus == (uuid(0),)
    assert found.attached == ("/dev/nvidia0", "/dev/nvidia6")
    assert found.evidence == ("fd", "nvml_compute")
    assert found.elsewhere


def test_a_process_that_only_has_gpus_open_uses_none():
    (found,) = join([reading(0), reading(1)], [process(5)], scan=opened(pid_5=[FIRST, SECOND]))
    assert (found.gpus, found.attached, found.evidence) == ((), (uuid(0), uuid(1)), ("fd",))
    assert (found.elsewhere, found.monitor, found.listed) == (False, False, False)
    assert found.memory_mib is None


def test_a_process_that_has_only_other_gpus_open_is_no_holder():
    assert join([reading(0)], [process(5)], scan=opened(pid_5=[OTHER])) == ()


def test_a_monitor_is_told_apart():
    (found,) = join([reading(0)], [process(5)], scan=opened(monitor_5=[FIRST]))
    assert found.monitor


def test_a_gpu_that_is_open_and_not_mapped_beside_one_that_is_is_only_asked_about():
    # It computes on GPU 0 and has looked at GPU 1 through NVML, as PyTorch does.
    (found,) = join([reading(0)], [process(5)], scan=opened(maps_5=[FIRST, SECOND]))
    assert (found.monitor, found.elsewhere, found.attached) == (False, False, (uuid(0), "/dev/nvidia6"))
    (found,) = join([reading(1)], [process(5)], scan=opened(maps_5=[FIRST, SECOND]))
    assert (found.monitor, found.elsewhere) == (True, True)


def test_a_later_process_with_the_same_pid_has_nothing_open():
    assert join([reading(0)], [process(5, start_time=1)], scan=opened(pid_5=[FIRST])) == ()
    (found,) = join([reading(0, processes=[listed(5)])], [process(5, start_time=1)], scan=opened(pid_5=[FIRST]))
    assert found.evidence == ("nvml_compute",)


@pytest.mark.parametrize("kin", [{"session": 5, "pgid": 6}, {"pgid": 5, "session": 1}])
def test_the_child_of_a_dead_listed_pid_is_its_heir(kin):
    rows = [reading(0, processes=[listed(5)]), reading(1)]
    found = join(rows, [process(6, **kin)], scan=opened(pid_6=[FIRST, SECOND, OTHER]))
    dead, heir = found
    assert (dead.pid, dead.doubt, dead.heir_of) == (5, holders.GONE, None)
    assert (heir.pid, heir.gpus, heir.heir_of, heir.memory_mib) == (6, (uuid(0),), 5, None)
    assert heir.attached == (uuid(1), "/dev/nvidia0")


def test_who_uses_a_gpu_of_its_own_is_no_heir():
    rows = [reading(0, processes=[listed(5)])]
    scan = opened(pid_6=[FIRST, OTHER])
    sources = holders.Sources({6: process(6, session=5)}.get, lambda _p: "", lambda _p: True, scan, outside={6: "why"})
    _dead, child = holders.join(rows, sources)
    assert (child.gpus, child.heir_of, child.outside) == ((), None, "why")


def test_whose_other_gpus_must_be_asked_about():
    rows = [reading(0, processes=[listed(5)])]
    scan = opened(pid_5=[FIRST, OTHER], pid_6=[FIRST, OTHER], pid_7=[FIRST], pid_8=[OTHER], monitor_9=[FIRST, OTHER])
    assert holders.reaching_out(rows, scan) == {6}
    assert holders.reaching_out(rows, None) == frozenset()


def test_kinship_alone_makes_no_heir():
    rows = [reading(0, processes=[listed(5)])]
    monitor = join(rows, [process(6, session=5)], scan=opened(monitor_6=[FIRST]))[1]
    stranger = join(rows, [process(6, session=1, pgid=1)], scan=opened(pid_6=[FIRST]))[1]
    elsewhere = join(rows, [process(6, session=5)], scan=opened(pid_6=[OTHER]))
    parent_lives = join(rows, [process(5), process(6, session=5)], scan=opened(pid_5=[FIRST], pid_6=[FIRST]))[1]
    assert [h.heir_of for h in (monitor, stranger, parent_lives)] == [None] * 3
    assert [h.gpus for h in (monitor, stranger, parent_lives)] == [()] * 3
    assert [h.pid for h in elsewhere] == [5]


def test_a_leader_that_has_ended_with_a_live_thread_is_an_ordinary_holder():
    (found,) = join([reading(0, processes=[listed(5)])], [process(5, state="Z", live_thread=55)])
    assert (found.doubt, found.process.state) == ("", "Z")


def test_the_node_of_a_gpu_says_nothing_about_one_mig_instance():
    part = reading(0, instance=MigDevice("MIG-one", 1, 0))
    assert join([part], [process(5)], scan=opened(pid_5=[FIRST])) == ()


def test_mig_instances_are_told():
    (found,) = join([reading(0, processes=[listed(5, gpu_instance=2, compute_instance=0)])], [process(5)])
    assert [(use.uuid, use.gpu_instance, use.compute_instance) for use in found.instances] == [(uuid(0), 2, 0)]


def test_a_name_cannot_steer_the_terminal():
    (found,) = join([reading(0, processes=[listed(5)])], [process(5, argv=("\x1b[2Jrm\n" + "x" * 500,))])
    assert "\x1b" not in found.label
    assert "\n" not in found.label
    assert len(found.label) < 150
