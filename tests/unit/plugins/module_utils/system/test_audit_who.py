# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pwd

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.system.audit_who import who

UNSET = "4294967295"


@pytest.fixture
def proc(tmp_path):
    """A /proc of this process's parents: of each (pid, parent, environment)."""

    def make(*processes, loginuid=UNSET, session=UNSET):
        (tmp_path / "self").mkdir()
        (tmp_path / "self" / "loginuid").write_text(loginuid)
        (tmp_path / "self" / "sessionid").write_text(session)
        for pid, parent, environment in processes:
            (tmp_path / str(pid)).mkdir()
            (tmp_path / str(pid) / "stat").write_text("%d (a) b) S %d 1 1" % (pid, parent))
            (tmp_path / str(pid) / "environ").write_bytes(environment)
        return str(tmp_path)

    return make


def own_name():
    return pwd.getpwuid(os.geteuid()).pw_name


def test_the_kernel_tells_the_user_and_the_login(proc):
    found = who({}, root=proc(loginuid="12345", session="7"))
    assert found == {
        "uid": os.geteuid(),
        "user": own_name(),
        "login_uid": 12345,
        "login_user": "12345",  # a user that has no name, or no more
        "session": 7,
        "environment": {},
    }


@pytest.mark.parametrize("loginuid", [UNSET, "", "-1", "x"])
def test_nobody_logged_in(proc, loginuid):
    found = who({}, root=proc(loginuid=loginuid))
    assert "login_uid" not in found and "session" not in found


def test_without_proc_there_is_still_the_user(tmp_path):
    assert who({}, root=str(tmp_path)) == {"uid": os.geteuid(), "user": own_name(), "environment": {}}


def test_the_real_user_is_told_where_it_is_another(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    assert who({}, root=str(tmp_path))["real_uid"] == 4711


def test_what_the_environment_says_is_kept_apart(tmp_path):
    environment = {"SUDO_USER": "alice", "SSH_CONNECTION": "10.0.0.5 52814 10.0.0.9 22", "API_KEY": "secret"}
    found = who(environment, run="job 42", root=str(tmp_path))
    assert found["environment"] == {"SUDO_USER": "alice", "ssh_client": "10.0.0.5"}
    assert found["run"] == "job 42"


def test_the_client_is_looked_for_above_sudo(proc):
    parent = os.getppid()
    root = proc(
        (parent, 500, b"PATH=/bin\0"),
        (500, 501, b"XSSH_CONNECTION=1.1.1.1 2 3 4\0SSH_CONNECTION=fe80::1%eth0 52814 fe80::2 22\0"),
        (501, 1, b"SSH_CONNECTION=10.9.9.9 1 2 3\0"),
    )
    assert who({}, root=root)["environment"] == {"ssh_client": "fe80::1%eth0"}


@pytest.mark.parametrize("connection", ["\x1b[31m 1 2 3", "x" * 65, "", "a\nb 1 2 3"])
def test_an_address_that_is_none_is_left_out(proc, connection):
    root = proc((os.getppid(), 1, b"SSH_CONNECTION=" + connection.encode() + b"\0"))
    assert who({"SSH_CONNECTION": connection}, root=root)["environment"] == {}


def test_the_first_process_of_the_host_came_from_nowhere(proc):
    root = proc((os.getppid(), 1, b""), (1, 0, b"SSH_CONNECTION=192.0.2.1 1 2 3\0"))
    assert who({}, root=root)["environment"] == {}


def test_a_circle_of_parents_ends(proc):
    root = proc((os.getppid(), os.getppid(), b""))
    assert who({}, root=root)["environment"] == {}
