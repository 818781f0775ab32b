# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.plan import (
    Filters,
    Rules,
    compile_pattern,
    plan_reclaim,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.containers import Container
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import holder, uuid

ALL = frozenset(uuid(i) for i in range(4))


def rules(users=(), attached="exclusive", **filters):
    return Rules(Filters(uids=frozenset(users), **filters), attached)


def decide(one, selected=ALL, **told):
    plan = plan_reclaim([one], selected, rules(**told))
    return plan.decisions[0] if plan.decisions else None


@pytest.mark.parametrize(
    ("one", "users", "action"),
    [
        (holder(42), [], "end"),
        (holder(42), [1000], "end"),
        (holder(42), [1001], "skipped"),
        (holder(42, protected_by="the X server"), [], "protected"),
        (holder(42, protected_by="the X server"), [1001], "protected"),
        (holder(42, info=False, doubt="gone"), [], "unresolved"),
        (holder(42, info=False, doubt="gone"), [1000], "unresolved"),
        (holder(42, doubt="a zombie", state="Z"), [], "unresolved"),
        (holder(42, exe=""), [], "unresolved"),
        (holder(42, exe=""), [1001], "skipped"),
    ],
)
def test_decisions(one, users, action):
    decision = decide(one, users=users)
    assert decision.action == action
    assert decision.why


def test_a_process_on_another_gpu_is_left_out():
    assert decide(holder(42, gpus=(1,)), selected=frozenset([uuid(0)])) is None


def test_a_process_on_a_selected_and_another_gpu_is_ended():
    assert decide(holder(42, gpus=(0, 1)), selected=frozenset([uuid(0)])).action == "end"


def test_an_unreadable_executable_says_what_to_do():
    assert "become" in decide(holder(42, exe="")).why


@pytest.mark.parametrize(
    ("one", "attached", "action"),
    [
        (holder(42, (), attached=[0]), "exclusive", "end"),
        (holder(42, (), attached=[0], evidence=("map",)), "exclusive", "end"),
        (holder(42, (), attached=[0], elsewhere=True), "exclusive", "skipped"),
        (holder(42, (), attached=[0], monitor=True), "exclusive", "skipped"),
        (holder(42, (), attached=[0], elsewhere=True), "any", "end"),
        (holder(42, (), attached=[0], monitor=True), "any", "end"),
        (holder(42, (), attached=[0]), "never", "skipped"),
        (holder(42, (), attached=[0], protected_by="why"), "any", "protected"),
        # The heir of a dead process uses its GPU, whatever else it has open.
        (holder(42, attached=[1], heir_of=7, elsewhere=True), "never", "end"),
        # A listed process is ended for the GPU that it uses.
        (holder(42, attached=[1], elsewhere=True), "never", "end"),
    ],
)
def test_processes_that_merely_have_a_gpu_open(one, attached, action):
    decision = decide(one, selected=frozenset([uuid(0)]), attached=attached)
    assert decision.action == action
    assert decision.why


def test_a_process_that_uses_another_gpu_is_never_ended_for_what_it_has_open():
    for attached in ("exclusive", "any", "never"):
        one = holder(42, (), attached=[0], outside="it uses GPU 1, which is not selected")
        decision = decide(one, selected=frozenset([uuid(0)]), attached=attached)
        assert (decision.action, decision.why) == ("skipped", "it uses GPU 1, which is not selected")


@pytest.mark.parametrize(
    ("child", "action"),
    [
        ({"session": 42}, "end"),
        ({"pgid": 42}, "end"),
        ({"ppid": 42}, "end"),
        ({}, "skipped"),
        ({"session": 42, "monitor": True}, "skipped"),
        ({"session": 42, "outside": "it uses GPU 1"}, "skipped"),
        ({"session": 42, "protected_by": "why"}, "protected"),
        ({"session": 42, "uid": 7}, "skipped"),
    ],
)
def test_who_was_forked_from_a_target_goes_with_it(child, action):
    # It has another GPU open too; that it keeps this one's memory would show only once its parent is dead.
    forked = holder(43, (), attached=[0], elsewhere=True, **{"session": 1, "pgid": 1, **child})
    plan = plan_reclaim([holder(42), forked], frozenset([uuid(0)]), rules(users=[1000]))
    assert [d.action for d in plan.decisions] == ["end", action]


def test_the_child_of_a_process_that_stays_stays_too():
    forked = holder(43, (), attached=[0], elsewhere=True, session=42)
    plan = plan_reclaim([holder(42, protected_by="why"), forked], frozenset([uuid(0)]), rules())
    assert [d.action for d in plan.decisions] == ["protected", "skipped"]


def test_a_process_that_has_the_gpu_open_but_is_listed_on_another_is_not_its_user():
    # It computes on GPU 1; CUDA opened GPU 0 all the same.
    only_open = holder(42, (), attached=[0, 1], elsewhere=True)
    assert decide(only_open, selected=frozenset([uuid(0)])).action == "skipped"


@pytest.mark.parametrize(
    ("filters", "changes", "action"),
    [
        ({"units": ("llm-*",)}, {"unit": "llm-a.service"}, "end"),
        ({"units": ("llm-a",)}, {"unit": "llm-a.service"}, "end"),
        ({"units": ("llm-*",)}, {"unit": "sglang-a.service"}, "skipped"),
        ({"units": ("llm-*",)}, {}, "skipped"),
        # A unit inside a guest has the guest's name for it.
        ({"units": ("llm-*",)}, {"unit": "llm-a.service", "container": Container("lxc", "129")}, "skipped"),
        ({"containers": ("lxc:129",)}, {"container": Container("lxc", "129")}, "end"),
        ({"containers": ("129",)}, {"container": Container("lxc", "129")}, "end"),
        ({"containers": ("docker:129",)}, {"container": Container("lxc", "129")}, "skipped"),
        ({"containers": ("*",)}, {}, "skipped"),
        ({"command": re.compile("scheduler_TP")}, {}, "end"),
        ({"command": re.compile("^scheduler")}, {}, "skipped"),
        ({"command": re.compile("x"), "users": [1000]}, {}, "skipped"),
    ],
)
def test_filters(filters, changes, action):
    decision = decide(holder(42, **changes), **filters)
    assert decision.action == action
    assert decision.why


indices = st.sets(st.integers(0, 3), max_size=4).map(sorted)
holders = st.lists(
    st.builds(
        holder,
        st.integers(3, 99),
        gpus=indices,
        attached=indices,
        doubt=st.sampled_from(["", "", "doubtful"]),
        protected_by=st.sampled_from(["", "", "why"]),
        info=st.sampled_from([True, True, False]),
        monitor=st.booleans(),
        elsewhere=st.booleans(),
        outside=st.sampled_from(["", "", "it uses GPU 9"]),
        session=st.integers(3, 99),
        uid=st.integers(0, 3),
        exe=st.sampled_from(["/bin/x", "/bin/x", ""]),
        unit=st.sampled_from([None, "a.service", "b.service"]),
    ),
    unique_by=lambda h: h.pid,
    max_size=8,
)


@given(
    holders,
    st.sets(st.integers(0, 3)),
    st.sets(st.integers(0, 3)),
    st.sampled_from(["exclusive", "any", "never"]),
    st.sampled_from([(), ("a",), ("*",)]),
)
def test_nobody_is_ended_without_every_condition(given_holders, indices, users, attached, units):
    selected = frozenset(uuid(i) for i in indices)
    plan = plan_reclaim(given_holders, selected, rules(users, attached, units=units))
    for target in plan.targets:
        assert not target.protected_by
        assert not target.doubt
        assert target.process is not None
        assert target.process.exe
        assert selected.intersection(target.gpus + target.attached)
        assert not users or target.process.uid in users
        assert not units or target.process.unit
        if not selected.intersection(target.gpus):
            assert not target.outside
            kin = {target.process.ppid, target.process.pgid, target.process.session}
            if kin.intersection(other.pid for other in plan.targets if other is not target):
                continue
            assert attached == "any" or (attached == "exclusive" and not target.elsewhere and not target.monitor)
    on_selected = sorted(h.pid for h in given_holders if selected.intersection(h.gpus + h.attached))
    assert [d.holder.pid for d in plan.decisions] == on_selected
    assert all(d.why for d in plan.decisions if d.action != "unresolved" or d.holder.doubt)


@given(holders, st.sets(st.integers(0, 3)))
def test_a_wider_selection_never_spares_anybody(given_holders, indices):
    some, everything = frozenset(uuid(i) for i in indices), ALL
    few = {h.pid for h in plan_reclaim(given_holders, some, rules()).targets}
    assert few <= {h.pid for h in plan_reclaim(given_holders, everything, rules()).targets}


@pytest.mark.parametrize(
    ("filters", "changes", "words"),
    [
        ({"users": [7]}, {"user": "eve"}, "its user eve"),
        ({"units": ("llm-*",)}, {"unit": "sglang-a.service"}, "its unit sglang-a.service"),
        ({"units": ("llm-*",)}, {}, "a process without a unit"),
        ({"containers": ("130",)}, {"container": Container("lxc", "129")}, "its container lxc:129"),
        ({"containers": ("130",)}, {}, "a process without a container"),
    ],
)
def test_who_is_left_alone_by_a_filter_is_told_by_what(filters, changes, words):
    assert decide(holder(42, **changes), **filters).why.startswith(words)


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (holder(42), "listed by the driver"),
        (holder(42, heir_of=7), "it inherited the GPU from PID 7"),
        (holder(42, (), attached=[0], evidence=("fd", "map")), "it has the GPU open (fd, map)"),
        # What it inherited is another GPU.
        (holder(42, gpus=(1,), attached=[0], heir_of=7), "it has the GPU open (fd)"),
    ],
)
def test_why_a_process_is_ended(one, why):
    assert decide(one, selected=frozenset([uuid(0)]), attached="any").why.startswith(why)


def test_who_goes_with_a_target_is_told_with_whom():
    forked = holder(43, (), attached=[0], elsewhere=True, session=42)
    plan = plan_reclaim([holder(42), forked], frozenset([uuid(0)]), rules())
    assert plan.targets == (holder(42), forked)
    assert "PID 42" in plan.decisions[1].why


@pytest.mark.parametrize(
    ("parent", "child"),
    [
        # The child uses a GPU that stays as it is.
        ({"gpus": (0,)}, {"gpus": (1,), "attached": [0]}),
        # What the two have in common is not selected, or there is nothing.
        ({"gpus": (0, 1)}, {"gpus": (), "attached": [1, 2]}),
        ({"gpus": (2,)}, {"gpus": (), "attached": [0]}),
    ],
)
def test_who_was_forked_from_a_target_stays_unless_it_has_the_targets_gpu(parent, child):
    forked = holder(43, elsewhere=True, session=42, **child)
    plan = plan_reclaim([holder(42, **parent), forked], frozenset([uuid(0), uuid(2)]), rules())
    assert [d.action for d in plan.decisions if d.holder.pid == 43] == ["skipped"]


def test_the_command_pattern():
    assert compile_pattern("") is None
    assert compile_pattern("sched.*TP0").search("sglang::scheduler_TP0")
    with pytest.raises(re.error):
        compile_pattern("(")
