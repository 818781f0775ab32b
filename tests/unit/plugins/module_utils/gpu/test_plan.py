# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.plan import plan_reclaim
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import holder, uuid

ALL = frozenset(uuid(i) for i in range(4))


def decide(one, selected=ALL, users=frozenset()):
    plan = plan_reclaim([one], selected, users)
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
    decision = decide(one, users=frozenset(users))
    assert decision.action == action
    assert decision.why


def test_a_process_on_another_gpu_is_left_out():
    assert decide(holder(42, gpus=(1,)), selected=frozenset([uuid(0)])) is None


def test_a_process_on_a_selected_and_another_gpu_is_ended():
    assert decide(holder(42, gpus=(0, 1)), selected=frozenset([uuid(0)])).action == "end"


def test_an_unreadable_executable_says_what_to_do():
    assert "become" in decide(holder(42, exe="")).why


holders = st.lists(
    st.builds(
        holder,
        st.integers(3, 99),
        gpus=st.sets(st.integers(0, 3), max_size=4).map(sorted),
        doubt=st.sampled_from(["", "", "doubtful"]),
        protected_by=st.sampled_from(["", "", "why"]),
        info=st.sampled_from([True, True, False]),
        uid=st.integers(0, 3),
        exe=st.sampled_from(["/bin/x", "/bin/x", ""]),
    ),
    unique_by=lambda h: h.pid,
    max_size=8,
)


@given(holders, st.sets(st.integers(0, 3)), st.sets(st.integers(0, 3)))
def test_nobody_is_ended_without_every_condition(given_holders, indices, users):
    selected = frozenset(uuid(i) for i in indices)
    plan = plan_reclaim(given_holders, selected, frozenset(users))
    for target in plan.targets:
        assert not target.protected_by
        assert not target.doubt
        assert target.process is not None
        assert target.process.exe
        assert selected.intersection(target.gpus)
        assert not users or target.process.uid in users
    on_selected = sorted(h.pid for h in given_holders if selected.intersection(h.gpus))
    assert [d.holder.pid for d in plan.decisions] == on_selected
    assert all(d.why for d in plan.decisions if d.action != "unresolved" or d.holder.doubt)
