# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""sglang_process through its real main(), on real processes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pwd
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.modules import sglang_process
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes import leftovers, stopping
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs
from ansible_collections.inferops.sglang.plugins.module_utils.system.termination import Outcome
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import recorded

SLEEPER = "import time; print('up', flush=True); time.sleep(60)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
# Starts a worker, prints its PID, and leaves it alone when it ends.
WITH_WORKER = (
    "import subprocess, sys, time;"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
    "print(child.pid, flush=True); time.sleep(60)"
)
DIES_AND_LEAVES_A_WORKER = WITH_WORKER[: WITH_WORKER.rindex("time.sleep")] + "sys.exit(3)"
PROCFS = ProcFs()


def until(condition, seconds=5.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


class Host:
    """The folders of one instance, and everything that was started in it."""

    def __init__(self, root, run_module):
        self.root = root
        self._run_module = run_module
        self.started = []

    def run(self, state, check=False, diff=False, **options):
        args = {
            "instance": "test",
            "state": state,
            "manager": "process",
            "state_dir": str(self.root / "lib"),
            "run_dir": str(self.root / "run"),
            "log_dir": str(self.root / "log"),
            "kill_timeout": 5,
            **options,
        }
        status, result = self._run_module(sglang_process, args, check=check, diff=diff)
        pid = (result.get("process") or {}).get("pid")
        if pid:
            self.started.append(pid)
        return status, result

    def start(self, code=SLEEPER, **options):
        status, result = self.run("started", command=[sys.executable, "-c", code], **options)
        assert status == 0, result
        until(lambda: self.log.exists() and self.log.read_text())
        return result

    @property
    def pid_file(self):
        return self.root / "run" / "test.json"

    @property
    def log(self):
        return self.root / "log" / "test.log"

    def record(self):
        return json.loads(self.pid_file.read_text())

    def write_record(self, **changes):
        self.pid_file.parent.mkdir(parents=True, exist_ok=True)
        record = {
            "pid": 4_000_000,
            "start_ticks": 1,
            "boot_id": PROCFS.boot_id(),
            "release": "old",
            "command_sha256": "0" * 64,
        }
        self.pid_file.write_text(json.dumps({**record, **changes}))

    def write_release(self, **changes):
        folder = self.root / "lib" / "test" / "releases" / "r1"
        folder.mkdir(parents=True)
        release = {
            "format": 1,
            "id": "r1",
            "created": "2026-01-02T03:04:05Z",
            "instance": "test",
            "manager": "process",
            "command": [sys.executable, "-c", SLEEPER],
            "environment": {"ONE": "1"},
            **changes,
        }
        (folder / "release.json").write_text(json.dumps(release))
        (self.root / "lib" / "test" / "current").symlink_to("releases/r1")


@pytest.fixture
def host(tmp_path, run_module, monkeypatch):
    monkeypatch.setattr(sglang_process, "_WATCHED", 0.02)
    # No stop here has to do with the files of this machine, of which there may be many.
    for name in ("SHARED_MEMORY", "TEMPORARY"):
        monkeypatch.setattr(leftovers, name, str(tmp_path / name.lower()))
    host = Host(tmp_path, run_module)
    yield host
    for pid in host.started:
        for member in [*PROCFS.session_members(pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(member.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def gone(pid):
    info = PROCFS.read(pid)
    return info is None or info.dead


# -- start


def test_starts_in_a_session_of_its_own_with_nothing_inherited(host, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://proxy.invalid")
    code = (
        "import os, sys, json;"
        "fds = {fd: os.readlink('/proc/self/fd/' + fd) for fd in os.listdir('/proc/self/fd')"
        " if os.path.exists('/proc/self/fd/' + fd)};"
        "print(json.dumps({'fds': fds, 'env': dict(os.environ), 'cwd': os.getcwd()}), flush=True);"
        "import time; time.sleep(60)"
    )
    result = host.start(code, environment={"CUDA_VISIBLE_DEVICES": 1, "FLAG": True})
    assert result["changed"]
    process = result["process"]
    assert process["running"] and process["stale"] == "" and process["leftovers"] == []
    info = PROCFS.read(process["pid"])
    assert info.session == info.pid == process["pid"]
    assert info.start_time == process["start_ticks"]
    seen = json.loads(host.log.read_text())
    assert seen["env"]["CUDA_VISIBLE_DEVICES"] == "1" and seen["env"]["FLAG"] == "true"
    assert "http_proxy" not in seen["env"] and not any(name.startswith("ANSIBLE") for name in seen["env"])
    assert seen["cwd"] == "/"
    log = str(host.log)
    assert {fd: seen["fds"][fd] for fd in "012"} == {"0": "/dev/null", "1": log, "2": log}
    assert not [target for target in seen["fds"].values() if target.startswith("pipe:")]
    assert process["log_path"] == log
    assert host.record() == {
        "pid": process["pid"],
        "start_ticks": process["start_ticks"],
        "boot_id": PROCFS.boot_id(),
        "release": "",
        "command_sha256": host.record()["command_sha256"],
    }
    assert len(host.record()["command_sha256"]) == 64
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (host.log, host.log.parent, host.pid_file.parent)]
    assert modes == [0o640, 0o755, 0o755]


def test_starts_the_current_release_once(host):
    host.write_release()
    _status, first = host.run("started")
    assert first["changed"] and first["process"]["release"] == "r1"
    status, second = host.run("started")
    assert status == 0 and not second["changed"]
    assert second["process"]["pid"] == first["process"]["pid"]
    environ = Path("/proc/%d/environ" % first["process"]["pid"]).read_bytes()
    assert b"ONE=1" in environ.split(b"\0")


def test_another_command_needs_a_stop_first(host):
    pid = host.start()["process"]["pid"]
    status, result = host.run("started", command=[sys.executable, "-c", SLEEPER], environment={"OTHER": "1"})
    assert status == 1 and not result["changed"]
    assert "runs already (PID %d)" % pid in result["msg"] and "Stop it first" in result["msg"]
    assert not gone(pid)


def test_check_mode_starts_nothing(host):
    command = [sys.executable, "-c", SLEEPER]
    status, result = host.run("started", check=True, diff=True, command=command)
    assert status == 0 and result["changed"] and result["process"]["pid"] is None
    assert result["diff"] == {
        "before": {"running": False, "release": ""},
        "after": {"running": True, "release": ""},
    }
    assert list(host.root.glob("run/*")) + list(host.root.glob("log/*")) == []


def test_keeps_the_log_before(host):
    host.log.parent.mkdir()
    host.log.write_text("first start\n")
    (host.log.parent / "test.log.1").write_text("older\n")
    host.start()
    assert host.log.read_text() == "up\n"
    assert (host.log.parent / "test.log.1").read_text() == "first start\n"


def test_a_death_at_once_is_told_with_its_log(host, monkeypatch):
    monkeypatch.setattr(sglang_process, "_WATCHED", 5)
    code = "import sys; print('key', 'sk-abcdefgh'); sys.exit('ModuleNotFoundError: No module named sglang')"
    status, result = host.run(
        "started", command=[sys.executable, "-c", code], environment={"OPENAI_API_KEY": "sk-abcdefgh"}
    )
    assert status == 1 and result["changed"] and result["exit_status"] == 1
    assert result["reason"] == "missing_dependency" and "missing" in result["msg"]
    assert result["log_tail"] == ["ModuleNotFoundError: No module named sglang", "key ********"] or result[
        "log_tail"
    ] == ["key ********", "ModuleNotFoundError: No module named sglang"]
    assert not host.pid_file.exists() and not result["process"]["running"]


def test_what_a_dead_start_leaves_is_ended(host, monkeypatch):
    monkeypatch.setattr(sglang_process, "_WATCHED", 5)
    status, result = host.run("started", command=[sys.executable, "-c", DIES_AND_LEAVES_A_WORKER])
    assert status == 1 and result["exit_status"] == 3
    until(lambda: gone(int(result["log_tail"][-1])))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"command": ["/no/such/python", "-V"]}, "the program /no/such/python is missing"),
        ({"command": []}, "command: it is empty"),
        ({"command": ["true", "a\0b"]}, "NUL"),
        ({"command": ["true"], "environment": {"A=B": "1"}}, "'A=B' is not a name"),
        ({"instance": "../x"}, "instance: '../x' is not a name"),
        ({"grace": -1}, "grace: -1.0"),
        ({"grace": "nan"}, "grace: nan"),
        ({"kill_timeout": 0}, "kill_timeout: 0.0"),
        ({"drain_timeout": -1}, "drain_timeout: -1.0"),
        ({"drain_timeout": "inf"}, "drain_timeout: inf"),
        ({"port": 0}, "port: 0 is not a port"),
        ({"port": 70000}, "port: 70000 is not a port"),
        ({"api_key": "a\nb"}, "api_key: it holds characters"),
        ({"manager": "systemd", "command": ["true"]}, "command: a unit runs what its release says"),
        ({"run_dir": "relative/path"}, "run_dir"),
        ({}, "current does not exist: deploy a release (sglang_release), or give command."),
    ],
)
def test_bad_input_is_refused_before_anything_is_touched(host, options, expected, monkeypatch):
    monkeypatch.chdir(host.root)
    status, result = host.run("started", **options)
    assert status == 1
    if "run_dir" not in options:  # AnsibleModule itself makes relative paths absolute
        assert expected in result["msg"]
    assert not host.log.exists() and not host.pid_file.exists()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"user": "nobody-of-this-name"}, "there is no user 'nobody-of-this-name'"),
        ({"working_directory": "/no/such/folder"}, "/no/such/folder is not a folder"),
    ],
)
def test_a_release_that_cannot_start_here(host, change, expected):
    host.write_release(**change)
    status, result = host.run("started", check=True)
    assert status == 1 and expected in result["msg"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process as another user")
def test_runs_as_another_user(host):
    account = pwd.getpwnam("nobody")
    code = "import os; print(os.getuid(), os.getgid(), os.environ['USER'], os.umask(0)); import time; time.sleep(60)"
    host.write_release(command=["/usr/bin/env", "python3", "-uc", code], user="nobody")
    status, result = host.run("started")
    assert status == 0, result
    until(host.log.read_text)
    assert host.log.read_text().split() == [str(account.pw_uid), str(account.pw_gid), "nobody", str(0o022)]


def test_only_one_run_at_a_time(host):
    (host.root / "run").mkdir()
    with open(host.root / "run" / "test.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        status, result = host.run("started", command=["sleep", "60"])
        assert status == 1 and "Another run" in result["msg"]
        assert host.run("inspected")[0] == 0


# -- the PID file


@pytest.mark.parametrize("state", ["started", "stopped", "inspected"])
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "it is not JSON"),
        ('{"pid": 17', "it is not JSON"),
        ("[]", "it is not a JSON object"),
        ('{"pid": 4000}', "the key start_ticks is missing"),
        ('{"pid": "4000", "start_ticks": 1}', "pid is '4000'"),
        ("\udcff", "it is not text"),
    ],
)
def test_a_broken_pid_file_ends_nothing(host, state, content, problem):
    host.pid_file.parent.mkdir()
    host.pid_file.write_bytes(content.encode("utf-8", "surrogateescape"))
    status, result = host.run(state, command=["sleep", "60"])
    assert status == 1
    assert str(host.pid_file) in result["msg"] and problem in result["msg"] and "remove the file" in result["msg"]
    assert host.pid_file.read_bytes() == content.encode("utf-8", "surrogateescape")


@pytest.mark.parametrize("how", ["broken", "gone"])
def test_a_server_whose_release_cannot_be_read_is_stopped_all_the_same(host, how):
    host.write_release()
    pid = host.run("started")[1]["process"]["pid"]
    release = host.root / "lib" / "test" / "releases" / "r1" / "release.json"
    if how == "broken":
        release.write_text("{")
    else:
        release.unlink()
        release.parent.rmdir()
    status, result = host.run("inspected")
    assert status == 1 and "/test/current/release.json" in result["msg"]
    planned = host.run("stopped", check=True)[1]
    assert [row["action"] for row in planned["ended"]] == ["would_terminate"]
    status, result = host.run("stopped")
    assert status == 0 and result["changed"] and gone(pid), result
    assert "stopped without what the release says" in str(result["warnings"])


@pytest.fixture
def bystander():
    """A process that has nothing to do with any server."""
    process = subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.DEVNULL, start_new_session=True)
    yield process
    process.kill()
    process.wait()


STALE = [
    (lambda other: {}, "the process 4000000 has ended"),
    (
        lambda other: {"boot_id": "another", "pid": other.pid, "start_ticks": other.start_time},
        "the host was booted since",
    ),
    (lambda other: {"pid": other.pid, "start_ticks": other.start_time - 100}, "belongs to a process started later"),
]


@pytest.mark.parametrize(("changes", "why"), STALE)
def test_a_stale_pid_file_is_told_and_replaced(host, bystander, changes, why):
    host.write_record(**changes(PROCFS.identity(bystander.pid)))
    status, seen = host.run("inspected")
    assert status == 0 and why in seen["process"]["stale"] and not seen["changed"]
    result = host.start()
    assert why in result["process"]["stale"] and result["process"]["running"]
    assert host.record()["pid"] == result["process"]["pid"]


@pytest.mark.parametrize(("changes", "why"), STALE)
def test_stop_removes_a_stale_pid_file_and_signals_nobody(host, bystander, changes, why):
    host.write_record(**changes(PROCFS.identity(bystander.pid)))
    status, planned = host.run("stopped", check=True)
    assert status == 0 and planned["changed"] and planned["ended"] == [] and host.pid_file.exists()
    status, result = host.run("stopped")
    assert status == 0 and result["changed"] and result["ended"] == []
    assert why in result["process"]["stale"] and not host.pid_file.exists()
    assert not host.run("stopped")[1]["changed"]
    assert bystander.poll() is None


# -- stop


def test_stop_terminates_and_the_second_stop_changes_nothing(host):
    pid = host.start()["process"]["pid"]
    status, planned = host.run("stopped", check=True, diff=True)
    assert [(item["pid"], item["action"], item["role"]) for item in planned["ended"]] == [
        (pid, "would_terminate", "main")
    ]
    assert planned["changed"] and planned["diff"]["after"] == {"running": False, "release": ""}
    assert planned["process"]["pid"] == pid and not gone(pid)
    status, result = host.run("stopped", grace=5)
    assert status == 0 and result["changed"] and gone(pid)
    (ended,) = result["ended"]
    assert (ended["pid"], ended["role"], ended["action"], ended["signals"]) == (pid, "main", "terminated", ["SIGTERM"])
    assert ended["name"].startswith("python") and ended["seconds"] < 5
    assert ended["state"] == "" and ended["error"] == "" and ended["start_ticks"] > 0
    assert result["process"] == {
        "running": False,
        "pid": None,
        "start_ticks": None,
        "release": "",
        "manager": "process",
        "unit": "",
        "container": "",
        "detail": "",
        "log_path": str(host.log),
        "stale": "",
        "leftovers": [],
    }
    status, again = host.run("stopped")
    assert status == 0 and not again["changed"] and again["ended"] == []


def test_a_server_that_ignores_sigterm_is_killed(host):
    pid = host.start(STUBBORN)["process"]["pid"]
    status, result = host.run("stopped", grace=0.1)
    assert status == 0 and gone(pid)
    assert result["ended"][0]["action"] == "killed" and result["ended"][0]["signals"] == ["SIGTERM", "SIGKILL"]


def test_an_ignored_sigterm_of_the_caller_is_not_inherited(host):
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        host.start()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert host.run("stopped", grace=5)[1]["ended"][0]["action"] == "terminated"


def test_workers_that_the_main_process_leaves_are_killed(host):
    pid = host.start(WITH_WORKER)["process"]["pid"]
    worker = int(host.log.read_text())
    status, result = host.run("stopped", grace=5)
    assert status == 0 and gone(pid) and gone(worker)
    assert [(item["pid"], item["role"], item["action"]) for item in result["ended"]] == [
        (pid, "main", "terminated"),
        (worker, "worker", "killed"),
    ]


def test_orphaned_workers_are_found_and_ended(host):
    pid = host.start(WITH_WORKER)["process"]["pid"]
    worker = int(host.log.read_text())
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert host.run("inspected")[1]["process"]["leftovers"] == [worker]
    status, refused = host.run("started", command=["sleep", "60"])
    assert status == 1 and "PID %d" % worker in refused["msg"] and "may hold GPUs" in refused["msg"]
    status, planned = host.run("stopped", check=True)
    assert [(item["pid"], item["action"]) for item in planned["ended"]] == [(worker, "would_kill")]
    status, result = host.run("stopped")
    assert status == 0 and gone(worker)
    assert [(item["pid"], item["action"]) for item in result["ended"]] == [(worker, "killed")]


def test_the_result_of_a_stop_is_complete(host):
    host.start()
    status, result = host.run("stopped", grace=5)
    assert status == 0
    assert (result["drain"]["asked"], result["drain"]["in_flight"]) == (False, None)
    assert (result["exit_status"], result["clean_exit"], result["port"]) == (None, None, {})
    assert (result["adopted"], result["unmanaged"]) == ("", None)
    assert [step["name"] for step in result["steps"]] == ["find", "end", "leftovers", "port"]


def test_every_process_of_a_server_carries_whose_it_is(host):
    pid = host.start(WITH_WORKER)["process"]["pid"]
    for member in (pid, int(host.log.read_text())):
        environ = PROCFS.environ(member)
        assert environ["INFEROPS_SGLANG_INSTANCE"] == "test"
        assert environ["INFEROPS_SGLANG_STATE_DIR"] == str(host.root / "lib")


def test_a_zombie_counts_as_ended(host):
    pid = host.start()["process"]["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: PROCFS.read(pid).state == "Z")  # nobody has waited for it yet
    assert host.run("inspected")[1]["process"]["running"] is False
    status, result = host.run("stopped")
    assert status == 0 and result["ended"] == [] and not host.pid_file.exists()


def test_a_process_of_the_same_kind_is_left_alone(host, bystander):
    host.start()
    host.run("stopped", grace=5)
    assert bystander.poll() is None


def test_survivors_fail_the_task_and_keep_the_pid_file(host, monkeypatch):
    pid = host.start()["process"]["pid"]
    monkeypatch.setattr(
        stopping.Tools,
        "end",
        lambda tools, targets, *rest: [Outcome(t, "survived", ("SIGTERM", "SIGKILL"), 60.0, "D") for t in targets],
    )
    status, result = host.run("stopped")
    assert status == 1 and not result["changed"] and host.pid_file.exists()
    assert "PID %d" % pid in result["msg"] and "state D" in result["msg"]
    assert result["ended"][0]["action"] == "survived" and result["ended"][0]["state"] == "D"


# -- what is recorded


def test_a_start_and_a_stop_are_recorded(host, tmp_path):
    path = tmp_path / "audit.jsonl"
    process = host.start(audit_path=str(path))["process"]
    status, _result = host.run("stopped", audit_path=str(path))
    assert status == 0
    rows = [row for row in recorded(path) if row["outcome"] != "begun"]
    assert [(row["action"], row["outcome"]) for row in rows] == [
        ("start", "started"),
        ("signal", "terminated"),
        ("stop", "stopped"),
    ]
    for row in rows:
        assert row["target"]["instance"] == "test"
        assert (row["target"]["pid"], row["target"]["start_ticks"]) == (process["pid"], process["start_ticks"])
    assert rows[1]["target"]["exe"] == os.path.realpath(sys.executable)
    assert rows[1]["who"]["uid"] == os.geteuid()


def test_a_start_that_dies_at_once_is_recorded_with_the_end_of_what_it_left(host, tmp_path, monkeypatch):
    monkeypatch.setattr(sglang_process, "_WATCHED", 10.0)
    path = tmp_path / "audit.jsonl"
    command = [sys.executable, "-c", DIES_AND_LEAVES_A_WORKER]
    status, result = host.run("started", command=command, audit_path=str(path))
    assert status == 1, result
    rows = [row for row in recorded(path) if row["outcome"] != "begun"]
    assert [(row["action"], row["outcome"]) for row in rows] == [("signal", "killed"), ("start", "failed")]
    assert "ended right after its start" in rows[1]["detail"]


def test_no_secret_of_the_release_is_recorded(host, tmp_path, monkeypatch):
    monkeypatch.setattr(sglang_process, "_WATCHED", 10.0)
    code = "import sys; sys.exit('ValueError: hf_s3cr3t-1 is not known')"
    host.write_release(command=[sys.executable, "-c", code], environment={"HF_TOKEN": "hf_s3cr3t-1"})
    status, _result = host.run("started", audit_path=str(tmp_path / "audit.jsonl"))
    assert status == 1
    assert recorded(tmp_path / "audit.jsonl")[-1]["outcome"] == "failed"
    assert "s3cr3t" not in (tmp_path / "audit.jsonl").read_text()


def test_what_was_refused_is_a_warning(host, tmp_path):
    (tmp_path / "audit.jsonl").mkdir()
    host.start(audit_path=str(tmp_path / "audit.jsonl"))
    status, result = host.run("stopped", audit_path=str(tmp_path / "audit.jsonl"))
    assert status == 0 and len(result["warnings"]) == 1
    assert "not recorded in %s" % (tmp_path / "audit.jsonl") in str(result["warnings"])
