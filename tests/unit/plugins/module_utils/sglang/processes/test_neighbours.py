# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The other instances of a host."""

from __future__ import annotations

import json
import os

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.neighbours import (
    Neighbour,
    check_neighbours,
    neighbours,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import MISSING, FakeRun

PROCFS = ProcFs()
SHOW = (
    "LoadState=loaded\nActiveState=active\nSubState=running\nMainPID=%d\nResult=success\n"
    "ExecMainCode=0\nExecMainStatus=0\nNRestarts=0\nControlGroup=/none\n"
)


@pytest.fixture
def paths(tmp_path):
    return InstancePaths("main", state_dir=str(tmp_path / "lib"), run_dir=str(tmp_path))


def write(paths, instance, manager="process", text=None, **fields):
    folder = paths.base_dir.parent / instance / "releases" / "r1"
    folder.mkdir(parents=True)
    release = {
        "format": 1,
        "id": "r1",
        "created": "2026-01-02T03:04:05Z",
        "instance": instance,
        "manager": manager,
        "command": ["python3"],
        **fields,
    }
    (folder / "release.json").write_text(json.dumps(release) if text is None else text)
    (folder.parents[1] / "current").symlink_to("releases/r1")


def write_pid_file(paths, instance):
    me = PROCFS.identity(os.getpid())
    record = {"pid": me.pid, "start_ticks": me.start_time, "boot_id": PROCFS.boot_id(), "release": "r1"}
    (paths.pid_file.parent / (instance + ".json")).write_text(json.dumps({**record, "command_sha256": "x"}))


def test_what_they_run(paths):
    write(paths, "main")
    write(paths, "other", port=31000, gpus=["GPU-4"], host="0.0.0.0")
    write_pid_file(paths, "other")
    write(paths, "unit", manager="systemd", port=32000)
    write(paths, "idle", manager="process")
    (paths.base_dir.parent / "Not An Instance").mkdir()
    run = FakeRun({"systemctl show": SHOW % os.getpid()})
    idle, other, unit = neighbours(paths, PROCFS, run)
    assert [call.rpartition(" ")[2] for call in run.calls] == ["sglang-unit.service"]
    assert (other.running, other.pid, other.session, other.port, other.gpus) == (
        *(True, os.getpid(), os.getpid(), 31000, ("GPU-4",)),
    )
    assert (unit.running, unit.unit, unit.manager) == (True, "sglang-unit.service", "systemd")
    assert (idle.instance, idle.running, idle.pid) == ("idle", False, 0)
    assert other.to_dict() == {
        "instance": "other",
        "pid": os.getpid(),
        "unit": "",
        "container": "",
        "session": os.getpid(),
    }


def test_none(paths):
    assert neighbours(paths, PROCFS, FakeRun()) == []


def test_a_broken_one_is_said_and_hides_nothing(paths):
    write(paths, "broken", text="{")
    (found,) = neighbours(paths, PROCFS, FakeRun({"systemctl": MISSING}))
    assert "release.json" in found.problem and not found.running
    (check,) = check_neighbours([found], ["GPU-1"], 30000)
    assert check.status == "warning" and "broken" in check.message
    write_pid_file(paths, "broken")
    (found,) = neighbours(paths, PROCFS, FakeRun({"systemctl": MISSING}))
    assert found.running and found.pid == os.getpid()


OTHER = Neighbour("other", "process", "127.0.0.1", 31000, ("GPU-4", "GPU-5"), True, 4711)


@pytest.mark.parametrize(
    ("other", "gpus", "port", "host", "status", "words"),
    [
        (OTHER, ["GPU-0"], 30000, "", "ok", "other"),
        (OTHER, ["GPU-0", "GPU-5"], 30000, "", "failed", "GPU-5 are in use by the instance other (PID 4711)"),
        (OTHER, ["GPU-0"], 31000, "", "failed", "port 31000 is the one of the instance other, which runs"),
        (OTHER, ["GPU-0"], 31000, "127.0.0.1", "failed", "port 31000"),
        (OTHER, ["GPU-0"], 31000, "10.0.0.1", "ok", "other"),
        (OTHER, [], 30000, "", "skipped", "this instance would use"),
        (Neighbour("other", running=True), ["GPU-0"], 30000, "", "skipped", "the instance other uses"),
        (Neighbour("other", port=31000, gpus=("GPU-0",)), ["GPU-0"], 30000, "", "ok", "other"),
        (Neighbour("other", port=31000, gpus=("GPU-0",)), ["GPU-0"], 31000, "", "failed", "is stopped now"),
    ],
)
def test_conflicts(other, gpus, port, host, status, words):
    (check,) = check_neighbours([other], gpus, port, host)
    assert (check.name, check.status) == ("neighbours", status) and words in check.message


def test_no_neighbour_is_no_conflict():
    (check,) = check_neighbours([], ["GPU-0"], 30000)
    assert check.status == "ok"
