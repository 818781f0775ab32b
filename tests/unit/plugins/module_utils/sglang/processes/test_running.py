# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.managers.systemd_unit import HEADER
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.running import (
    RunningError,
    find_all,
    find_running,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import Completed
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessInfo, ProcFs

PROCFS = ProcFs()


def process(session, cgroup="/", start_time=1 << 60):
    """A process that is not there, as it is read."""
    return ProcessInfo(
        *(4194300, start_time, 1, "S", "python3", "", ("python3",), 0, "root", session, session, cgroup, None, 0.0)
    )


@pytest.fixture
def paths(tmp_path):
    return InstancePaths("main", state_dir=str(tmp_path / "state"), run_dir=str(tmp_path), unit_dir=str(tmp_path))


def no_command(_command, _timeout):
    raise AssertionError("no command is needed")


def show(pid, status=0, errors=""):
    def run(command, timeout):
        assert command[:2] == ["systemctl", "show"] and command[-1] == "sglang-main.service"
        lines = ["LoadState=loaded", "ActiveState=active", "SubState=running", f"MainPID={pid}"]
        lines += ["Result=success", "ExecMainCode=0", "ExecMainStatus=0", "NRestarts=0"]
        return Completed(status, "\n".join(lines), errors)

    return run


def write_pid_file(paths, **changes):
    me = PROCFS.identity(os.getpid())
    record = {
        "pid": me.pid,
        "start_ticks": me.start_time,
        "boot_id": PROCFS.boot_id(),
        "release": "r1",
        "command_sha256": "x",
    }
    paths.pid_file.write_text(json.dumps(dict(record, **changes)))


def test_a_process_of_its_own(paths):
    write_pid_file(paths)
    running = find_running(paths, "process", PROCFS, no_command)
    assert running.to_dict() == {
        "pid": os.getpid(),
        "start_ticks": PROCFS.identity(os.getpid()).start_time,
        "manager": "process",
        "unit": "",
        "container": "",
        "session": os.getpid(),
        "user": running.process.user,
        "release": "r1",
    }


@pytest.mark.parametrize("change", [{"start_ticks": 1}, {"boot_id": "another"}, {"pid": 4194303}])
def test_a_pid_file_of_a_process_that_is_gone(paths, change):
    write_pid_file(paths, **change)
    running = find_running(paths, "process", PROCFS, no_command)
    assert running.to_dict() is None
    assert not running.owns(process(session=os.getpid()))


def test_no_pid_file(paths):
    assert find_running(paths, "process", PROCFS, no_command).to_dict() is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "1"}'])
def test_a_broken_pid_file_names_file_and_remedy(paths, text):
    paths.pid_file.write_text(text)
    with pytest.raises(RunningError) as caught:
        find_running(paths, "process", PROCFS, no_command)
    assert str(paths.pid_file) in str(caught.value) and "remove the file" in str(caught.value)


def test_the_session_of_a_process_is_its_own(paths):
    write_pid_file(paths)
    running = find_running(paths, "process", PROCFS, no_command)
    assert running.owns(process(session=os.getpid(), cgroup="/system.slice/x.service"))
    assert not running.owns(process(session=os.getpid(), start_time=1))
    assert not running.owns(process(session=1))


def test_a_unit(paths):
    running = find_running(paths, "systemd", PROCFS, show(os.getpid()))
    assert running.to_dict()["pid"] == os.getpid() and running.to_dict()["unit"] == "sglang-main.service"
    assert running.owns(process(session=1, cgroup="/system.slice/sglang-main.service"))
    assert not running.owns(process(session=os.getpid(), cgroup="/system.slice/sglang-main-2.service"))


def test_a_unit_that_does_not_run(paths):
    assert find_running(paths, "systemd", PROCFS, show(0)).to_dict() is None


def test_no_systemd(paths):
    with pytest.raises(RunningError, match=r"not been booted.*set manager to process"):
        find_running(paths, "systemd", PROCFS, show(0, 1, "System has not been booted with systemd"))

    with pytest.raises(RunningError, match=r"no such program.*set manager to process"):
        find_running(paths, "systemd", PROCFS, lambda *_words: Completed(127, missing=True))


# -- every manager


def managers(paths, wanted, release=None, run=None):
    return [item.manager for item in find_all(paths, wanted, release, PROCFS, run or show(0))]


def test_the_other_manager_is_asked_where_it_left_something_of_ours(paths):
    assert managers(paths, "process", run=no_command) == ["process"]
    assert managers(paths, "systemd") == ["systemd"]
    # A current release that another manager would start says nothing of what runs.
    paths.unit_file.write_text(HEADER + "\n[Unit]\n")
    assert managers(paths, "process") == ["process", "systemd"]
    write_pid_file(paths)
    assert managers(paths, "systemd") == ["systemd", "process"]


def test_a_unit_of_that_name_that_is_somebody_elses_is_not_asked_for(paths):
    paths.unit_file.write_text("[Unit]\n")
    assert managers(paths, "process", run=no_command) == ["process"]


def test_a_manager_that_is_not_there_matters_only_where_it_was_asked_for(paths):
    paths.unit_file.write_text(HEADER + "\n")
    none = show(0, 1, "System has not been booted with systemd")
    assert managers(paths, "process", run=none) == ["process"]
    with pytest.raises(RunningError):
        managers(paths, "systemd", run=none)
