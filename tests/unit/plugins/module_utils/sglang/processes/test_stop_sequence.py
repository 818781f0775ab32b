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
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.ports import PortOwner
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.running import Running
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.stop_sequence import StopSequence, Wish
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.stopping import (
    Ended,
    MainEnd,
    Stopped,
    Tools,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release, read_current
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.tls import Tls
from ansible_collections.inferops.sglang.plugins.module_utils.system.audit import AuditLog
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessInfo, ProcFs
from ansible_collections.inferops.sglang.plugins.module_utils.system.termination import Outcome
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.sglang.raw_server import RawServer, reply
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import FakeRun, recorded


def process(pid, *argv, uid=0):
    """A process that is not there, as it is read."""
    return ProcessInfo(pid, 1 << 60, 1, "S", argv[0], "", tuple(argv), uid, "", pid, pid, "/", None, 0.0)


SERVER = types.SimpleNamespace(host="127.0.0.1", port=30000, arguments=(), process=process(4711, "python3"))


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


# -- who is asked, and gets the key


def drained(paths, owns, key="sk-verysecret"):
    """Drain a server on a port where this process listens; owns: whether it is the server's.  What it was asked."""
    with RawServer(reply(200, b'{"loads": []}')) as listener:
        main = process(os.getpid() if owns else 1 << 22, "python3")
        tools = Tools(ProcFs(), FakeRun())
        server = stop_sequence._Server(main, list, None, "127.0.0.1", listener.port, key, "")
        found = StopSequence(paths, Wish("process", drain_timeout=0.2), None, tools)._drain(server, main.identity)
    return found, listener.request


def test_somebody_else_on_the_port_of_a_server_is_not_asked(paths):
    found, request = drained(paths, owns=False)
    assert request == b"" and not found.asked and found.notable
    assert "PID %d" % os.getpid() in found.message and "it is not waited for" in found.message


def test_the_server_itself_gets_its_key(paths, monkeypatch):
    monkeypatch.setattr(ProcFs, "alive", lambda *_words: True)
    _found, request = drained(paths, owns=True)
    assert b"Authorization: Bearer sk-verysecret" in request


def test_who_cannot_be_told_is_asked_without_the_key(paths, monkeypatch):
    monkeypatch.setattr(ProcFs, "alive", lambda *_words: True)
    monkeypatch.setattr(stop_sequence, "port_owner", lambda *_words: PortOwner(False))
    _found, request = drained(paths, owns=False)
    assert request.startswith(b"GET /") and b"sk-verysecret" not in request


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


# -- what is recorded


def outcome_of(main, action, *signals):
    return Outcome(main.identity, action, signals, 1.0)


@pytest.mark.parametrize(
    ("action", "signals", "problem", "outcome"),
    [
        ("terminated", ("SIGTERM",), "", "stopped"),
        ("killed", ("SIGTERM", "SIGKILL"), "", "killed"),
        ("survived", ("SIGTERM", "SIGKILL"), "", "survived"),
        ("terminated", ("SIGTERM",), "the unit is failed", "failed"),
    ],
)
def test_a_stop_is_recorded_before_and_after(paths, monkeypatch, tmp_path, action, signals, problem, outcome):
    path = tmp_path / "audit.jsonl"
    main = process(10, "python3", "-m", "sglang.launch_server")
    end = outcome_of(main, action, *signals)

    def stop(*_words):
        assert [row["outcome"] for row in recorded(path)] == ["begun"]
        return Stopped(MainEnd(end, problem=problem), [Ended(main, "main", end)])

    monkeypatch.setattr(stop_sequence, "stop", stop)
    tools = Tools(ProcFs(), FakeRun(), audit=AuditLog(str(path), journal="/none"))
    sequence = StopSequence(paths, Wish("process", grace=7.0), None, tools)
    sequence._stop(sequence._ours(Running("process", main)))
    row = recorded(path)[-1]
    assert (row["action"], row["outcome"], row["detail"]) == ("stop", outcome, problem)
    assert {"pid": 10, "instance": "main"}.items() <= row["target"].items()
    assert row["evidence"] == {"way": "signal", "grace": 7.0, "in_flight": None, "ended": ["10 " + action]}


def test_a_server_that_is_taken_over_is_a_change_of_the_configuration(paths, monkeypatch, tmp_path):
    release = Release("", "", "main", "process", ["/bin/python3"], origin="adopted")
    monkeypatch.setattr(stop_sequence.adoption, "make_release", lambda *_words, **_more: release)
    path = tmp_path / "audit.jsonl"
    tools = Tools(ProcFs(), FakeRun(), audit=AuditLog(str(path), journal="/none"))
    StopSequence(paths, Wish("process"), None, tools)._adopt(SERVER, True)
    row = recorded(path)[-1]
    assert (row["action"], row["outcome"]) == ("configuration", "written")
    assert row["evidence"]["why"] == "adopted from PID 4711"
    assert row["evidence"]["current"] == row["evidence"]["last_good"] == row["target"]["release"]
