# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import (
    Failure,
    GpuReading,
    MemoryReading,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.protection import Allowance
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.verdict import Limits, judge
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import (
    holder,
    identity,
    listed,
    reading,
)

LOST = Failure("lost", "It is gone", "Reset it", True)
HUNG = Failure("hung", "No answer", "Wait", False)
CACHE = Limits(256, 4000, Allowance(frozenset([1000])))


def judged(used=0, pids=(), limits=None, holders=None, **changes):
    got = reading(0, used=used, processes=[listed(pid) for pid in pids], **changes)
    return judge(got, [holder(pid) for pid in pids] if holders is None else holders, limits or Limits())


@pytest.mark.parametrize(
    ("used", "pids", "limits", "state", "reason"),
    [
        (0, [], None, "free", ""),
        (256, [], None, "free", ""),
        (257, [], None, "busy", "unattributed"),
        (0, [], Limits(0), "free", ""),
        (1, [], Limits(0), "busy", "unattributed"),
        (0, [42], None, "busy", "holder"),
        (70000, [42], None, "busy", "holder"),
        (4256, [42], CACHE, "free", ""),
        (4257, [42], CACHE, "busy", "memory"),
        (4256, [], CACHE, "busy", "unattributed"),  # the allowance is for GPUs that the allowed are on
    ],
)
def test_verdicts(used, pids, limits, state, reason):
    got = judged(used, pids, limits)
    assert (got.state, got.reason) == (state, reason)
    assert got.message


def test_a_foreign_holder_beside_an_allowed_one():
    got = judged(300, [42, 43], CACHE, holders=[holder(42), holder(43, uid=7, user="eve")])
    assert (got.state, got.reason) == ("busy", "holder")
    assert "eve" in got.message
    assert "PID 42" not in got.message


def test_holders_of_other_gpus_do_not_count():
    assert judged(0, [], holders=[holder(42, gpus=(1,))]).state == "free"


def test_a_listed_pid_that_nobody_looked_up_counts():
    got = judged(0, [42], holders=[])
    assert (got.state, got.reason) == ("busy", "holder")
    assert "PID 42" in got.message


def test_a_dead_listed_pid_counts_even_where_its_user_would_be_allowed():
    assert judged(0, [42], CACHE, holders=[holder(42, info=False, doubt="gone")]).reason == "holder"


@pytest.mark.parametrize("failure", [LOST, HUNG])
def test_a_failure_is_told_as_unknown(failure):
    got = judged(0, failure=failure)
    assert (got.state, got.reason, got.permanent) == ("unknown", failure.code, failure.permanent)
    assert got.message == failure.text


def test_unattributed_memory_explains_itself():
    message = judged(70000).message
    for cause in ("PID namespace", "container", "virtual machine", "CUDA IPC", "reset"):
        assert cause in message


def test_the_driver_that_cannot_tell_reserved_memory_apart_is_pointed_out():
    message = judged(memory=MemoryReading(81920, 615, None, "nvml_v1")).message
    assert "max_used_mib" in message
    assert "reserves" in message


def test_the_message_names_who_and_how_much():
    assert "PID 42 sglang::scheduler_TP0 of llm with 1000 MiB" in judged(70000, [42]).message


memories = st.one_of(
    st.none(), st.builds(MemoryReading, st.integers(1, 99999), st.integers(0, 99999), st.none(), st.just("nvml_v1"))
)
readings = st.builds(
    GpuReading,
    st.just(0),
    identity=st.one_of(st.none(), st.just(identity(0))),
    memory=memories,
    processes=st.lists(st.builds(listed, st.integers(3, 9)), max_size=3).map(tuple),
    failure=st.one_of(st.none(), st.sampled_from([LOST, HUNG])),
)


@given(readings, st.sets(st.integers(3, 9)), st.integers(0, 99999), st.integers(0, 999), st.sets(st.integers(0, 2)))
def test_only_what_was_read_can_be_free(got, known, max_used, allow, uids):
    holders = [holder(pid, uid=pid % 3) for pid in known]
    verdict = judge(got, holders, Limits(max_used, allow, Allowance(frozenset(uids))))
    if verdict.state == "free":
        assert got.failure is None
        assert got.identity is not None
        assert got.memory is not None
        assert got.memory.used_mib <= max_used + allow
        assert all(p.pid in known and p.pid % 3 in uids for p in got.processes)
        assert verdict.reason == ""
    else:
        assert verdict.reason
    if got.failure is not None or got.memory is None or got.identity is None:
        assert verdict.state == "unknown"
