# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.matching import Who
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import (
    Failure,
    GpuReading,
    MemoryReading,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.protection import Allowance
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.verdict import Limits, View, judge
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import (
    holder,
    identity,
    listed,
    reading,
    uuid,
)

LOST = Failure("lost", "It is gone", "Reset it", True)
HUNG = Failure("hung", "No answer", "Wait", False)
CACHE = Limits(256, allow_mib=4000, allowance=Allowance(Who(frozenset([1000]))))


def judged(used=0, pids=(), limits=None, holders=None, view=None, **changes):
    got = reading(0, used=used, processes=[listed(pid) for pid in pids], **changes)
    known = [holder(pid) for pid in pids] if holders is None else holders
    return judge(got, known, limits or Limits(), view or View())


@pytest.mark.parametrize(
    ("used", "pids", "limits", "state", "reason"),
    [
        (0, [], None, "free", ""),
        (256, [], None, "free", ""),
        (257, [], None, "busy", "unattributed"),
        (8192, [], Limits(max_used_fraction=0.1), "free", ""),
        (8193, [], Limits(max_used_fraction=0.1), "busy", "unattributed"),
        (0, [], Limits(max_used_fraction=0.0), "free", ""),
        (1256, [], Limits(baseline={uuid(0): 1000}), "free", ""),
        (1257, [], Limits(baseline={uuid(0): 1000}), "busy", "unattributed"),
        (1257, [], Limits(baseline={uuid(1): 1000}), "busy", "unattributed"),
        (1010, [], Limits(10, baseline={uuid(0): 1000}), "free", ""),
        (1011, [], Limits(10, baseline={uuid(0): 1000}), "busy", "unattributed"),
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


@pytest.mark.parametrize(
    ("view", "changes", "words"),
    [
        (View(), {}, ["container", "virtual machine", "CUDA IPC", "reset"]),
        (View(scanned=True), {}, ["No process on this host has it open", "reset"]),
        (View(scanned=True, namespaced=True), {}, ["PID namespace", "on the host itself"]),
        (View(scanned=True, uninspected=7), {}, ["7 processes", "become"]),
        (View(scanned=True), {"addressing_mode": "ats"}, ["NUMA", "baseline"]),
        (View(scanned=True), {"mig_mode": "enabled"}, ["MIG", "root"]),
    ],
)
def test_unattributed_memory_explains_itself(view, changes, words):
    got = judged(70000, view=view, **changes)
    assert (got.state, got.reason) == ("busy", "unattributed")
    for word in words:
        assert word in got.message


def test_unattributed_memory_names_who_has_the_gpu_open():
    message = judged(70000, holders=[holder(7, (), attached=[0]), holder(8, (), attached=[0], monitor=True)]).message
    assert "PID 7" in message
    assert "PID 8" not in message
    assert "Likely causes" not in message


@pytest.mark.parametrize(
    ("others", "view", "reason"),
    [
        ([], View(scanned=True), "unattributed"),
        ([], View(), "holder"),  # nobody looked who else has it open
        ([], View(scanned=True, uninspected=1), "holder"),
        ([holder(8, (), attached=[0], monitor=True)], View(scanned=True), "unattributed"),
        ([holder(8, (), attached=[0])], View(scanned=True), "holder"),
        ([holder(8, heir_of=42, attached=[1])], View(scanned=True), "holder"),
    ],
)
def test_a_dead_pid_alone_in_the_list_is_nobody(others, view, reason):
    got = judged(9000, [42], holders=[holder(42, info=False, doubt="gone"), *others], view=view)
    assert (got.state, got.reason) == ("busy", reason)
    assert "PID 42" in got.message


def test_the_heir_of_a_dead_pid_is_named():
    heir = holder(43, heir_of=42)
    assert "PID 43" in judged(9000, [42], holders=[holder(42, info=False, doubt="gone"), heir]).message


def test_a_limit_that_is_not_a_number_of_mib_says_where_it_comes_from():
    assert "max_used_fraction 0.1" in judged(9000, limits=Limits(max_used_fraction=0.1)).message
    assert "baseline 500 MiB" in judged(9000, limits=Limits(baseline={uuid(0): 500})).message


@pytest.mark.parametrize(
    "action",
    ["reset", "node_reboot", "drain_p2p", "drain_and_reset", "recover_imex_domain", "bus_reset", "system_reboot"],
)
def test_a_gpu_that_the_driver_wants_repaired_is_not_free(action):
    got = judged(0, recovery_action=action)
    assert (got.state, got.reason, got.permanent) == ("unknown", "recovery_action", True)
    assert action in got.message
    assert judged(0, limits=Limits(ignore_recovery=True), recovery_action=action).state == "free"


@pytest.mark.parametrize("action", ["none", "not_supported", "unknown"])
def test_a_driver_that_wants_nothing_or_does_not_say_is_no_obstacle(action):
    assert judged(0, recovery_action=action).state == "free"


def test_what_the_driver_wants_comes_before_what_cannot_be_read():
    assert judged(0, failure=LOST, recovery_action="node_reboot").reason == "recovery_action"


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
    recovery_action=st.sampled_from(["none", "unknown", "reset", "node_reboot"]),
    failure=st.one_of(st.none(), st.sampled_from([LOST, HUNG])),
)


views = st.builds(View, st.booleans(), st.booleans(), st.integers(0, 2))


@given(
    readings, st.sets(st.integers(3, 9)), st.integers(0, 99999), st.integers(0, 999), st.sets(st.integers(0, 2)), views
)
def test_only_what_was_read_can_be_free(got, known, max_used, allow, uids, view):
    holders = [holder(pid, uid=pid % 3) for pid in known]
    verdict = judge(got, holders, Limits(max_used, allow_mib=allow, allowance=Allowance(Who(frozenset(uids)))), view)
    if verdict.state == "free":
        assert got.failure is None
        assert got.recovery_action in ("none", "unknown")
        assert got.identity is not None
        assert got.memory is not None
        assert got.memory.used_mib <= max_used + allow
        assert all(p.pid in known and p.pid % 3 in uids for p in got.processes)
        assert verdict.reason == ""
    else:
        assert verdict.reason
    if got.failure is not None or got.memory is None or got.identity is None:
        assert verdict.state == "unknown"


# -- what the messages say, word for word where a program or a tired operator goes by them


def test_a_gpu_that_was_not_read_is_unknown_and_may_be_read_later():
    for changes in ({"identity": None}, {"memory": None}):
        got = judged(0, **changes)
        assert (got.state, got.reason, got.permanent) == ("unknown", "unread", False)
        assert "Run the task again" in got.message


@pytest.mark.parametrize(
    ("pids", "holders", "begin"),
    [
        ([42, 43], None, "5 MiB used, by PID 42 sglang::scheduler_TP0 of llm with 1000 MiB; PID 43 sglang"),
        ([44, 9], [], "5 MiB used, by PID 9; PID 44."),
        ([42], [holder(42, mib=None)], "5 MiB used, by PID 42 sglang::scheduler_TP0 of llm with an unknown share."),
        (
            [42],
            [holder(42, info=False, doubt="gone"), holder(43, heir_of=42), holder(44, heir_of=42)],
            "5 MiB used, by PID 42 (gone) with 1000 MiB; what it had is kept by "
            "PID 43 sglang::scheduler_TP0 of llm; PID 44 sglang::scheduler_TP0 of llm. End",
        ),
        # One that inherited another GPU keeps nothing of this one.
        (
            [42],
            [holder(42, info=False, doubt="gone"), holder(43, gpus=(1,), heir_of=42)],
            "5 MiB used, by PID 42 (gone) with 1000 MiB. End",
        ),
    ],
)
def test_a_busy_gpu_names_everybody(pids, holders, begin):
    got = judged(5, pids, holders=holders)
    assert (got.state, got.reason) == ("busy", "holder")
    assert got.message.startswith(begin)


def test_a_gpu_whose_listed_processes_are_all_dead_names_them():
    dead = [holder(pid, info=False, doubt="gone") for pid in (42, 43)]
    got = judged(5, [42, 43], holders=dead, view=View(scanned=True))
    assert got.reason == "unattributed"
    assert got.message.startswith(
        "5 MiB used, and nobody alive uses it: the driver still lists PID 42 (gone); PID 43 (gone). "
        "No process on this host has it open. Likely causes: "
    )


def test_a_zombie_alone_in_the_list_is_nobody_and_a_live_process_is_somebody():
    for state, reason in (("Z", "unattributed"), ("S", "holder")):
        assert judged(5, [42], holders=[holder(42, state=state)], view=View(scanned=True)).reason == reason


def test_one_who_has_another_gpu_open_is_no_heir():
    dead, other = holder(42, info=False, doubt="gone"), holder(8, (), attached=[1])
    assert judged(5, [42], holders=[dead, other], view=View(scanned=True)).reason == "unattributed"


def test_a_listed_pid_that_nobody_looked_up_is_not_nobody():
    dead = holder(42, info=False, doubt="gone")
    assert judged(5, [42, 43], holders=[dead], view=View(scanned=True)).reason == "holder"


def test_a_free_gpu_says_so():
    assert judged(7).message == "7 MiB used and no process listed."
    names = "PID 42 sglang::scheduler_TP0 of llm; PID 43 sglang::scheduler_TP0 of llm"
    assert judged(7, [42, 43], CACHE).message == "7 MiB used, only by allowed: %s." % names


def test_too_much_of_the_allowed_says_how_much_and_whose():
    message = judged(5000, [42, 43], CACHE).message
    assert message.startswith(
        "5000 MiB used, which is more than 4256 MiB, by the allowed PID 42 sglang::scheduler_TP0 of llm with 1000 MiB; "
        "PID 43 sglang::scheduler_TP0 of llm with 1000 MiB. Raise allow_mib"
    )


@pytest.mark.parametrize(
    ("limits", "begin"),
    [
        (Limits(), "9000 MiB used, which is more than 256 MiB, and nobody is listed as using it. "),
        (Limits(10, max_used_fraction=0.5), "9000 MiB used, which is more than 10 MiB, and nobody"),
        (
            Limits(max_used_fraction=0.05, baseline={uuid(0): 500}),
            "9000 MiB used, which is more than 4596 MiB (baseline 500 MiB, max_used_fraction 0.05), and nobody",
        ),
    ],
)
def test_unattributed_memory_is_told_with_its_limit(limits, begin):
    assert judged(9000, limits=limits).message.startswith(begin)


def causes(view, **changes):
    begin, _colon, rest = judged(9000, view=view, **changes).message.partition("Likely causes: ")
    return begin, rest.split("; ")


def test_only_the_causes_that_can_be_are_told():
    last = ["a process in another container or virtual machine, or a CUDA IPC peer, keeps it"]
    begin, told = causes(View(scanned=True))
    assert begin.endswith("No process on this host has it open. ")
    assert told[:1] == last and len(told) == 2 and told[1].endswith("(reset the GPU).")
    for view in (View(), View(uninspected=1), View(scanned=True, uninspected=1)):
        begin, _told = causes(view)
        assert begin.endswith(", and nobody is listed as using it. ")
    _begin, told = causes(View(namespaced=True, uninspected=3), addressing_mode="ats", mig_mode="enabled")
    assert [cause.split()[0] for cause in told[:4]] == ["this", "3", "the", "MIG"] and len(told) == 6


def test_a_mig_gpu_that_lists_processes_does_not_hide_them():
    dead = holder(42, info=False, doubt="gone")
    message = judged(5, [42], holders=[dead], view=View(scanned=True), mig_mode="enabled").message
    assert "MIG" not in message


def test_several_who_have_the_gpu_open_are_all_named():
    having = [holder(7, (), attached=[0]), holder(8, attached=[0]), holder(9, (), attached=[1])]
    message = judged(9000, holders=having).message
    assert "It is open in PID 7 sglang::scheduler_TP0 of llm; PID 8 sglang::scheduler_TP0 of llm: end" in message
