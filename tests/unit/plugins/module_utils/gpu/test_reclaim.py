# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import reclaim
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Failure
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.observer import EVERYTHING, KNOWN, NOTHING, Look
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.plan import Rules
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reclaim import Reclaim, Settings
from ansible_collections.inferops.sglang.plugins.module_utils.system.audit import NO_AUDIT, AuditLog
from ansible_collections.inferops.sglang.plugins.module_utils.system.respawn import NewChild
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import Stopped, Supervisor
from ansible_collections.inferops.sglang.plugins.module_utils.system.termination import Outcome
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import (
    FakeClock,
    holder,
    listed,
    process,
    reading,
)
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import recorded

HUNG = Failure("hung", "No answer", "Wait", False)
LOST = Failure("lost", "Gone", "Reset", True)
UNIT = Supervisor("systemd", "llm.service", True, "Restart=always", ("systemctl", "stop", "llm.service"))
STARTED_AT = 50000  # the fake processes started at 5000 + PID


class Host:
    """GPU 0 with the holders that a test puts on it; ending one takes it away unless it is in `stubborn`."""

    def __init__(self, *holders):
        self.clock = FakeClock()
        self.holders = list(holders)
        self.alive_pids = {h.pid for h in holders if h.process}
        self.failure = None
        self.stubborn = set()
        self.stays_listed = {}
        self.signalled = []
        self.looks = []
        self.stopped = {}
        self.revives_with = ""
        self.clients_of_mps = {}
        self.daemons_of_mps = [40, 44]
        self.mps_said = []
        self.on_end = lambda pids: None
        self.new_children = []
        self.forks_at = 0.0
        self.parents_live = False

    # -- the observer
    def look(self, scan=NOTHING, limits=None):
        self.looks.append(scan)
        shown = [h for h in self.holders if h.listed or scan != NOTHING]
        rows = [listed(h.pid) for h in shown if h.listed]
        return Look((reading(0, processes=rows, failure=self.failure),), tuple(shown))

    # -- /proc
    def ticks_now(self):
        return STARTED_AT

    def alive(self, identity):
        return identity.pid in self.alive_pids

    def identity(self, pid):
        return process(pid).identity

    # -- supervisors
    def of(self, one):
        return UNIT if one.unit else None

    def note(self, one):
        return ""

    def stop(self, supervisor, timeout):
        answer = self.stopped.get(supervisor.name, Stopped(True, "it is stopped", 0.1, True))
        if answer.ok:
            self.remove([h.pid for h in self.holders if h.process and h.process.unit == supervisor.name])
        return answer

    def revives(self, supervisor, since_pids):
        return self.revives_with

    # -- MPS
    def clients(self):
        return self.clients_of_mps

    def terminate(self, pid, timeout):
        self.mps_said.append(("terminate", pid, list(self.signalled)))
        return ""

    def daemons(self):
        return [SimpleNamespace(identity=process(pid).identity) for pid in self.daemons_of_mps]

    def daemon_of(self, pid):
        return SimpleNamespace(identity=process(40).identity) if pid in self.clients_of_mps else None

    def quit(self, timeout, only):
        self.mps_said.append(("quit", sorted(only), list(self.signalled)))
        return ""

    # -- ending
    def end(self, identities, grace, kill_timeout, procfs, witness):
        outcomes = []
        for identity in identities:
            witness.sending(identity, "SIGTERM")
            self.signalled.append(identity.pid)
            survived = identity.pid in self.stubborn
            outcomes.append(Outcome(identity, "survived" if survived else "terminated", ("SIGTERM",), 0.1))
            witness.ended(outcomes[-1])
        self.remove([i.pid for i in identities if i.pid not in self.stubborn])
        self.on_end([i.pid for i in identities])
        return outcomes

    def remove(self, pids):
        self.alive_pids.difference_update(pids)
        self.holders = [h for h in self.holders if h.pid not in pids]
        self.holders += [self.stays_listed[pid] for pid in pids if pid in self.stays_listed]


def run(host, monkeypatch, stop_services=False, audit=NO_AUDIT, **settings):
    monkeypatch.setattr(reclaim, "end_processes", host.end)
    monkeypatch.setattr(reclaim, "living", lambda _procfs, parents: {pid for pid in parents if host.parents_live})
    monkeypatch.setattr(
        reclaim,
        "new_children",
        lambda _procfs, parents, known, since: host.new_children if host.clock.now >= host.forks_at else [],
    )
    times = Settings(**{"grace": 1.0, "kill_timeout": 5.0, "service_timeout": 9.0, **settings})
    task = Reclaim(host, Rules(), times, host, host, host, host.clock.monotonic, host.clock.sleep, audit)
    before = host.look(EVERYTHING)
    plan = task.plan(before)
    keepers = task.supervisors_of(plan)
    began = host.clock.now
    done = task.run(before, plan, keepers, dict(keepers) if stop_services else {})
    return done, host.clock.now - began


def actions(done):
    return [(o.identity.pid, o.action) for o in done.outcomes]


def test_targets_are_ended_and_the_last_look_is_at_those_that_are_known(monkeypatch):
    host = Host(holder(5), holder(6, protected_by="why"))
    done, seconds = run(host, monkeypatch)
    assert actions(done) == [(5, "terminated")]
    assert [h.pid for h in done.after.holders] == [6]
    assert (done.changed, done.respawned, seconds) == (True, [], 0)
    assert host.looks[-1] == KNOWN


def test_nothing_to_end_changes_nothing(monkeypatch):
    done, _seconds = run(Host(holder(6, protected_by="why")), monkeypatch)
    assert (done.outcomes, done.changed) == ([], False)


def test_it_waits_for_the_drivers_list(monkeypatch):
    host = Host(holder(5))
    host.stays_listed[5] = gone = holder(5, info=False, doubt="gone")
    until = host.clock.now + 0.2
    real = host.look

    def look(scan=NOTHING, limits=None):
        if host.clock.now >= until and gone in host.holders:
            host.holders.remove(gone)
        return real(scan, limits)

    host.look = look
    done, seconds = run(host, monkeypatch)
    assert done.after.holders == ()
    assert seconds == pytest.approx(0.2, abs=0.02)


def test_a_list_that_does_not_change_is_waited_for_in_bounds(monkeypatch):
    host = Host(holder(5))
    host.stays_listed[5] = holder(5, info=False, doubt="gone")
    done, seconds = run(host, monkeypatch)
    assert seconds == pytest.approx(5.0, abs=0.1)
    assert [h.pid for h in done.after.holders] == [5]
    assert host.looks.count(EVERYTHING) <= 6


def test_a_pid_that_was_dead_from_the_start_is_not_waited_for_long(monkeypatch):
    host = Host(holder(5, info=False, doubt="gone"))
    _done, seconds = run(host, monkeypatch, kill_timeout=60.0)
    assert seconds == pytest.approx(5.0, abs=0.1)
    assert host.signalled == []


def test_a_gpu_that_hangs_is_waited_for_and_one_that_is_lost_is_not(monkeypatch):
    for failure, least, most in [(HUNG, 4.0, 5.1), (LOST, 0.0, 0.0)]:
        host = Host(holder(5))
        host.on_end = lambda pids, host=host, failure=failure: setattr(host, "failure", failure)
        assert least <= run(host, monkeypatch)[1] <= most


def test_the_heir_of_an_ended_process_is_ended_in_a_second_round(monkeypatch):
    child = holder(6, (), attached=[0], elsewhere=True)
    host = Host(holder(5), child)
    host.stays_listed[5] = holder(5, info=False, doubt="gone")

    def on_end(pids):
        if pids == [5]:  # now that its parent is dead, the child is seen to use the GPU
            host.holders = [host.stays_listed[5], holder(6, heir_of=5, evidence=("fd",))]
        else:
            host.holders = []

    host.on_end = on_end
    done, seconds = run(host, monkeypatch)
    assert actions(done) == [(5, "terminated"), (6, "terminated")]
    assert sorted(d.holder.pid for d in done.plan.decisions) == [5, 6, 6]
    assert seconds == pytest.approx(0.5, abs=0.05)


def test_a_process_that_started_afterwards_is_never_ended(monkeypatch):
    host = Host(holder(5))
    host.on_end = lambda pids: host.holders.append(holder(9, start_time=STARTED_AT + 1))
    done, _seconds = run(host, monkeypatch)
    assert host.signalled == [5]
    assert [h.pid for h in done.after.holders] == [9]


def test_a_process_that_was_there_before_and_shows_late_is_ended_once(monkeypatch):
    host = Host(holder(5))
    host.on_end = lambda pids: host.holders.append(holder(9)) if pids == [5] else None
    done, _seconds = run(host, monkeypatch)
    assert host.signalled == [5, 9]
    assert done.after.holders == ()


def test_rounds_are_bounded(monkeypatch):
    host = Host(holder(5))
    host.on_end = lambda pids: host.holders.append(holder(pids[-1] + 1)) if pids else None
    run(host, monkeypatch)
    assert len(host.signalled) == 4


def test_a_service_is_stopped_before_signals_are_sent(monkeypatch):
    host = Host(holder(5, unit="llm.service"), holder(6, unit="llm.service"), holder(7))
    done, _seconds = run(host, monkeypatch, stop_services=True)
    assert host.signalled == [7]
    assert {identity.pid for identity in done.ended_by_service} == {5, 6}
    assert done.changed


def test_what_a_stopped_service_leaves_behind_is_ended(monkeypatch):
    host = Host(holder(5, unit="llm.service"))
    host.stopped["llm.service"] = Stopped(False, "it is stopped, but not all of its processes are", 1.0, inactive=True)
    done, _seconds = run(host, monkeypatch, stop_services=True)
    assert host.signalled == [5]
    assert done.changed


def test_a_service_that_does_not_stop_keeps_its_processes(monkeypatch):
    host = Host(holder(5, unit="llm.service"), holder(7))
    host.stopped["llm.service"] = Stopped(False, "it was not stopped within 9 s", 9.0)
    done, _seconds = run(host, monkeypatch, stop_services=True)
    assert host.signalled == [7]
    assert [h.pid for h in done.after.holders] == [5]


def test_without_stop_services_a_revival_is_told_and_nobody_is_signalled_again(monkeypatch):
    host = Host(holder(5, unit="llm.service"))
    host.revives_with = "the unit llm.service is about to start it again"
    host.on_end = lambda pids: host.holders.append(holder(9, start_time=STARTED_AT + 5, unit="llm.service"))
    done, _seconds = run(host, monkeypatch)
    assert done.respawned == ["the unit llm.service is about to start it again"]
    assert host.signalled == [5]


def test_a_survivor_was_not_revived(monkeypatch):
    host = Host(holder(5, unit="llm.service"))
    host.stubborn = {5}
    host.revives_with = "never asked"
    done, _seconds = run(host, monkeypatch)
    assert done.respawned == []


def forked(pid):
    return NewChild(process(300, argv=("loop.sh",)), process(pid, start_time=STARTED_AT + 1))


def takes_gpu(host, pid, moment):
    """Let a new process hold a GPU from that moment on."""
    real = host.look

    def look(scan=NOTHING, limits=None):
        if host.clock.now >= moment and all(h.pid != pid for h in host.holders):
            host.holders.append(holder(pid, start_time=STARTED_AT + 1))
        return real(scan, limits)

    host.look = look


def test_a_parent_that_forks_again_is_told_as_soon_as_its_child_has_the_gpu(monkeypatch):
    host = Host(holder(5, ppid=300))
    host.new_children = [forked(9)]
    host.alive_pids.add(9)
    takes_gpu(host, 9, host.clock.now + 1.0)
    done, seconds = run(host, monkeypatch)
    assert len(done.respawned) == 1
    assert "300" in done.respawned[0]
    assert seconds == pytest.approx(1.0, abs=0.05)
    assert host.signalled == [5]


@pytest.mark.parametrize(("alive", "seconds"), [(True, 3.0), (False, 0.0)])
def test_a_new_child_that_takes_no_gpu_is_no_problem(monkeypatch, alive, seconds):
    host = Host(holder(5, ppid=300))
    host.new_children = [forked(9)]
    if alive:
        host.alive_pids.add(9)
    done, took = run(host, monkeypatch)
    assert done.respawned == []
    assert len(done.suspicions) == (1 if alive else 0)
    assert took == pytest.approx(seconds, abs=0.05)


def test_mps_clients_are_ended_through_their_daemon_first(monkeypatch):
    host = Host(holder(5, evidence=("nvml_mps",)), holder(6))
    host.clients_of_mps = {5: 50, 99: 50}
    done, _seconds = run(host, monkeypatch)
    assert host.mps_said == [("terminate", 5, [])]
    assert host.signalled == [5, 6]
    assert done.mps_clients == {5: ""}


def test_mps_is_not_asked_without_need(monkeypatch):
    host = Host(holder(5))
    host.clients = lambda: pytest.fail("asked")
    run(host, monkeypatch)


def test_mps_is_shut_down_last(monkeypatch):
    host = Host(holder(5, evidence=("nvml_mps",)))
    host.clients_of_mps = {5: 50}
    done, _seconds = run(host, monkeypatch, stop_mps=True)
    assert host.mps_said == [("terminate", 5, []), ("quit", [40], [5])]
    assert done.mps_stopped == ""


def test_only_the_mps_of_the_selected_gpus_is_shut_down(monkeypatch):
    server = holder(41, exe="/usr/bin/nvidia-cuda-mps-server", ppid=40, protected_by="the CUDA MPS server")
    host = Host(holder(5), server)
    run(host, monkeypatch, stop_mps=True)
    assert host.mps_said == [("quit", [40], [5])]
    adopted = Host(holder(41, exe="/usr/bin/nvidia-cuda-mps-server", ppid=1, protected_by="the CUDA MPS server"))
    run(adopted, monkeypatch, stop_mps=True)
    assert adopted.mps_said == [("quit", [40, 44], [])]
    idle = Host(holder(5))
    done, _seconds = run(idle, monkeypatch, stop_mps=True)
    assert (idle.mps_said, done.mps_stopped) == ([], None)


@pytest.mark.parametrize(
    ("forks_after", "parents_live", "respawned", "seconds"),
    [
        (0.05, True, 1, 0.06),
        (9.0, True, 0, 0.1),
        (9.0, False, 0, 0.0),
    ],
    ids=["found when it is scheduled", "not waited for longer", "a parent that is gone is not waited for"],
)
def test_a_parent_gets_a_moment_to_fork_again(monkeypatch, forks_after, parents_live, respawned, seconds):
    host = Host(holder(5, ppid=300))
    host.new_children = [forked(9)]
    host.alive_pids.add(9)
    host.forks_at = host.clock.now + forks_after
    host.parents_live = parents_live
    takes_gpu(host, 9, host.forks_at)
    done, took = run(host, monkeypatch)
    assert len(done.respawned) == respawned
    assert took == pytest.approx(seconds, abs=0.03)


# -- what is recorded


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Run with an audit log: its events as (action, target, outcome), the ones that are begun left out."""

    def run_it(host, **options):
        path = tmp_path / "audit.jsonl"
        run(host, monkeypatch, audit=AuditLog(str(path), journal="/none"), **options)
        rows = recorded(path)
        begun = {row["id"] for row in rows if row["outcome"] == "begun"}
        ends = [row for row in rows if row["outcome"] != "begun"]
        assert begun == {row["id"] for row in ends}
        return ends

    return run_it


def test_each_signal_is_recorded_with_its_evidence(told):
    host = Host(holder(5, unit="llm.service"), holder(6))
    host.stubborn = {6}
    first, second = told(host)
    assert (first["action"], first["outcome"], second["outcome"]) == ("signal", "terminated", "survived")
    assert {"pid": 5, "unit": "llm.service", "start_ticks": 5005}.items() <= first["target"].items()
    assert first["evidence"]["why"] == "listed by the driver"
    assert first["evidence"]["gpus"] == list(host.holders[0].gpus)
    assert first["evidence"]["found"] == list(host.holders[0].evidence)


def test_a_service_that_is_stopped_is_recorded_with_those_whom_it_runs(told):
    host = Host(holder(5, unit="llm.service"), holder(6, unit="llm.service"), holder(7))
    stop, signal = told(host, stop_services=True)
    assert (stop["action"], stop["outcome"], stop["detail"]) == ("stop", "stopped", "it is stopped")
    assert stop["target"]["service"] == UNIT.label
    assert stop["target"]["command"] == ["systemctl", "stop", "llm.service"]
    assert (stop["evidence"]["pids"], stop["evidence"]["policy"]) == ([5, 6], "Restart=always")
    assert signal["target"]["pid"] == 7


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Stopped(False, "not within 9 s", 9.0), "failed"),
        (Stopped(False, "some are left", 9.0, inactive=True, left=(5,)), "survived"),
    ],
)
def test_a_service_that_does_not_stop_is_recorded_so(told, answer, outcome):
    host = Host(holder(5, unit="llm.service"))
    host.stopped["llm.service"] = answer
    assert (told(host, stop_services=True)[0]["outcome"], answer.ok) == (outcome, False)


def test_what_is_done_through_mps_is_recorded(told):
    host = Host(holder(5, evidence=("nvml_mps",)))
    host.clients_of_mps = {5: 50}
    client, signal, mps = told(host, stop_mps=True)
    assert (client["action"], client["target"]["pid"], client["evidence"]["mps_server"]) == ("stop", 5, 50)
    assert signal["action"] == "signal"
    assert (mps["target"], mps["evidence"]["daemons"], mps["outcome"]) == ({"service": "MPS"}, [40], "stopped")
