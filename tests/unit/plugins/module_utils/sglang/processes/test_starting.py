# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starting by systemd; a process of its own is started for real in the tests of sglang_process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.managers.systemd_unit import HEADER
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.managers.unit_state import UnitError
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.running import Running, find_running
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.server_process import Launch
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.starting import (
    ProcessStart,
    StartError,
    Tools,
    UnitStart,
    refuse_other_manager,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release
from ansible_collections.inferops.sglang.plugins.module_utils.system.audit import NO_AUDIT, AuditLog
from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import Completed
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import Listener, ProcFs
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import (
    FakeClock,
    FakeProc,
    recorded,
)

UNIT = "sglang-main.service"
GROUP = "/system.slice/" + UNIT
RELEASE = Release("r1", "2026-01-02T03:04:05Z", "main", "systemd", ["/bin/python3"], port=30007)
IDLE = {"ActiveState": "inactive", "SubState": "dead", "MainPID": 0}


class Systemd:
    """A unit that becomes active when it is started, or what the test wants."""

    def __init__(self, **state):
        self.calls = []
        self.after_start = {"ActiveState": "active", "SubState": "running", "MainPID": 10}
        self.start = Completed(0)
        self.state = {
            "LoadState": "loaded",
            "ActiveState": "inactive",
            "SubState": "dead",
            "MainPID": 0,
            "Result": "success",
            "ExecMainCode": 0,
            "ExecMainStatus": 0,
            "NRestarts": 0,
            "ControlGroup": GROUP,
            "UnitFileState": "disabled",
            **state,
        }

    def __call__(self, argv, timeout, input="", env=None):
        words = [word for word in argv if not word.startswith("-")]
        if words[0] == "journalctl":
            return Completed(0, "ModuleNotFoundError: No module named sglang\n")
        if words[1] == "show":
            return Completed(0, "".join("%s=%s\n" % item for item in self.state.items()))
        self.calls.append(words[1])
        if words[1] == "start":
            self.state.update(self.after_start)
            return self.start
        return Completed(0)


@pytest.fixture
def proc(tmp_path):
    proc = FakeProc(tmp_path)
    proc.add(1, ppid=0)
    proc.procfs.listeners = lambda port: []
    return proc


@pytest.fixture
def paths(tmp_path):
    return InstancePaths("main", state_dir=str(tmp_path / "lib"), run_dir=str(tmp_path))


def start(systemd, proc, paths, act=True, enabled=True, audit=NO_AUDIT):
    clock = FakeClock()
    tools = Tools(proc.procfs, systemd, 0.3, 5.0, clock, clock.sleep, audit)
    running = find_running(paths, "systemd", proc.procfs, systemd)
    return UnitStart(paths, RELEASE, enabled, tools).run(running, act)


def test_a_unit_is_started_and_enabled(proc, paths):
    systemd = Systemd()
    proc.add(10, cgroup="0::" + GROUP)
    proc.procfs.pids = lambda: [1]  # it appears with the start
    assert start(systemd, proc, paths)
    assert systemd.calls == ["daemon-reload", "start", "enable"]


@pytest.mark.parametrize(("enabled", "state"), [(False, "disabled"), (True, "enabled"), (True, "static"), (True, "")])
def test_it_is_enabled_only_where_that_is_wanted_and_can_be(proc, paths, enabled, state):
    systemd = Systemd(UnitFileState=state)
    assert start(systemd, proc, paths, enabled=enabled)
    assert systemd.calls == ["daemon-reload", "start"]


def test_one_that_runs_and_cannot_be_enabled_is_a_change_all_the_same(proc, paths):
    systemd = Systemd()

    def run(argv, timeout, input="", env=None):
        return Completed(1, err="Read-only file system") if "enable" in argv else systemd(argv, timeout)

    with pytest.raises(StartError, match=r"main runs, but .*next boot: .*Read-only") as caught:
        start(run, proc, paths)
    assert caught.value.results == {"changed": True}


def test_check_mode_starts_nothing(proc, paths):
    systemd = Systemd(LoadState="not-found")
    assert start(systemd, proc, paths, act=False) and systemd.calls == []


def test_one_that_runs_is_left_alone(proc, paths):
    proc.add(10, cgroup="0::" + GROUP)
    systemd = Systemd(ActiveState="active", SubState="running", MainPID=10, UnitFileState="enabled")
    systemd_running = find_running(paths, "systemd", proc.procfs, systemd)
    clock = FakeClock()
    tools = Tools(proc.procfs, systemd, 0.3, 5.0, clock, clock.sleep)
    current = replace(systemd_running, release="r1")
    assert not UnitStart(paths, RELEASE, True, tools).run(current, True) and systemd.calls == []
    with pytest.raises(StartError, match=r"PID 10.*release r1.*Stop it first"):
        UnitStart(paths, RELEASE, True, tools).run(systemd_running, True)
    systemd.state["UnitFileState"] = "disabled"
    again = replace(find_running(paths, "systemd", proc.procfs, systemd), release="r1")
    assert UnitStart(paths, RELEASE, True, tools).run(again, True) and systemd.calls == ["enable"]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"LoadState": "not-found"}, "no unit %s .not-found.: deploy a release" % UNIT),
        ({"LoadState": "masked"}, "systemctl unmask " + UNIT),
        ({"ActiveState": "deactivating", "SubState": "stop-sigterm", "MainPID": 10}, "is being stopped"),
    ],
)
def test_what_cannot_be_started(proc, paths, state, words):
    with pytest.raises(StartError, match=words):
        start(Systemd(**state), proc, paths)


def test_check_mode_sees_a_unit_that_is_masked(proc, paths):
    with pytest.raises(StartError, match="unmask"):
        start(Systemd(LoadState="masked"), proc, paths, act=False)


def test_one_that_failed_too_often_may_be_started_again(proc, paths):
    systemd = Systemd(ActiveState="failed", SubState="failed", Result="start-limit-hit", UnitFileState="enabled")
    assert start(systemd, proc, paths)
    assert systemd.calls == ["daemon-reload", "reset-failed", "start"]


def test_one_that_another_manager_runs_is_not_started_a_second_time(proc, paths):
    systemd = Systemd(ActiveState="active", SubState="running", MainPID=10)
    proc.add(10, cgroup="0::" + GROUP)
    with pytest.raises(StartError, match=r"by the manager systemd \(PID 10\): stop it first"):
        refuse_other_manager("main", [find_running(paths, "systemd", proc.procfs, systemd)])
    systemd.state.update(ActiveState="activating", SubState="auto-restart", MainPID=0)
    with pytest.raises(StartError, match=r"by the manager systemd \(%s\)" % UNIT):
        refuse_other_manager("main", [find_running(paths, "systemd", proc.procfs, systemd)])
    systemd.state.update(IDLE)
    refuse_other_manager("main", [find_running(paths, "systemd", proc.procfs, systemd)])


def test_what_is_left_of_it_is_named(proc, paths):
    proc.add(11, cgroup="0::%s/x" % GROUP)
    systemd = Systemd()
    with pytest.raises(StartError, match=r"may hold GPUs: PID 11 .*Stop them first"):
        start(systemd, proc, paths)
    assert systemd.calls == []


def test_a_taken_port_is_named_before_the_model_is_loaded(proc, paths):
    proc.add(12, argv=("nginx",))
    proc.procfs.listeners = lambda port: [Listener("0.0.0.0", port, 12)]
    systemd = Systemd()
    with pytest.raises(StartError, match=r"port 30007 is taken.*PID 12 \(nginx"):
        start(systemd, proc, paths)
    assert systemd.calls == []


def test_one_that_dies_at_once_is_told_with_its_log(proc, paths):
    systemd = Systemd()
    systemd.after_start = {
        "ActiveState": "failed",
        "SubState": "failed",
        "Result": "exit-code",
        "ExecMainCode": 1,
        "ExecMainStatus": 1,
        "InvocationID": "first",
    }
    with pytest.raises(StartError, match="status 1") as caught:
        start(systemd, proc, paths)
    assert caught.value.results["reason"] == "missing_dependency" and caught.value.results["exit_status"] == 1
    assert caught.value.results["log_tail"] == ["ModuleNotFoundError: No module named sglang"]
    systemd = Systemd()
    systemd.after_start, systemd.start = {}, Completed(1, err="Job for x failed because of resources.")
    with pytest.raises(StartError, match="failed because of resources"):
        start(systemd, proc, paths)


def test_systemd_that_does_not_answer(proc, paths):
    def run(argv, timeout, input="", env=None):
        return Completed(None, timed_out=True) if "daemon-reload" in argv else Systemd()(argv, timeout)

    clock = FakeClock()
    running = Running("systemd", unit=UNIT)
    with pytest.raises(UnitError, match=r"daemon-reload failed: it did not answer in time"):
        UnitStart(paths, None, True, Tools(proc.procfs, run, 0.3, 5.0, clock, clock.sleep)).run(running, True)


def test_a_start_and_a_unit_that_is_enabled_are_recorded(proc, paths, tmp_path):
    systemd = Systemd()
    proc.add(10, cgroup="0::" + GROUP)
    proc.procfs.pids = lambda: [1]
    start(systemd, proc, paths, audit=AuditLog(str(tmp_path / "audit.jsonl"), journal="/none"))
    rows = [row for row in recorded(tmp_path / "audit.jsonl") if row["outcome"] != "begun"]
    assert [(row["action"], row["outcome"]) for row in rows] == [("start", "started"), ("configuration", "done")]
    assert rows[0]["target"] == {"instance": "main", "unit": UNIT, "release": RELEASE.id}
    assert (rows[1]["target"], rows[1]["evidence"]["enabled"]) == ({"unit": UNIT}, True)


def test_a_start_that_fails_is_recorded_with_the_reason(proc, paths, tmp_path):
    systemd = Systemd()
    systemd.after_start, systemd.start = {}, Completed(1, err="Job for x failed because of resources.")
    with pytest.raises(StartError):
        start(systemd, proc, paths, audit=AuditLog(str(tmp_path / "audit.jsonl"), journal="/none"))
    begun, failed = recorded(tmp_path / "audit.jsonl")
    assert (begun["outcome"], failed["outcome"]) == ("begun", "failed")
    assert "failed because of resources" in failed["detail"]


# -- a process of its own, beside the unit of an earlier release


def boot(systemd, paths):
    """What is done about the unit before a process of its own is started."""
    clock = FakeClock()
    tools = Tools(ProcFs(), systemd, 0.3, 5.0, clock, clock.sleep)
    ProcessStart(paths, Launch(("x",), {}), None, tools)._have_no_unit_started_at_boot()
    return systemd.calls


def test_the_unit_of_an_earlier_release_is_not_started_at_boot_any_more(tmp_path):
    paths = InstancePaths("main", unit_dir=str(tmp_path))
    assert boot(Systemd(UnitFileState="enabled"), paths) == []  # there is none
    paths.unit_file.write_text("[Unit]\n")
    assert boot(Systemd(UnitFileState="enabled"), paths) == []  # it is somebody else's
    paths.unit_file.write_text(HEADER + "\n[Unit]\n")
    assert boot(Systemd(UnitFileState="enabled"), paths) == ["disable"]
    assert boot(Systemd(UnitFileState="disabled"), paths) == []


def test_where_no_systemd_answers_none_starts_it(tmp_path):
    paths = InstancePaths("main", unit_dir=str(tmp_path))
    paths.unit_file.write_text(HEADER + "\n")
    systemd = Systemd(LoadState="")
    assert boot(systemd, paths) == []
