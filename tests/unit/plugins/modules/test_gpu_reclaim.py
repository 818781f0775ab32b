# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real module on real processes; only the driver is a stand-in."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import reclaim
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Failure
from ansible_collections.inferops.sglang.plugins.module_utils.modules import gpu_reclaim
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import (
    FakeSession,
    listed,
    reading,
    uuid,
)
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import recorded

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
POLITE = "import time; print(1, flush=True); time.sleep(600)"


class Driver(FakeSession):
    """Lists processes on its GPUs as long as they live, and `dead` ones for ever."""

    def __init__(self, count=4):
        super().__init__(self.one, count=count)
        self.users = {index: [] for index in range(count)}
        self.dead = {index: [] for index in range(count)}
        self.failures = {}
        self.on_look = lambda: None

    def read(self, indices):
        self.on_look()
        return super().read(indices)

    def one(self, index):
        alive = [p.pid for p in self.users[index] if p.poll() is None] + self.dead[index]
        return reading(
            index, used=1000 * len(alive), processes=[listed(pid) for pid in alive], failure=self.failures.get(index)
        )


@pytest.fixture
def driver(monkeypatch):
    value = Driver()
    monkeypatch.setattr(gpu_reclaim, "open_session", lambda timeout, procfs, reader: value)
    return value


@pytest.fixture
def start(driver):
    """Start a process that uses the given fake GPUs."""
    started = []

    def run(*gpus, code=POLITE):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert process.stdout.readline()
        started.append(process)
        for index in gpus:
            driver.users[index].append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()


def actions(result):
    return {row["pid"]: row["action"] for row in result["processes"]}


def test_nothing_to_do(driver, run_module):
    code, result = run_module(gpu_reclaim, {})
    assert (code, result["changed"]) == (0, False)
    assert (result["processes"], result["survivors"], result["remaining"]) == ([], [], [])
    assert driver.closed


def test_the_polite_and_the_stubborn(driver, start, run_module):
    polite, stubborn = start(0), start(1, 2, code=STUBBORN)
    code, result = run_module(gpu_reclaim, {"grace": 0.3}, diff=True)
    assert (code, result["changed"]) == (0, True)
    assert actions(result) == {polite.pid: "terminated", stubborn.pid: "killed"}
    rows = {row["pid"]: row for row in result["processes"]}
    assert rows[polite.pid]["signals"] == ["SIGTERM"]
    assert rows[stubborn.pid]["signals"] == ["SIGTERM", "SIGKILL"]
    assert rows[stubborn.pid]["gpus"] == sorted([uuid(1), uuid(2)])
    assert polite.wait(5) == -signal.SIGTERM
    assert stubborn.wait(5) == -signal.SIGKILL
    assert (result["holders"], result["remaining"], result["survivors"]) == ([], [], [])
    assert [g["verdict"] for g in result["gpus"]] == ["free"] * 4
    assert str(polite.pid) in result["diff"]["before"]
    assert result["diff"]["after"] == ""
    assert 0.3 <= result["elapsed"] < 10


def test_without_grace_sigkill_comes_at_once(start, run_module):
    one = start(0)
    _code, result = run_module(gpu_reclaim, {"grace": 0})
    assert result["processes"][0]["signals"] == ["SIGKILL"]
    assert one.wait(5) == -signal.SIGKILL


def test_only_the_selected_gpus(start, run_module):
    on_first, on_second, on_both = start(0), start(1), start(0, 1)
    _code, result = run_module(gpu_reclaim, {"gpus": ["0"]})
    assert set(actions(result)) == {on_first.pid, on_both.pid}
    assert on_second.poll() is None
    assert [g["index"] for g in result["gpus"]] == [0]


def test_check_mode_signals_nobody(start, run_module):
    one = start(0)
    code, result = run_module(gpu_reclaim, {}, check=True, diff=True)
    assert (code, result["changed"]) == (0, True)
    assert actions(result) == {one.pid: "would_terminate"}
    assert result["remaining"] == []
    assert [h["pid"] for h in result["holders"]] == [one.pid]
    assert str(one.pid) in result["diff"]["before"]
    assert result["diff"]["after"] == ""
    assert one.poll() is None


def test_the_task_and_its_parents_are_left_alone(driver, run_module):
    driver.dead[0] = [os.getpid(), os.getppid()]
    code, result = run_module(gpu_reclaim, {"grace": 0})
    assert (code, result["changed"]) == (0, False)
    assert set(actions(result).values()) == {"protected"}
    assert sorted(h["pid"] for h in result["remaining"]) == sorted([os.getpid(), os.getppid()])


@pytest.mark.parametrize(
    ("args", "action"),
    [
        ({"protect_users": [str(os.getuid())]}, "protected"),
        ({"protect_executables": [os.path.realpath(sys.executable)]}, "protected"),
        ({"protect_executables": [os.path.basename(os.path.realpath(sys.executable))]}, "protected"),
        ({"users": ["4242424"]}, "skipped"),
        ({"users": [str(os.getuid())]}, "terminated"),
    ],
)
def test_filters(start, run_module, args, action):
    one = start(0)
    code, result = run_module(gpu_reclaim, args)
    assert code == 0
    assert actions(result) == {one.pid: action}
    assert result["changed"] == (action == "terminated")
    if action != "terminated":
        assert one.poll() is None
        assert [h["pid"] for h in result["remaining"]] == [one.pid]


@pytest.mark.parametrize(
    ("args", "action", "blocked"),
    [
        ({"users": ["4242424"]}, "skipped", True),
        ({"protect_users": [str(os.getuid())]}, "protected", True),
        ({"users": ["4242424"], "allow_users": [str(os.getuid())]}, "protected", False),
        ({"allow_executables": [os.path.basename(os.path.realpath(sys.executable))]}, "protected", False),
        ({}, "would_terminate", False),
    ],
)
def test_who_keeps_a_gpu_from_being_free_is_said_beforehand(start, run_module, args, action, blocked):
    one = start(0)
    code, result = run_module(gpu_reclaim, args, check=True)
    assert code == 0
    assert actions(result) == {one.pid: action}
    assert [str(one.pid) in sentence for sentence in result["blockers"]] == ([True] if blocked else [])


@pytest.mark.parametrize("option", ["users", "protect_users", "allow_users"])
def test_a_user_that_does_not_exist_fails_before_anything(driver, start, run_module, option):
    one = start(0)
    code, result = run_module(gpu_reclaim, {option: ["no-such-user"]})
    assert (code, result["reason"]) == (1, "option")
    assert "no-such-user" in result["msg"]
    assert one.poll() is None


@pytest.mark.parametrize("check", [False, True])
def test_an_unknown_gpu_stops_everything(driver, start, run_module, check):
    one = start(0)
    driver.failures[3] = Failure("hung", "No answer", "Reset it")
    code, result = run_module(gpu_reclaim, {"grace": 0}, check=check)
    assert (code, result["changed"], result["reason"]) == (1, False, "unknown")
    assert "GPU 3" in result["msg"]
    assert "hung" in result["msg"]
    assert "GPU 0" not in result["msg"]
    assert one.poll() is None


def test_a_gpu_without_memory_figures_is_emptied_all_the_same(driver, start, run_module):
    one = start(0)
    real = driver.one
    failure = Failure("not_supported", "No figures (GB10)", "Its processes are known", True)
    driver.read_one = lambda index: dataclasses.replace(real(index), memory=None, failure=failure, processes_read=True)
    code, result = run_module(gpu_reclaim, {"gpus": ["0"]})
    assert (code, result["changed"]) == (0, True)
    assert actions(result) == {one.pid: "terminated"}
    assert (result["gpus"][0]["verdict"], result["gpus"][0]["reason"]) == ("unknown", "not_supported")


def test_an_unknown_gpu_outside_the_selection_does_not(driver, start, run_module):
    start(0)
    driver.failures[3] = Failure("hung", "No answer", "Reset it")
    assert run_module(gpu_reclaim, {"gpus": ["0"]})[0] == 0


def free_pid():
    """A PID that nobody has."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_dead_listed_pid_is_never_signalled(driver, run_module, monkeypatch):
    dead = free_pid()
    real = os.kill
    monkeypatch.setattr(os, "kill", lambda pid, number: pytest.fail("signalled") if pid == dead else real(pid, number))
    driver.dead[0] = [dead]
    code, result = run_module(gpu_reclaim, {"kill_timeout": 0.1})
    assert (code, result["changed"], result["reason"]) == (1, False, "unresolved")
    assert actions(result) == {dead: "unresolved"}
    assert result["processes"][0]["start_time"] is None
    assert str(dead) in result["msg"]


def test_a_pid_that_goes_between_two_looks_is_no_problem(driver, run_module):
    dead = free_pid()
    looks = []

    def on_look():
        looks.append(1)
        driver.dead[0] = [dead] if len(looks) < 3 else []

    driver.on_look = on_look
    code, result = run_module(gpu_reclaim, {})
    assert (code, result["changed"]) == (0, False)
    assert actions(result) == {dead: "vanished"}


def test_a_process_that_was_gone_before_its_signal_is_no_change(start, run_module, monkeypatch):
    one = start(0)
    real = reclaim.end_processes

    def too_late(identities, *args, **kwargs):
        one.kill()
        one.wait()
        return real(identities, *args, **kwargs)

    monkeypatch.setattr(reclaim, "end_processes", too_late)
    code, result = run_module(gpu_reclaim, {})
    assert (code, result["changed"]) == (0, False)
    assert actions(result) == {one.pid: "vanished"}
    assert result["processes"][0]["signals"] == []


def test_memory_that_a_forked_child_keeps_fails(driver, start, run_module):
    one = start(0)
    driver.dead[0] = [one.pid]
    code, result = run_module(gpu_reclaim, {"kill_timeout": 0.2})
    assert (code, result["changed"], result["reason"]) == (1, True, "unresolved")
    assert actions(result) == {one.pid: "terminated"}
    assert "inherited" in result["msg"]
    assert [h["pid"] for h in result["remaining"]] == [one.pid]


def test_a_process_that_is_started_again_is_told(driver, start, run_module):
    one = start(0)
    again = []

    def on_look():
        if one.poll() is not None and not again:
            again.append(start(0))

    driver.on_look = on_look
    code, result = run_module(gpu_reclaim, {})
    assert (code, result["changed"], result["reason"]) == (1, True, "retaken")
    assert str(again[0].pid) in result["msg"]
    assert again[0].poll() is None


def test_survivors_are_changed_and_failed(driver, start, run_module, monkeypatch):
    one, two = start(0), start(1)
    real = reclaim.end_processes

    def but_one_survives(identities, grace, kill_timeout, **others):
        ended = real([i for i in identities if i.pid != two.pid], grace, kill_timeout, **others)
        (stuck,) = [i for i in identities if i.pid == two.pid]
        return [*ended, type(ended[0])(stuck, "survived", ("SIGTERM", "SIGKILL"), 60.0, state="D")]

    monkeypatch.setattr(reclaim, "end_processes", but_one_survives)
    code, result = run_module(gpu_reclaim, {"grace": 0})
    assert (code, result["changed"], result["reason"]) == (1, True, "survivors")
    assert actions(result) == {one.pid: "killed", two.pid: "survived"}
    assert [(s["pid"], s["state"]) for s in result["survivors"]] == [(two.pid, "D")]
    assert [h["pid"] for h in result["remaining"]] == [two.pid]
    assert "state D" in result["msg"]


def test_a_gpu_that_is_lost_while_it_is_freed_fails(driver, start, run_module):
    one = start(0)

    def on_look():
        if one.poll() is not None:
            driver.failures[0] = Failure("lost", "It is gone", "Reset it", True)

    driver.on_look = on_look
    code, result = run_module(gpu_reclaim, {})
    assert (code, result["changed"], result["reason"]) == (1, True, "unknown")


def test_a_second_run_changes_nothing(start, run_module):
    start(0)
    assert run_module(gpu_reclaim, {})[1]["changed"] is True
    assert run_module(gpu_reclaim, {})[1]["changed"] is False


# -- what is recorded


def test_who_was_ended_why_and_by_whom_is_recorded(start, run_module, tmp_path):
    path = tmp_path / "audit" / "audit.jsonl"
    polite, stubborn = start(0), start(1, code=STUBBORN)
    run_module(gpu_reclaim, {"grace": 0.3, "audit_path": str(path)})
    ends = {row["target"]["pid"]: row for row in recorded(path) if row["outcome"] != "begun"}
    assert {pid: row["outcome"] for pid, row in ends.items()} == {polite.pid: "terminated", stubborn.pid: "killed"}
    row = ends[stubborn.pid]
    assert row["evidence"]["gpus"] == [uuid(1)] and "nvml_compute" in row["evidence"]["found"]
    assert row["detail"].startswith("SIGTERM, SIGKILL; ")
    assert row["who"]["uid"] == os.geteuid()
    assert [one["detail"] for one in recorded(path) if one["id"] == row["id"]][:2] == ["SIGTERM", "SIGKILL"]


def test_check_mode_records_nothing(start, run_module, tmp_path):
    start(0)
    run_module(gpu_reclaim, {"audit_path": str(tmp_path / "audit" / "audit.jsonl")}, check=True)
    assert not (tmp_path / "audit").exists()


def test_a_log_that_is_refused_keeps_nobody_from_being_ended(start, run_module, tmp_path):
    one = start(0)
    tmp_path.chmod(0o777)
    code, result = run_module(gpu_reclaim, {"audit_path": str(tmp_path / "audit.jsonl")})
    assert (code, actions(result)) == (0, {one.pid: "terminated"})
    assert len(result["warnings"]) == 1 and "others may write %s" % tmp_path in str(result["warnings"])
