# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ending a server by its manager, and what is left of it."""

from __future__ import annotations

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.ownership import Member
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.stopping import (
    ByEngine,
    BySignal,
    ByUnit,
    Limits,
    Tools,
    describe_survivor,
    stop,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.audit import NO_AUDIT, AuditLog
from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import Completed
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessInfo
from ansible_collections.inferops.sglang.plugins.module_utils.system.termination import Outcome
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import FakeClock, recorded

UNIT = "sglang-main.service"
LIMITS = Limits(grace=10.0, kill_timeout=5.0)


def process(pid):
    return ProcessInfo(pid, 100, 1, "S", "python3", "", ("python3",), 0, "root", pid, pid, "/", None, 0.0)


MAIN, WORKER, LATE = process(10), process(11), process(12)


class World:
    """Processes and systemd.

    ends_at: when the main process ends by itself after the request to stop, None never; immortal: those
    that SIGKILL does not end; refused: those that may not be signalled.
    """

    def __init__(self, ends_at=1.0, immortal=(), refused=(), result="success", denied=False):
        self.clock = FakeClock()
        self.alive_now = {MAIN.identity, WORKER.identity}
        self.ends_at = ends_at
        self.immortal = set(immortal)
        self.refused = set(refused)
        self.result = result
        self.denied = denied
        self.told = None
        self.calls = []
        self.signalled = []
        self.audit = NO_AUDIT

    # /proc

    def alive(self, identity):
        self.tick()
        return identity in self.alive_now

    def state(self, identity):
        return "D" if identity in self.alive_now else ""

    def tick(self):
        over = self.told is not None and self.ends_at is not None and self.clock.now >= self.told + self.ends_at
        if over:
            self.alive_now.discard(MAIN.identity)

    # systemctl

    def run(self, argv, timeout, input="", env=None):
        self.calls.append(" ".join(argv))
        if "stop" in argv:
            if self.denied:
                return Completed(1, err="Failed to stop: Access denied")
            self.told = self.clock.now
        elif "kill" in argv:
            self.alive_now -= {item.identity for item in (MAIN, WORKER)} - self.immortal
        elif "show" in argv:
            self.tick()
            running = MAIN.identity in self.alive_now
            values = {
                "LoadState": "loaded",
                "ActiveState": "deactivating" if running else "inactive",
                "SubState": "stop-sigterm" if running else "dead",
                "MainPID": 10 if running else 0,
                "ExecMainCode": 0 if running else 2,
                "ExecMainStatus": 0 if running else 9,
                "NRestarts": 0,
                "Result": self.result,
                "TimeoutStopUSec": "3s",
            }
            return Completed(0, "".join("%s=%s\n" % item for item in values.items()))
        return Completed(0)

    def read(self, pid):
        return {item.pid: item for item in (MAIN, WORKER, LATE)}[pid]

    # signals

    def end(self, targets, grace, kill_timeout, procfs, clock, sleep, witness):
        found = []
        for target in targets:
            witness.sending(target, "SIGKILL")
            self.signalled.append((target.pid, grace))
            if target in self.refused:
                found.append(Outcome(target, "survived", (), 0.0, "S", "SIGTERM: Operation not permitted"))
            elif target in self.immortal:
                found.append(Outcome(target, "survived", ("SIGKILL",), kill_timeout, "D"))
            else:
                self.alive_now.discard(target)
                found.append(Outcome(target, "killed", ("SIGKILL",), 0.1))
            witness.ended(found[-1])
        return found

    @property
    def tools(self):
        return Tools(self, self.run, self.clock, self.clock.sleep, self.end, self.audit, "main")

    def members(self):
        return [
            Member(item, "main" if item is MAIN else "unit") for item in (MAIN, WORKER) if self.alive(item.identity)
        ]


def by_unit(world):
    return stop(MAIN, ByUnit(world.tools, UNIT, world.members), world.members, LIMITS, world.tools)


def rows(stopped):
    return [(item.process.pid, item.role, item.outcome.action) for item in stopped.ended]


def test_systemd_is_told_and_watched():
    world = World(ends_at=3.0)
    stopped = by_unit(world)
    assert rows(stopped) == [(10, "main", "terminated"), (11, "worker", "killed")]
    assert stopped.main.exit_status == 137 and stopped.main.orderly and stopped.main.problem == ""
    assert 3.0 <= stopped.ended[0].outcome.seconds < 4.0
    assert world.calls[0] == "systemctl --no-ask-password stop --no-block " + UNIT
    # A process that lives is looked at; systemd is asked when it has ended.
    assert len([call for call in world.calls if " show " in call]) <= 2
    assert not [call for call in world.calls if " kill " in call]


def test_systemd_kills_what_does_not_end_in_the_grace():
    world = World(ends_at=None)
    stopped = by_unit(world)
    assert stopped.ended[0].outcome.action == "killed"
    assert stopped.ended[0].outcome.signals == ("SIGTERM", "SIGKILL") and stopped.main.orderly is None
    assert 10.0 <= world.clock.now < 11.0
    assert [call for call in world.calls if "kill --signal=SIGKILL " + UNIT in call]


def test_the_units_own_limit_counts_as_killed():
    stopped = by_unit(World(ends_at=3.0, result="timeout"))
    assert stopped.ended[0].outcome.action == "killed"
    assert stopped.main.limit == "TimeoutStopSec of %s (it has 3s)" % UNIT
    assert by_unit(World(ends_at=3.0)).main.limit == "" and by_unit(World(ends_at=None)).main.limit == ""


def test_a_systemd_that_is_busy_for_a_while_is_asked_again():
    world = World(ends_at=3.0)
    answer = world.run

    def busy(argv, timeout, input="", env=None):
        if "show" in argv and world.clock.now < 5.0:
            return Completed(None, timed_out=True)
        return answer(argv, timeout)

    world.run = busy
    stopped = by_unit(world)
    assert rows(stopped)[0] == (10, "main", "terminated") and stopped.main.problem == ""
    world = World(ends_at=3.0)
    world.run = lambda argv, timeout, input="", env=None: Completed(0 if "stop" in argv else None, timed_out=True)
    assert "did not answer in time" in by_unit(world).main.problem
    assert world.clock.now < 15.0


def test_one_that_nothing_ends_survives_and_is_explained():
    world = World(ends_at=None, immortal=[MAIN.identity])
    stopped = by_unit(world)
    assert [item.process.pid for item in stopped.survivors] == [10] and stopped.survivors[0].outcome.state == "D"
    assert "although it was told to stop and killed" in stopped.main.problem
    assert world.clock.now <= LIMITS.grace + LIMITS.kill_timeout + 1
    world.root = "/nowhere"
    world.identity = lambda pid: None
    assert "PID 10 (python3, main, state D)" in describe_survivor(stopped.survivors[0], world)


def test_systemd_that_refuses_is_a_problem_and_nobody_is_signalled():
    world = World(denied=True)
    stopped = by_unit(world)
    assert "Access denied" in stopped.main.problem and "run as root" in stopped.main.problem
    assert stopped.ended == [] and world.signalled == []


def test_the_main_process_gets_the_grace_and_the_rest_none():
    world = World()
    stopped = stop(MAIN, BySignal(world.tools), world.members, LIMITS, world.tools)
    assert world.signalled == [(10, 10.0), (11, 0)]
    assert rows(stopped) == [(10, "main", "killed"), (11, "worker", "killed")]


def test_workers_are_left_to_a_main_process_that_may_not_be_signalled():
    world = World(refused=[MAIN.identity])
    stopped = stop(MAIN, BySignal(world.tools), world.members, LIMITS, world.tools)
    assert rows(stopped) == [(10, "main", "survived")] and world.signalled == [(10, 10.0)]


def test_what_was_seen_before_is_ended_although_nothing_finds_it_afterwards():
    world = World()
    found = [world.members(), [], []]
    stopped = stop(MAIN, BySignal(world.tools), lambda: found.pop(0) if found else [], LIMITS, world.tools)
    assert rows(stopped) == [(10, "main", "killed"), (11, "worker", "killed")]


def test_what_appears_while_it_ends_is_ended_in_another_round():
    world = World()
    rounds = [world.members(), [], [Member(LATE, "marker")], []]
    world.alive_now.add(LATE.identity)
    stopped = stop(MAIN, BySignal(world.tools), lambda: rounds.pop(0) if rounds else [], LIMITS, world.tools)
    assert rows(stopped)[-1] == (12, "orphan", "killed")


def test_one_that_forks_forever_does_not_hold_it_forever():
    world = World(immortal=[WORKER.identity])
    stopped = stop(MAIN, BySignal(world.tools), world.members, LIMITS, world.tools)
    assert [item.process.pid for item in stopped.survivors] == [11]
    assert world.signalled.count((11, 0)) == 1


def test_an_engine_stops_a_container_whose_unit_is_down():
    world = World(ends_at=2.0)
    way = ByEngine(world.tools, ["docker", "stop", "-t", "10", "sglang-main"])
    world.ends_at = 0.0
    stopped = stop(MAIN, way, world.members, LIMITS, world.tools)
    assert world.calls == ["docker stop -t 10 sglang-main"]
    assert rows(stopped)[0] == (10, "main", "terminated")
    hanging = World(ends_at=None)
    stopped = stop(MAIN, ByEngine(hanging.tools, ["docker", "stop", "x"]), hanging.members, LIMITS, hanging.tools)
    assert rows(stopped)[0] == (10, "main", "killed")


def test_nothing_to_end_needs_no_main_process():
    world = World()
    world.alive_now = set()
    stopped = stop(None, BySignal(world.tools), world.members, LIMITS, world.tools)
    assert (stopped.ended, stopped.main.problem) == ([], "")


# -- what is recorded


def test_signals_to_a_unit_and_to_what_is_left_of_it_are_recorded(tmp_path):
    world = World(ends_at=None)
    world.audit = AuditLog(str(tmp_path / "audit.jsonl"), journal="/none")
    real = world.run

    def kill_takes_the_main_process_alone(argv, *others):
        if "kill" in argv:
            world.immortal.add(WORKER.identity)
        done = real(argv, *others)
        world.immortal.discard(WORKER.identity)
        return done

    world.run = kill_takes_the_main_process_alone
    by_unit(world)
    rows = [row for row in recorded(tmp_path / "audit.jsonl") if row["outcome"] != "begun"]
    unit, worker = rows
    assert (unit["action"], unit["outcome"], unit["target"]) == ("signal", "sent", {"unit": UNIT, "instance": "main"})
    assert unit["evidence"] == {"why": "it did not stop within 10 s"}
    assert (worker["target"]["pid"], worker["target"]["instance"], worker["outcome"]) == (11, "main", "killed")
    assert worker["evidence"] == {"found": "unit"}


def test_a_main_process_is_recorded_as_such(tmp_path):
    world = World()
    world.audit = AuditLog(str(tmp_path / "audit.jsonl"), journal="/none")
    BySignal(world.tools).end(MAIN, LIMITS)
    assert [row["evidence"] for row in recorded(tmp_path / "audit.jsonl")] == [{"found": "main"}] * 2
