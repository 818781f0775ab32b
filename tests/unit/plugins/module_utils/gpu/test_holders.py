# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import holders
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import listed, process, reading, uuid


def join(readings, processes=(), protected=(), holds=lambda _process: True):
    table = {p.pid: p for p in processes}
    return holders.join(readings, table.get, lambda p: "why" if p.pid in protected else "", holds)


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
