# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parts of a stop that need no server; whole ones are in tests/simulated."""

from __future__ import annotations

import fcntl
import os
import types
from dataclasses import replace

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes import stop_sequence
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.ownership import Member
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.running import Running
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.stop_sequence import StopSequence, Wish
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.stopping import Tools
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release, read_current
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.tls import Tls
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessInfo, ProcFs
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import FakeRun


def process(pid, *argv, uid=0):
    """A process that is not there, as it is read."""
    return ProcessInfo(pid, 1 << 60, 1, "S", argv[0], "", tuple(argv), uid, "", pid, pid, "/", None, 0.0)


SERVER = types.SimpleNamespace(host="127.0.0.1", port=30000, arguments=())


@pytest.fixture
def paths(tmp_path):
    return InstancePaths("main", state_dir=str(tmp_path / "lib"), run_dir=str(tmp_path), etc_dir=str(tmp_path / "etc"))


@pytest.fixture
def adopt(paths, monkeypatch):
    """Take over a server, whose release is given."""
    release = Release("", "", "main", "process", ["/bin/python3"], origin="adopted")
    monkeypatch.setattr(stop_sequence.adoption, "make_release", lambda *_words, **_more: release)
    sequence = StopSequence(paths, Wish("process"), None, Tools(ProcFs(), FakeRun()))
    return lambda act=True: sequence._adopt(SERVER, act)


def is_locked(folder):
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def test_nobody_else_writes_releases_while_one_is_adopted(paths, adopt, monkeypatch):
    seen = []
    plan = stop_sequence.plan_adopted

    def watched(*words):
        seen.append(is_locked(paths.state_dir))
        return plan(*words)

    monkeypatch.setattr(stop_sequence, "plan_adopted", watched)
    adopt()
    assert seen == [True] and not is_locked(paths.state_dir)
    assert read_current(paths).origin == "adopted"


def test_whoever_writes_releases_is_waited_for_and_then_named(paths, adopt, monkeypatch, tmp_path):
    monkeypatch.setattr(stop_sequence, "_LOCK_TIMEOUT", 0.0)
    (tmp_path / "lib").mkdir()
    descriptor = os.open(paths.state_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(OSError, match="another run has been writing there"):
            adopt()
    finally:
        os.close(descriptor)
    assert read_current(paths) is None


def test_a_rehearsal_makes_not_even_the_folder(paths, adopt, tmp_path):
    adopt(act=False)
    assert not (tmp_path / "lib").exists()


# -- what a server is


def asked(paths, words, release=None, wish=None):
    """A server with these arguments, as it is asked for its requests."""
    main = process(10, "python3", "-m", "sglang.launch_server", *words)
    tools = Tools(ProcFs(), FakeRun())
    sequence = StopSequence(paths, wish or Wish("process", host="10.0.0.1", port=1), release, tools)
    return sequence._ours(Running("process", main))


def listens(*words):
    """Where it is asked."""
    server = asked(*words)
    return server.host, server.port


def test_a_server_is_asked_where_its_own_command_says_it_listens(paths):
    current = Release("r1", "", "main", "process", ["python3"], host="10.0.0.5", port=31000)
    assert listens(paths, ["--port", "32000", "--host", "10.0.0.6"], current) == ("10.0.0.6", 32000)
    # One that reads its port from a file says nothing of it there.
    assert listens(paths, ["--config", "server.yaml"], current) == ("10.0.0.5", 31000)
    assert listens(paths, []) == ("127.0.0.1", 30000)


def test_a_server_is_asked_as_its_own_command_says_it_serves(paths):
    plain = Release("r1", "", "main", "process", ["python3"])
    https = replace(plain, effective={"ssl_certfile": "/etc/a.crt"})
    words = ["--port", "32000", "--ssl-certfile", "/etc/a.crt"]
    # The server that runs need not be of the current release.
    assert [asked(paths, words, release).tls for release in (plain, https, None)] == [Tls()] * 3
    assert [asked(paths, ["--port", "1"], release).tls for release in (plain, https, None)] == [None] * 3
    # Only the container has the file.
    config = ["--config", "/in/the/image.yaml"]
    assert [asked(paths, config, release).tls for release in (plain, https, None)] == [None, Tls(), None]


def test_leftovers_are_those_of_the_user_in_the_container_and_not_of_the_engines_client(paths):
    client, main = process(9, "podman"), process(10, "podman-init", uid=1000)
    sequence = StopSequence(paths, Wish("systemd"), None, Tools(ProcFs(), FakeRun()))
    members = [Member(client, "main"), Member(main, "main")]
    server = replace(sequence._below(main, ""), members=lambda: members)
    assert sequence._user([server]) == 1000
    assert sequence._user([replace(server, main=None)]) == 0
