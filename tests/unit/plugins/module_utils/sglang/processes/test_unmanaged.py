# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An SGLang server that somebody started by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import failures
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import MARKER
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.unmanaged import (
    Unmanaged,
    address_of,
    check_unmanaged,
    find_unmanaged,
    server_arguments,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import Listener
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import Supervisor
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import FakeProc, FakeRun, show

MAIN = ("python3", "-m", "sglang.launch_server", "--model-path", "/m", "--port", "30007", "--api-key", "sk-abcdefgh")


@pytest.fixture
def proc(tmp_path):
    proc = FakeProc(tmp_path)
    proc.add(1, ppid=0)
    return proc


@pytest.mark.parametrize(
    ("argv", "arguments"),
    [
        (MAIN, MAIN[3:]),
        (("/venv/bin/python3.12", "-u", "-m", "sglang.launch_server", "--tp", "2"), ("--tp", "2")),
        (("python3", "-Xfaulthandler", "-W", "ignore", "-m", "sglang", "serve", "--tp=2"), ("--tp=2",)),
        (("python", "/venv/bin/sglang", "serve", "--model-path", "/m"), ("--model-path", "/m")),
        (("python", "/venv/lib/sglang/launch_server.py", "--tp", "1"), ("--tp", "1")),
        (("python", "/venv/bin/sglang", "generate"), None),
        (("python", "-m", "sglang", "version"), None),
        (("python", "-m", "sglang.bench_serving", "--port", "30000"), None),
        (("python", "-c", "import sglang.launch_server"), None),
        (("python", "-c", "from multiprocessing.spawn import spawn_main", "--multiprocessing-fork"), None),
        (("bash", "-c", "python -m sglang.launch_server"), None),
        (("tmux", "new", "python", "-m", "sglang.launch_server"), None),
        (("vim", "-m", "sglang.launch_server"), None),
        (("sglang::scheduler_TP0",), None),
        ((), None),
    ],
)
def test_what_a_main_process_is(proc, argv, arguments):
    process = replace(proc.add(10), argv=argv)
    assert server_arguments(process) == arguments


def test_the_program_counts_and_not_what_it_calls_itself(proc):
    assert server_arguments(replace(proc.add(10, argv=MAIN), exe="/usr/bin/bash")) is None
    assert server_arguments(replace(proc.add(11, argv=MAIN), exe="/usr/bin/python3.11")) == MAIN[3:]


@pytest.mark.parametrize(
    ("words", "address"),
    [
        ([], ("127.0.0.1", 30000)),
        (["--port", "31000", "--host", "0.0.0.0"], ("0.0.0.0", 31000)),
        (["--port=31000", "--port", "32000"], ("127.0.0.1", 32000)),
        (["--port", "many"], ("127.0.0.1", 0)),
        (["--port"], ("127.0.0.1", 30000)),
    ],
)
def test_where_it_listens(words, address):
    assert address_of(words) == address


def find(proc, listeners=(), ours=(), run=None, port=30007, host="127.0.0.1"):
    proc.procfs.listeners = lambda _port: [Listener(address, port, pid) for address, pid in listeners]
    return find_unmanaged(host, port, proc.procfs, lambda process: process.pid in ours, run or FakeRun())


def test_one_that_listens(proc):
    proc.add(10, argv=MAIN)
    proc.add(11, ppid=10, argv=("sglang::scheduler_TP0",))
    found = find(proc, [("127.0.0.1", 10)])
    assert (found.process.pid, found.listening, found.supervisor) == (10, True, None)
    # Whatever was asked for, and whatever its command line says, that is where it answers.
    assert find(proc, [("10.0.0.5", 10)], host="0.0.0.0").host == "10.0.0.5"
    assert found.pids == {10, 11} and found.owns(proc.procfs.read(11)) and not found.owns(proc.procfs.read(1))
    shown = found.to_dict()
    assert shown["pid"] == 10 and "sk-abcdefgh" not in str(shown) and "--api-key" in shown["command"]


def test_a_worker_that_shares_the_socket_leads_to_the_main_process(proc):
    proc.add(10, argv=MAIN)
    proc.add(12, ppid=10, argv=MAIN)
    assert find(proc, [("0.0.0.0", 12)]).process.pid == 10
    assert find(proc, []).process.pid == 10


def test_one_that_still_loads_is_found_by_its_command_line(proc):
    proc.add(10, argv=MAIN)
    found = find(proc)
    assert (found.process.pid, found.listening) == (10, False)
    assert find(proc, port=30008) is None
    assert find(proc, host="10.0.0.5") is None  # it will listen on 127.0.0.1 only


def test_who_is_not_meant(proc):
    proc.add(10, argv=MAIN)
    assert find(proc, [("127.0.0.1", 10)], ours={10}) is None
    proc.remove(10)
    proc.add(11, argv=MAIN, environ="%s=other\0" % MARKER)
    assert find(proc, [("127.0.0.1", 11)]) is None
    proc.add(12, argv=("nginx",))
    assert find(proc, [("127.0.0.1", 12), ("127.0.0.1", None)]) is None


def test_a_unit_that_runs_it_is_found_and_refused(proc):
    proc.add(10, argv=MAIN, cgroup="0::/system.slice/llm.service")
    run = FakeRun({"systemctl show": show(main=10)})
    found = find(proc, [("127.0.0.1", 10)], run=run)
    assert found.supervisor.name == "llm.service"
    for policy in ("refuse", "take_over"):
        (check,) = failures(check_unmanaged(found, policy))
        assert "systemctl disable --now llm.service" in check.message and "PID 10" in check.message


def unmanaged(proc, supervisor=None):
    return Unmanaged(proc.add(10, argv=MAIN), MAIN[3:], "127.0.0.1", 30007, True, supervisor)


def test_what_the_policy_makes_of_one(proc):
    found = unmanaged(proc)
    (check,) = check_unmanaged(found, "refuse")
    assert check.status == "failed" and "kill 10" in check.message and "take_over" in check.message
    (check,) = check_unmanaged(found, "take_over")
    assert check.status == "warning"
    (check,) = check_unmanaged(None, "refuse")
    assert check.status == "ok"


def test_a_container_is_stopped_by_its_engine(proc):
    found = unmanaged(proc, Supervisor("docker", "llm", stop=("docker", "stop", "llm")))
    (check,) = check_unmanaged(found, "take_over")
    assert check.status == "failed" and "docker stop llm" in check.message
