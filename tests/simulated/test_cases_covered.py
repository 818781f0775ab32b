# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every GPU case from public bug reports that can be staged without a GPU has its test.

The numbers are those of the project's table of cases; `@pytest.mark.case(number)` names them at a test.
"""

from __future__ import annotations

import pathlib

import pytest

from .case_marks import marked

HERE = pathlib.Path(__file__).resolve().parent
TESTS = HERE.parent

CASES = {
    1: "orphans of init in sessions of their own",
    2: "a holder outside its service's control group",
    3: "a child of a killed parent",
    4: "a process name without python in it",
    5: "health says 200 and generation hangs",
    7: "leaked shared memory segments of SGLang",
    8: "two holders of one name on different GPUs",
    9: "a holder that no name pattern fits",
    10: "memory that returns later than the process ends",
    11: "seven of eight GPUs free",
    12: "a weight cache that is meant to stay",
    13: "port free, memory held",
    14: "a name cut at 15 characters",
    15: "a parent killed for lack of memory",
    17: "memory that falls in steps",
    18: "CUDA_VISIBLE_DEVICES against physical indices",
    20: "a worker whose container is gone",
    21: "one of two processes cannot be killed",
    22: "an orphan found only at the next launch",
    23: "a holder that is the caller's own parent",
    24: "a runner orphaned by kill -9",
    25: "memory reported free 0.8 s late",
    27: "memory v1 and v2 disagree",
    29: "TIME_WAIT taken for a listener",
    30: "the port still in use",
    31: "a restart policy that never gives up",
    32: "a supervisor revives what was killed",
    33: "processes left in a stopped unit's control group",
    34: "an unlisted child with inherited descriptors",
    35: "a dead PID listed for a living child",
    37: "a dead PID listed and nobody behind it",
    38: "memory in use and no process",
    39: "host PIDs inside a namespace",
    40: "memory without processes inside a namespace",
    42: "docker stop that never returns",
    43: "a zombie blocks the end of its container",
    44: "zombies taken for holders",
    45: "an old process in state D",
    46: "an NVML call that hangs",
    47: "nvidia-smi that hangs",
    48: "a PID that is gone before it is looked at",
    50: "a lost GPU",
    51: "driver and library do not match",
    53: "MIG and insufficient permissions",
    54: "a holder of one MIG instance",
    56: "the operator's ssh of the same user",
    58: "a process that has more GPUs open than it uses",
    60: "a small process of a foreign user",
    62: "no utilisation and full memory",
    65: "a kernel module that keeps a GPU from its reset",
    66: "a reset that a virtual machine does not support",
    67: "a reset that fails twice",
    68: "a fabric manager restarted without a reset",
    69: "the DCGM exporter as holder",
    70: "clients of an MPS server",
    71: "the persistence daemon as holder",
    73: "a holder that only its descriptors show",
    74: "a pattern that fits the caller itself",
    75: "a child that keeps the task from returning",
    76: "leaked shared memory segments of NCCL",
    77: "values that change under one handle",
}

# Rows that another part of the collection is about: the test there.
ELSEWHERE = {
    5: "simulated/test_sglang_modules.py::test_a_server_that_says_it_is_healthy_and_hangs_is_not_ready",
    22: "simulated/test_sglang_modules.py::test_a_gpu_that_a_stranger_holds_fails_the_start_at_once",
    29: "unit/plugins/module_utils/sglang/processes/test_ports.py::test_a_listener_is_found_and_a_closed_one_is_not",
    30: "simulated/test_sglang_modules.py::test_a_port_that_somebody_else_listens_on_is_refused_and_names_him",
}

# Rows that are not the GPU engine's, and that nothing in the collection does yet: why.
NOT_IN_THE_GPU_ENGINE = {
    7: "stale segments in /dev/shm are the business of starting SGLang",
    76: "stale segments in /dev/shm are the business of starting SGLang",
}


@pytest.mark.parametrize("number", sorted(CASES))
def test_a_case_has_its_test(number):
    if number in ELSEWHERE:
        file, name = ELSEWHERE[number].split("::")
        assert "def %s(" % name in (TESTS / file).read_text(encoding="utf-8")
    elif number not in NOT_IN_THE_GPU_ENGINE:
        assert marked("case").get(number), "case %d (%s) has no test" % (number, CASES[number])


def test_marks_name_cases_of_the_table():
    assert set(marked("case")) <= set(CASES).difference(ELSEWHERE, NOT_IN_THE_GPU_ENGINE)


def test_what_is_not_done_here_is_of_the_table_and_in_one_list():
    assert set(ELSEWHERE).union(NOT_IN_THE_GPU_ENGINE) <= set(CASES)
    assert not set(ELSEWHERE).intersection(NOT_IN_THE_GPU_ENGINE)
