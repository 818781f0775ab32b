# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading processes: the formats by table, then a tree of files, then this very process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import (
    ProcessIdentity,
    ProcFs,
    parse_cgroup,
    parse_listening,
    parse_stat,
)

TAIL = "S 10 20 30 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 987654 1000 10"


@pytest.mark.parametrize("comm", ["python3", "sglang::schedul", "a b) (c", ") S 1 2 3", ""])
def test_stat_is_counted_from_the_last_parenthesis(comm):
    parsed = parse_stat("42 (%s) %s" % (comm, TAIL))
    assert parsed == {
        "comm": comm,
        "state": "S",
        "ppid": 10,
        "pgid": 20,
        "session": 30,
        "start_time": 987654,
    }


@pytest.mark.parametrize("text", ["", "42", "42 (x", "42 (x) S 1", ") ("])
def test_a_torn_stat_is_no_process(text):
    assert parse_stat(text) is None


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("0::/system.slice/sglang-main.service\n", "/system.slice/sglang-main.service"),
        ("12:freezer:/\n1:name=systemd:/system.slice/a.service\n0::/\n", "/system.slice/a.service"),
        ("1:name=systemd:/x.service\n0::/y.service\n", "/y.service"),
        ("garbage\n", ""),
        ("", ""),
    ],
)
def test_cgroup_path(text, path):
    assert parse_cgroup(text) == path


HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def _socket_line(address, state, inode):
    return "   0: %s 00000000:0000 %s 00000000:00000000 00:00000000 00000000     0        0 %d 1 0 100 0 0 10 0\n" % (
        address,
        state,
        inode,
    )


def test_only_listening_sockets_of_the_port_count():
    text = (
        HEADER
        + _socket_line("0100007F:7530", "0A", 11)  # 127.0.0.1:30000, LISTEN
        + _socket_line("0100007F:7530", "06", 12)  # TIME_WAIT
        + _socket_line("0100007F:7530", "01", 13)  # ESTABLISHED
        + _socket_line("00000000:7531", "0A", 14)  # another port
    )
    assert parse_listening(text, 30000) == [("127.0.0.1", 11)]


def test_ipv6_addresses_are_decoded():
    text = HEADER + _socket_line("00000000000000000000000001000000:7530", "0A", 15)
    assert parse_listening(text, 30000) == [("::1", 15)]


class Tree:
    """A /proc of files."""

    def __init__(self, root):
        self.root = root
        (root / "stat").write_text("cpu 1\nbtime 1000000\n")

    def add(self, pid, *, comm="x", ppid=1, session=0, start=100, state="S", uid=None, cmdline="x", cgroup="0::/\n"):
        folder = self.root / str(pid)
        folder.mkdir()
        (folder / "stat").write_text(
            "%d (%s) %s %d %d %d 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0"
            % (pid, comm, state, ppid, session, session, start)
        )
        (folder / "status").write_text("Name: x\nUid:\t0\t%d\t0\t0\n" % (os.getuid() if uid is None else uid))
        (folder / "cmdline").write_text(cmdline)
        (folder / "cgroup").write_text(cgroup)


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def test_read_a_process(tree):
    tree.add(
        7,
        comm="sglang::schedul",
        ppid=1,
        session=5,
        start=250,
        uid=4242,
        cmdline="sglang::scheduler_TP0\0",
        cgroup="0::/system.slice/sglang-main.service\n",
    )
    info = ProcFs(str(tree.root)).read(7)
    assert info.identity == ProcessIdentity(7, 250)
    assert (info.uid, info.user) == (4242, "4242")
    assert info.argv == ("sglang::scheduler_TP0",)
    assert info.name == "sglang::scheduler_TP0"
    assert info.unit == "sglang-main.service"
    assert info.exe == ""
    assert info.started_at == pytest.approx(1000000 + 250 / os.sysconf("SC_CLK_TCK"))
    assert not info.dead


def test_name_falls_back_to_comm(tree):
    tree.add(7, comm="kworker", cmdline="")
    assert ProcFs(str(tree.root)).read(7).name == "kworker"


def test_a_replaced_executable_keeps_its_name(tree):
    tree.add(7)
    (tree.root / "7" / "exe").symlink_to("/opt/x/python3 (deleted)")
    assert ProcFs(str(tree.root)).read(7).exe == "/opt/x/python3"


def test_alive_needs_pid_and_start_time_and_no_zombie(tree):
    tree.add(7, start=100)
    tree.add(8, start=100, state="Z")
    procfs = ProcFs(str(tree.root))
    assert procfs.alive(ProcessIdentity(7, 100))
    assert not procfs.alive(ProcessIdentity(7, 99))
    assert not procfs.alive(ProcessIdentity(8, 100))
    assert not procfs.alive(ProcessIdentity(9, 100))


def test_a_leader_that_ended_before_its_threads_is_alive(tree):
    tree.add(7, state="Z")
    threads = tree.root / "7" / "task"
    for number, state in ((7, "Z"), (8, "S")):
        (threads / str(number)).mkdir(parents=True)
        (threads / str(number) / "stat").write_text("%d (x) %s" % (number, TAIL.replace("S", state, 1)))
    procfs = ProcFs(str(tree.root))
    assert procfs.alive(ProcessIdentity(7, 100))
    assert not procfs.alive(ProcessIdentity(7, 99))
    (threads / "8" / "stat").write_text("8 (x) %s" % TAIL.replace("S", "Z", 1))
    assert not procfs.alive(ProcessIdentity(7, 100))


def test_ancestors_end_at_init_and_survive_a_loop(tree):
    tree.add(1, ppid=0)
    tree.add(5, ppid=1)
    tree.add(6, ppid=5)
    tree.add(20, ppid=21)
    tree.add(21, ppid=20)
    procfs = ProcFs(str(tree.root))
    assert procfs.ancestors(6) == [5, 1]
    assert procfs.ancestors(20) == [21]
    assert procfs.ancestors(99) == []


def test_session_members(tree):
    tree.add(5, session=5)
    tree.add(6, session=5)
    tree.add(7, session=7)
    assert [p.pid for p in ProcFs(str(tree.root)).session_members(5)] == [5, 6]


def test_this_very_process():
    procfs = ProcFs()
    info = procfs.read(os.getpid())
    assert info.ppid == os.getppid()
    assert info.exe == os.path.realpath(sys.executable)
    assert info.uid == os.getuid()
    assert os.getppid() in procfs.ancestors(os.getpid())
    assert procfs.alive(info.identity)


def test_an_unreaped_child_is_not_alive():
    child = subprocess.Popen(["true"])
    procfs = ProcFs()
    identity = procfs.identity(child.pid)
    try:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, but still in the table
        assert procfs.read(child.pid).dead
        assert not procfs.alive(identity)
    finally:
        child.wait()
    assert procfs.read(child.pid) is None


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_listener_is_named(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as server:
        try:
            server.bind((address, 0))
        except OSError:
            pytest.skip("no %s on this machine" % address)
        port = server.getsockname()[1]
        assert ProcFs().listeners(port) == []  # bound is not listening
        server.listen()
        found = ProcFs().listeners(port)
    assert [(item.address, item.port, item.pid) for item in found] == [(address, port, os.getpid())]
