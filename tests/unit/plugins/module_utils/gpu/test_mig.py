# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.mig import of_instance
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Failure, MemoryReading, MigDevice
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.verdict import Limits, judge
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import listed, reading

MEMORY = MemoryReading(9856, 12, None, "nvml_v2")
ONE, TWO = MigDevice("MIG-one", 1, 0, MEMORY), MigDevice("MIG-two", 2, 1, MEMORY)
LOST = Failure("lost", "Gone", "Reset", True)


def gpu(**changes):
    rows = [
        listed(5, gpu_instance=1, compute_instance=0),
        listed(6, gpu_instance=2, compute_instance=0),
        listed(7, gpu_instance=2, compute_instance=1),
    ]
    return reading(0, used=70000, **{"processes": rows, "mig_mode": "enabled", "mig_devices": (ONE, TWO), **changes})


def test_an_instance_has_its_own_memory_and_processes():
    got = of_instance(gpu(), "MIG-two")
    assert (got.uuid, got.index, got.minor) == ("MIG-two", 0, gpu().minor)
    assert got.memory == MEMORY
    assert [row.pid for row in got.processes] == [7]
    assert got.instance == TWO


def test_an_instance_that_is_gone_is_unknown():
    got = of_instance(gpu(), "MIG-three")
    assert got.failure.code == "mig_instance_gone"
    assert not got.processes_read
    assert judge(got, (), Limits()).state == "unknown"


def test_a_process_of_an_unknown_instance_may_be_on_this_one():
    got = of_instance(gpu(processes=[listed(5)]), "MIG-one")
    assert judge(got, (), Limits()).reason == "mig_instance_unknown"
    assert not got.processes_read


def test_memory_that_is_denied_is_unknown():
    got = of_instance(gpu(mig_devices=(MigDevice("MIG-one", 1, 0),), processes=[]), "MIG-one")
    assert judge(got, (), Limits()).reason == "no_permission"


def test_what_ails_the_gpu_ails_the_instance():
    got = of_instance(gpu(failure=LOST, mig_devices=(), processes=[]), "MIG-one")
    assert got.failure == LOST
    assert of_instance(gpu(failure=LOST), "MIG-one").failure == LOST
