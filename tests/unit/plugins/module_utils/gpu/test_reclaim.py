# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import reclaim
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Failure
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.observer import Look
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.plan import plan_reclaim
from ansible_collections.inferops.sglang.plugins.module_utils.system.termination import Outcome
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import (
    FakeClock,
    holder,
    listed,
    reading,
    uuid,
)

SELECTED = frozenset([uuid(0)])
HUNG = Failure("hung", "No answer", "Wait", False)
LOST = Failure("lost", "Gone", "Reset", True)


def look(*holders, failure=None):
    return Look((reading(0, processes=[listed(h.pid) for h in holders], failure=failure),), holders)


def plan(*holders, users=frozenset()):
    return plan_reclaim(holders, SELECTED, users)


def outcome(one, action="terminated", **changes):
    return Outcome(one.process.identity, action, changes.pop("signals", ("SIGTERM",)), 0.5, **changes)


def settle(looks, leaving, patience=5.0):
    clock = FakeClock()
    seen = list(looks)
    got = reclaim.settle(
        lambda: seen.pop(0) if len(seen) > 1 else seen[0], frozenset(leaving), patience, clock.monotonic, clock.sleep
    )
    return got, clock.now - 100


def test_settling_waits_for_the_drivers_list():
    got, seconds = settle([look(holder(5)), look(holder(5)), look()], [5])
    assert got.holders == ()
    assert seconds == pytest.approx(0.1)


def test_settling_does_not_wait_for_others():
    _got, seconds = settle([look(holder(9))], [5])
    assert seconds == 0


def test_settling_is_bounded():
    got, seconds = settle([look(holder(5))], [5])
    assert [h.pid for h in got.holders] == [5]
    assert seconds == pytest.approx(5.0)


def test_settling_waits_for_a_gpu_that_hangs_but_not_for_one_that_is_lost():
    assert settle([look(failure=HUNG), look()], [])[1] > 0
    assert settle([look(failure=LOST)], [])[1] == 0


def test_only_a_real_end_is_given_much_time():
    assert reclaim.patience_for([outcome(holder(5))], 60.0) == 60.0
    assert reclaim.patience_for([outcome(holder(5), "survived")], 60.0) == 5.0
    assert reclaim.patience_for([], 1.0) == 1.0


def test_who_is_to_leave_the_list():
    one, two, three = holder(5), holder(6), holder(7, info=False, doubt="gone")
    planned = plan(one, two, three)
    assert reclaim.leaving_pids(planned, [outcome(one), outcome(two, "survived")]) == {5, 7}


def test_planned_rows():
    rows = reclaim.planned_rows(plan(holder(5), holder(6, protected_by="why"), holder(7, info=False, doubt="gone")))
    assert [(r["pid"], r["action"]) for r in rows] == [(5, "would_terminate"), (6, "protected"), (7, "unresolved")]
    assert [r["why"] for r in rows] == ["listed by the driver", "why", "gone"]
    assert all(r["signals"] == [] and r["seconds"] == 0.0 for r in rows)


def test_final_rows():
    one, two, gone = holder(5), holder(6), holder(7, info=False, doubt="gone")
    outcomes = [outcome(one), outcome(two, "survived", signals=("SIGTERM", "SIGKILL"), state="D")]
    rows = reclaim.final_rows(plan(one, two, gone), outcomes, look(two))
    assert [(r["pid"], r["action"], r["signals"]) for r in rows] == [
        (5, "terminated", ["SIGTERM"]),
        (6, "survived", ["SIGTERM", "SIGKILL"]),
        (7, "vanished", []),
    ]
    assert rows[1]["state"] == "D"


def problems(planned, outcomes, after, users=frozenset()):
    return reclaim.problems(planned, outcomes, after, SELECTED, users)


def test_all_well():
    one = holder(5)
    assert problems(plan(one), [outcome(one)], look(holder(6, protected_by="why"))) == {}


def test_those_that_were_left_alone_on_purpose_are_no_problem():
    assert problems(plan(holder(5, uid=7), users=frozenset([1])), [], look(holder(5, uid=7)), frozenset([1])) == {}


def test_a_survivor_is_told_with_its_state():
    one = holder(5)
    found = problems(plan(one), [outcome(one, "survived", signals=("SIGTERM", "SIGKILL"), state="D")], look(one))
    assert list(found) == ["survivors"]
    assert "PID 5" in found["survivors"][0]
    assert "state D" in found["survivors"][0]
    assert "SIGTERM, SIGKILL" in found["survivors"][0]


def test_a_survivor_that_may_not_be_signalled_asks_for_root():
    one = holder(5)
    found = problems(plan(one), [outcome(one, "survived", signals=(), error="Operation not permitted")], look(one))
    assert "Operation not permitted" in found["survivors"][0]
    assert "become" in found["survivors"][0]


def test_an_ended_pid_that_stays_listed_is_told():
    one = holder(5)
    found = problems(plan(one), [outcome(one)], look(holder(5, info=False, doubt="gone")))
    assert list(found) == ["unresolved"]
    assert "inherited" in found["unresolved"][0]


def test_a_listed_pid_of_no_process_is_told():
    found = problems(plan(holder(5, info=False, doubt="gone")), [], look(holder(5, info=False, doubt="gone")))
    assert list(found) == ["unresolved"]
    assert "not signalled" in found["unresolved"][0]


def test_a_newcomer_is_told_with_its_unit():
    one, new = holder(5), holder(9, unit="sglang-main.service")
    found = problems(plan(one), [outcome(one)], look(new))
    assert list(found) == ["retaken"]
    assert "sglang-main.service" in found["retaken"][0]


def test_a_newcomer_under_an_old_pid_is_one_too():
    one = holder(5)
    assert list(problems(plan(one), [outcome(one)], look(holder(5, start_time=99999)))) == ["retaken"]


def test_a_gpu_that_cannot_be_read_afterwards_is_told():
    assert list(problems(plan(), [], look(failure=LOST))) == ["unknown"]


def test_diff_text():
    text = reclaim.diff_text([holder(5), holder(6)], without=frozenset([6]))
    assert text == "PID 5 sglang::scheduler_TP0 of llm on %s\n" % uuid(0)
