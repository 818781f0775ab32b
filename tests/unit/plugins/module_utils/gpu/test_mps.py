# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control daemons of MPS, with the answers that a real one gave (driver 580)."""

from __future__ import annotations

import os

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.mps import MpsControl, safe_to_run
from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import Completed
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import (
    LATE,
    MISSING,
    FakeClock,
    FakeProc,
)

EXE = "/usr/bin/nvidia-cuda-mps-control"
NO_DAEMON = Completed(1, err="Cannot find MPS control daemon process\n")


class FakeDaemons:
    """Answers as daemons do; one for each folder of pipes."""

    def __init__(self, proc):
        self.proc = proc
        self.commands = []
        self.programs = []
        self.servers = {"/tmp/nvidia-mps": {456: [453, 452]}}
        self.answers = {}

    def __call__(self, argv, timeout, input="", env=None):
        pipes, command = env["CUDA_MPS_PIPE_DIRECTORY"], input.strip()
        assert input.endswith("\n")
        self.programs.append(argv[0])
        self.commands.append((pipes, command, timeout))
        if command in self.answers:
            answer = self.answers[command]
            return answer() if callable(answer) else answer
        servers = self.servers.get(pipes)
        if servers is None:
            return NO_DAEMON
        words = command.split()
        if words[0] == "get_server_list":
            return Completed(0, "".join("%d\n" % pid for pid in servers))
        if int(words[1]) not in servers:
            return Completed(0, "Server %s not found\n" % words[1])
        if words[0] == "get_client_list":
            return Completed(0, "".join("%d\n" % pid for pid in servers[int(words[1])]))
        if words[0] == "terminate_client":
            return Completed(0, "0\n")
        if words[0] == "shutdown_server":
            return Completed(0, "")
        return Completed(0, 'Unknown command "%s"\n' % command)


@pytest.fixture
def proc(tmp_path):
    return FakeProc(tmp_path)


@pytest.fixture
def daemons(proc):
    return FakeDaemons(proc)


@pytest.fixture
def control(proc, daemons):
    clock = FakeClock()
    return MpsControl(daemons, proc.procfs, safe=lambda path: path == EXE, clock=clock, sleep=clock.sleep)


def add_daemon(proc, pid=438, pipes="", argv=(EXE, "-d"), exe=EXE, **more):
    environ = "HF_TOKEN=verysecret\0" + ("CUDA_MPS_PIPE_DIRECTORY=%s\0" % pipes if pipes else "")
    return proc.add(pid, comm="nvidia-cuda-mps", argv=argv, exe=exe, environ=environ, **more)


def test_clients_of_the_default_daemon(proc, control, daemons):
    add_daemon(proc)
    assert control.clients() == {452: 456, 453: 456}
    assert control.problems == []
    assert daemons.programs[0] == EXE
    assert "secret" not in repr((control.daemons(), daemons.commands))


def test_several_daemons_by_their_folders(proc, control, daemons):
    daemons.servers["/run/mps/a"] = {700: [701]}
    add_daemon(proc)
    add_daemon(proc, 600, "/run/mps/a", uid=1000)
    assert control.clients() == {452: 456, 453: 456, 701: 700}
    assert control.daemon_of(701).user == "user1000"
    assert control.terminate(701, 5) == ""
    assert daemons.commands[-1] == ("/run/mps/a", "terminate_client 700 701", 5)


@pytest.mark.parametrize(
    "more",
    [
        {"argv": (EXE,)},  # somebody's prompt
        {"exe": "/usr/bin/nvidia-cuda-mps-server"},
        {"exe": "/usr/bin/python3"},  # only called so
        {"state": "Z"},
    ],
)
def test_what_is_no_daemon(proc, control, daemons, more):
    add_daemon(proc, **more)
    assert control.daemons() == []
    assert control.clients() == {}
    assert control.quit(5) == ""
    assert daemons.commands == []


def test_a_program_that_others_could_have_changed_is_not_run(proc, control, daemons):
    add_daemon(proc, exe="/home/user/nvidia-cuda-mps-control")
    control.clients()
    assert set(daemons.programs) == {"nvidia-cuda-mps-control"}


def test_what_is_safe_to_run(tmp_path):
    program = tmp_path / "program"
    program.write_text("")
    program.chmod(0o755)
    assert safe_to_run(str(program))
    program.chmod(0o775)
    assert not safe_to_run(str(program))
    assert not safe_to_run(str(tmp_path / "none"))
    assert not safe_to_run(str(tmp_path))


@pytest.mark.parametrize("answer", [NO_DAEMON, LATE, MISSING])
def test_a_daemon_that_does_not_answer_is_a_sentence(proc, control, daemons, answer):
    add_daemon(proc)
    daemons.answers["get_server_list"] = answer
    assert control.clients() == {}
    (problem,) = control.problems
    assert problem.startswith("the MPS control daemon 438 of user root does not tell its clients: ")
    assert problem in control.terminate(452, 5)


def test_a_daemon_without_servers(proc, control, daemons):
    daemons.servers["/tmp/nvidia-mps"] = {}
    add_daemon(proc)
    assert (control.clients(), control.problems) == ({}, [])


def test_a_server_that_ended_in_between(proc, control, daemons):
    add_daemon(proc)
    daemons.answers["get_client_list 456"] = Completed(0, "Server 456 not found\n")
    assert (control.clients(), control.problems) == ({}, [])


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (Completed(0, "0\n"), ""),
        (Completed(0, ""), ""),
        (Completed(0, "Invalid process 452!\n1\n"), "Invalid process 452!"),
        (Completed(0, "Server 456 not found\nServer 456 not found!\n1\n"), "Server 456 not found"),
        (Completed(0, "1\n"), "did not end"),
        (LATE, "did not answer in time"),
        (NO_DAEMON, "Cannot find MPS control daemon"),
    ],
)
def test_terminate(proc, control, daemons, answer, word):
    add_daemon(proc)
    daemons.answers["terminate_client 456 452"] = answer
    result = control.terminate(452, 5)
    assert word in result and bool(word) is bool(result)


def test_terminate_somebody_who_is_no_client(proc, control):
    assert "no MPS control daemon lists a client 999" in control.terminate(999, 5)


def test_shutdown_of_a_server(proc, control, daemons):
    add_daemon(proc)
    control.clients()
    assert control.shutdown_server(456, 5) == ""
    assert "no MPS control daemon" in control.shutdown_server(1, 5)


def test_quit(proc, control, daemons):
    add_daemon(proc)

    def leave():
        proc.remove(438)
        return Completed(0, "")

    daemons.answers["quit -t 28"] = leave
    assert control.quit(30) == ""
    assert daemons.commands == [("/tmp/nvidia-mps", "quit -t 28", 30)]


def test_quit_only_those_that_are_meant(proc, control, daemons):
    add_daemon(proc)
    add_daemon(proc, 600, "/run/mps/a")
    daemons.answers["quit -t 1"] = lambda: proc.remove(600) or Completed(0, "")
    assert control.quit(2, only={600}) == ""
    assert [command[0] for command in daemons.commands] == ["/run/mps/a"]


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (Completed(0, ""), "it still runs"),
        (LATE, "did not answer in time"),
        (NO_DAEMON, "Cannot find"),
        (Completed(0, 'Unknown command "quit -t 1"\n'), "Unknown command"),
    ],
)
def test_a_daemon_that_does_not_quit(proc, control, daemons, answer, word):
    add_daemon(proc)
    daemons.answers["quit -t 1"] = answer
    assert word in control.quit(2)


def test_a_daemon_in_a_container_is_reached_and_its_numbers_are_translated(proc, control, daemons):
    add_daemon(proc, namespace=5)
    proc.add(1000, namespace=20)
    proc.add(1001, namespace=21)
    proc.add(1002, namespace=20)  # in another container
    (proc.root / "self").mkdir()
    for pid, namespace in ((438, "pid:[7]"), (1000, "pid:[7]"), (1001, "pid:[7]"), (1002, "pid:[8]")):
        proc.link(pid, "ns/pid", namespace)
    proc.link(438, "ns/mnt", "mnt:[7]")
    proc.link("self", "ns/mnt", "mnt:[1]")
    pipes = os.path.join(str(proc.root), "438/root/tmp/nvidia-mps")
    daemons.servers = {pipes: {20: [21, 99]}}
    assert control.clients() == {1001: 1000}
    assert control.terminate(1001, 5) == ""
    assert daemons.commands[-1][:2] == (pipes, "terminate_client 20 21")
