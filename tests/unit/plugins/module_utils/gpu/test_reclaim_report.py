# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import reclaim_report
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Failure
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.observer import Look
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.plan import Filters, Rules, plan_reclaim
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.protection import Allowance
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reclaim import Done
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.verdict import Limits
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import Stopped, Supervisor
from ansible_collections.inferops.sglang.plugins.module_utils.system.termination import Outcome
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import holder, listed, reading, uuid

SELECTED = frozenset([uuid(0)])
LOST = Failure("lost", "Gone", "Reset", True)
UNIT = Supervisor("systemd", "llm.service", True, "Restart=always", ("stop",), "systemctl stop llm.service")
KEY = ("systemd", "llm.service")


def look(*holders, failure=None, used=0):
    rows = [listed(h.pid) for h in holders if h.listed]
    return Look((reading(0, used=used, processes=rows, failure=failure),), holders)


def plan(*holders, users=frozenset()):
    return plan_reclaim(holders, SELECTED, Rules(Filters(users)))


def outcome(one, action="terminated", **changes):
    return Outcome(one.process.identity, action, changes.pop("signals", ("SIGTERM",)), 0.5, **changes)


def done(planned, after, *outcomes, **changes):
    return Done(planned, after, outcomes=list(outcomes), **changes)


def test_planned_rows():
    planned = plan(holder(5), holder(6, protected_by="why"), holder(7, info=False, doubt="gone"), holder(8), holder(9))
    rows = reclaim_report.planned_rows(planned, {8: UNIT}, {5: UNIT, 8: UNIT}, {9: "orphan of container x"})
    assert [(r["pid"], r["action"]) for r in rows] == [
        (5, "would_terminate"),
        (6, "protected"),
        (7, "unresolved"),
        (8, "would_stop_service"),
        (9, "would_terminate"),
    ]
    assert "would start it again" in rows[0]["why"]
    assert [r["why"] for r in rows[1:3]] == ["why", "gone"]
    assert "llm.service" in rows[3]["why"]
    assert "orphan" in rows[4]["why"]
    assert all(r["signals"] == [] and r["seconds"] == 0.0 for r in rows)


def test_final_rows():
    one, two, gone = holder(5), holder(6), holder(7, info=False, doubt="gone")
    outcomes = [outcome(one), outcome(two, "survived", signals=("SIGTERM", "SIGKILL"), state="D")]
    rows = reclaim_report.final_rows(done(plan(one, two, gone), look(two), *outcomes))
    assert [(r["pid"], r["action"], r["signals"]) for r in rows] == [
        (5, "terminated", ["SIGTERM"]),
        (6, "survived", ["SIGTERM", "SIGKILL"]),
        (7, "vanished", []),
    ]
    assert rows[1]["state"] == "D"


def test_final_rows_of_services():
    one, two = holder(5), holder(6)
    services = {5: UNIT, 6: UNIT}
    ended = done(plan(one), look(), services=services, stopped={KEY: Stopped(True, "stopped")})
    ended.ended_by_service.add(one.process.identity)
    (row,) = reclaim_report.final_rows(ended)
    assert (row["action"], row["signals"]) == ("stopped_service", [])
    assert "llm.service" in row["why"]
    failed = done(plan(two), look(two), services=services, stopped={KEY: Stopped(False, "it hangs")})
    (row,) = reclaim_report.final_rows(failed)
    assert (row["action"], row["why"]) == ("survived", "it hangs")


@pytest.mark.parametrize(("error", "words"), [("", "ended its work first"), ("no answer", "no answer")])
def test_final_rows_of_mps_clients(error, words):
    one = holder(5)
    (row,) = reclaim_report.final_rows(done(plan(one), look(), outcome(one), mps_clients={5: error}))
    assert row["action"] == "terminated"
    assert words in row["why"]


def problems(result, users=frozenset(), newcomers=(), supervisor=None):
    after = plan_reclaim(result.after.holders, SELECTED, Rules(Filters(users)))
    return reclaim_report.problems(result, after, newcomers, lambda _identity: "it hangs", lambda _holder: supervisor)


def test_all_well():
    one = holder(5)
    assert problems(done(plan(one), look(holder(6, protected_by="why")), outcome(one))) == {}


def test_those_that_were_left_alone_on_purpose_are_no_problem():
    users = frozenset([1])
    assert problems(done(plan(holder(5, uid=7), users=users), look(holder(5, uid=7))), users) == {}
    mere = holder(5, (), attached=[0], elsewhere=True)
    assert problems(done(plan(mere), look(mere))) == {}


def test_a_survivor_is_told_with_its_state_and_what_holds_it():
    one = holder(5)
    found = problems(done(plan(one), look(one), outcome(one, "survived", signals=("SIGTERM", "SIGKILL"), state="D")))
    assert list(found) == ["survivors"]
    for words in ("PID 5", "state D", "SIGTERM, SIGKILL", "it hangs"):
        assert words in found["survivors"][0]


def test_a_survivor_that_may_not_be_signalled_asks_for_root():
    one = holder(5)
    found = problems(done(plan(one), look(one), outcome(one, "survived", signals=(), error="Operation not permitted")))
    assert "Operation not permitted" in found["survivors"][0]
    assert "become" in found["survivors"][0]


def test_an_ended_pid_that_stays_listed_is_told_with_who_may_keep_it():
    one, dead = holder(5), holder(5, info=False, doubt="gone")
    suspect = holder(6, (), attached=[0], elsewhere=True)
    found = problems(done(plan(one), look(dead, suspect), outcome(one)))
    assert list(found) == ["unresolved"]
    assert "inherited" in found["unresolved"][0]
    assert "PID 6" in found["unresolved"][0]
    assert "attached" in found["unresolved"][0]


def test_a_listed_pid_of_no_process_is_told():
    dead = holder(5, info=False, doubt="gone")
    found = problems(done(plan(dead), look(dead)))
    assert list(found) == ["unresolved"]
    assert "not signalled" in found["unresolved"][0]


@pytest.mark.parametrize(("supervisor", "words"), [(UNIT, "Restart=always"), (None, "stop what starts it")])
def test_a_newcomer_is_told_with_who_started_it(supervisor, words):
    one, new = holder(5), holder(9, unit="llm.service")
    found = problems(done(plan(one), look(new), outcome(one)), newcomers=[new], supervisor=supervisor)
    assert list(found) == ["retaken"]
    assert "PID 9" in found["retaken"][0]
    assert words in found["retaken"][0]


def test_a_revival_is_told():
    one = holder(5)
    result = done(plan(one), look(), outcome(one), respawned=["the unit x is about to start it again"])
    assert problems(result) == {"retaken": ["the unit x is about to start it again"]}


def test_a_service_that_did_not_stop_is_told():
    one = holder(5)
    result = done(plan(one), look(one), services={5: UNIT}, stopped={KEY: Stopped(False, "it hangs")})
    assert "it hangs" in problems(result)["service"][0]
    result = done(plan(one), look(), outcome(one), mps_stopped="no answer")
    assert "no answer" in problems(result)["service"][0]


def test_a_gpu_that_cannot_be_read_afterwards_is_told():
    assert list(problems(done(plan(), look(failure=LOST)))) == ["unknown"]


@pytest.mark.parametrize(
    ("one", "used", "blocks"),
    [
        (holder(5, uid=7), 0, True),
        (holder(5, (), attached=[0], elsewhere=True), 0, False),  # open alone makes no GPU busy
        (holder(5, (), attached=[0], elsewhere=True), 9000, True),  # but somebody uses that memory
        (holder(5, (), attached=[0], monitor=True), 9000, False),
    ],
)
def test_who_keeps_a_gpu_busy(one, used, blocks):
    seen = look(one, used=used)
    decisions = plan_reclaim(seen.holders, SELECTED, Rules(Filters(frozenset([1])))).decisions
    assert len(reclaim_report.blockers(decisions, seen, Limits(), Allowance())) == (1 if blocks else 0)


def test_diff_text():
    text = reclaim_report.diff_text([holder(5), holder(6), holder(7, (), attached=[0])], without=frozenset([6]))
    name = "sglang::scheduler_TP0 of llm"
    assert text == "PID 5 %s on %s\nPID 7 %s has open %s\n" % (name, uuid(0), name, uuid(0))
