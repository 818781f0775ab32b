# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of server_process that need no process; the rest is tested through sglang_process."""

from __future__ import annotations

import os
import pwd

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes import server_process
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.server_process import (
    Launch,
    PidRecord,
    ServerProcessError,
    base_environment,
    inspect,
    launch_of,
    parse_pid_record,
    read_pid_file,
    session_of,
    write_pid_file,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import Kernel, process

RECORD = PidRecord(pid=4711, start_ticks=1000, boot_id="boot", release="r1", command_sha256="00")


def worker(pid, start_time=1001, session=4711, state="S"):
    """One of the session of the server."""
    return process(pid, start_time=start_time, session=session, state=state)


MAIN = process(4711)


@pytest.mark.parametrize(
    ("kernel", "running", "stale", "leftovers"),
    [
        (Kernel(MAIN, worker(4800)), True, "", []),
        (Kernel(worker(4800)), False, "the process 4711 has ended", [4800]),
        (Kernel(worker(4711, 1000, state="Z"), worker(4800)), False, "the process 4711 has ended", [4800]),
        (Kernel(worker(4800, state="Z")), False, "the process 4711 has ended", []),
        # A session of that number began anew: everything in it is somebody else's.
        (Kernel(worker(4711, 5000), worker(4800, 5001)), False, "belongs to a process started later", []),
        # Older than the server: cannot be its worker.
        (Kernel(worker(4800, 999)), False, "the process 4711 has ended", []),
        (Kernel(MAIN, worker(4800), boot_id="other"), False, "the host was booted since", []),
        (Kernel(worker(4800, session=1)), False, "the process 4711 has ended", []),
    ],
)
def test_what_a_pid_file_leads_to(kernel, running, stale, leftovers):
    found = inspect(RECORD, kernel)
    assert found.running is running and stale in found.stale and bool(stale) == bool(found.stale)
    assert [member.pid for member in found.leftovers] == leftovers


def test_nothing_is_known_without_a_record():
    found = inspect(None, Kernel())
    assert (found.record, found.running, found.stale, found.leftovers) == (None, False, "", ())


def test_the_main_process_is_no_worker_of_itself():
    assert [member.pid for member in session_of(RECORD, Kernel(MAIN, worker(4800)))] == [4800]


def test_a_worker_whose_main_thread_ended_first_is_a_member_still():
    class Threads(Kernel):
        """Process 4800 runs on in another thread."""

        def alive(self, identity):
            return identity.pid == 4800 or super().alive(identity)

    kernel = Threads(MAIN, worker(4800, state="Z"), worker(4801, state="Z"))
    assert [member.pid for member in session_of(RECORD, kernel)] == [4800]


def test_a_pid_file_comes_back_as_it_was_written(tmp_path):
    path = tmp_path / "run" / "main.json"
    assert read_pid_file(path) is None
    write_pid_file(path, RECORD)
    assert read_pid_file(path) == RECORD
    assert [item.name for item in path.parent.iterdir()] == ["main.json"]


@pytest.mark.parametrize("pid", [-1, 0, 1, 2, True])
def test_pids_that_can_be_no_server(pid):
    import json
    from dataclasses import asdict

    with pytest.raises(ValueError, match="pid is"):
        parse_pid_record(json.dumps({**asdict(RECORD), "pid": pid}))


def test_every_part_of_a_launch_makes_a_difference():
    launches = [
        Launch(("a", "b"), {}),
        Launch(("a b",), {}),
        Launch(("a", "b"), {"X": "1"}),
        Launch(("a", "b"), {}, user="u"),
        Launch(("a", "b"), {}, working_directory="/w"),
        Launch(("a", "b"), {}, secret_args={"api-key": "k"}),
    ]
    assert len({launch.digest() for launch in launches}) == len(launches)
    assert Launch(("a",), {"X": "1", "Y": "2"}).digest() == Launch(("a",), {"Y": "2", "X": "1"}).digest()


def test_a_release_and_the_same_one_read_again_launch_the_same():
    release = Release("r1", "2026-01-02T03:04:05Z", "main", "process", ["a"], {"X": "1"}, {"api-key": "k"}, "u", "/w")
    again = Release("r2", "2027-01-02T03:04:05Z", "main", "process", ["a"], {"X": "1"}, {"api-key": "k"}, "u", "/w")
    assert launch_of(release).digest() == launch_of(again).digest()


def test_what_a_server_inherits():
    inherited = {"PATH": "/bin", "LC_ALL": "C", "http_proxy": "x", "ANSIBLE_X": "1", "HOME": "/root", "TMPDIR": "/t"}
    assert base_environment(inherited, None) == {"PATH": "/bin", "LC_ALL": "C", "HOME": "/root", "TMPDIR": "/t"}
    account = pwd.struct_passwd(("u", "x", 7, 7, "", "/home/u", ""))
    assert base_environment(inherited, account) == {
        "PATH": "/bin",
        "LC_ALL": "C",
        "HOME": "/home/u",
        "USER": "u",
        "LOGNAME": "u",
        "SHELL": "/bin/sh",
    }
    assert base_environment({}, None)["PATH"].startswith("/")


def test_only_root_becomes_another_user(monkeypatch):
    assert server_process.account_of("") is None
    assert server_process.account_of(pwd.getpwuid(os.geteuid()).pw_name) is None
    monkeypatch.setattr(os, "geteuid", lambda: pwd.getpwnam("nobody").pw_uid)
    with pytest.raises(ServerProcessError, match="only root can start a process of 'root'"):
        server_process.account_of("root")
