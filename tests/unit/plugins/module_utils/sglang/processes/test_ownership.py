# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which processes belong to an instance."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import MARKER, STATE_MARKER
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.ownership import Claim, Ownership
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import FakeProc

GROUP = "/system.slice/sglang-main.service"
CONTAINER = "ab" * 32
OWN = 900  # the one who looks
ENVIRON = "%s=main\0%s=/lib\0A=1\0" % (MARKER, STATE_MARKER)


@pytest.fixture
def proc(tmp_path):
    proc = FakeProc(tmp_path)
    proc.add(1, ppid=0)
    proc.add(OWN, ppid=1, cgroup="0::/system.slice/ssh.service")
    return proc


def evidence(proc, claim):
    members = Ownership(claim, proc.procfs, own_pid=OWN).members()
    return {member.process.pid: member.evidence for member in members}


def test_a_unit_and_what_only_looks_like_it(proc):
    proc.add(10, cgroup="0::" + GROUP)
    proc.add(11, cgroup="0::%s/worker" % GROUP, ppid=10)
    for pid, cgroup in enumerate(
        (
            "/lxc.payload.129" + GROUP,
            "/guests/gpu-1" + GROUP,
            "/user.slice/user-7.slice/user@7.service/app.slice/sglang-main.service",
            "/system.slice/sglang-main-2.service",
        ),
        20,
    ):
        proc.add(pid, cgroup="0::" + cgroup)
    claim = Claim(unit="sglang-main.service", group=GROUP)
    assert evidence(proc, claim) == {10: "unit", 11: "unit"}
    # systemd has forgotten the unit: it is where units are by default.
    assert evidence(proc, Claim(unit="sglang-main.service")) == {10: "unit", 11: "unit"}
    assert evidence(proc, Claim(unit="sglang-main.service", group="/")) == {10: "unit", 11: "unit"}


def test_a_container(proc):
    proc.add(10, cgroup="0::/system.slice/docker-%s.scope" % CONTAINER)
    proc.add(11, cgroup="0::/system.slice/docker-%s.scope" % ("cd" * 32))
    assert evidence(proc, Claim(container=CONTAINER)) == {10: "container"}
    assert evidence(proc, Claim(container=CONTAINER[:12])) == {10: "container"}


def test_descent_from_a_live_main_process(proc):
    proc.add(10, start=100)
    proc.add(11, ppid=10)
    proc.add(12, ppid=11)
    proc.add(13, ppid=1)
    claim = Claim(roots=(ProcessIdentity(10, 100),))
    assert evidence(proc, claim) == {10: "main", 11: "descent", 12: "descent"}
    assert evidence(proc, Claim(roots=(ProcessIdentity(10, 99),))) == {}  # a later process of the same PID


def test_a_session_that_outlives_its_leader(proc):
    # FakeProc gives each process the session of its own PID.
    proc.add(10, start=100)
    assert evidence(proc, Claim(session=10, session_since=100)) == {10: "session"}
    assert evidence(proc, Claim(session=10, session_since=50)) == {}  # the number was given away


@pytest.mark.parametrize(
    ("environ", "uid", "owned"),
    [
        (ENVIRON, 7, True),
        ("%s=main\0" % MARKER, 7, True),
        (ENVIRON, 8, False),
        (ENVIRON.replace("=main", "=other"), 7, False),
        (ENVIRON.replace("=/lib", "=/elsewhere"), 7, False),
        ("A=1\0", 7, False),
        ("", 7, False),
    ],
)
def test_an_inherited_variable_counts_for_the_servers_user_alone(proc, environ, uid, owned):
    proc.add(10, uid=uid, environ=environ, argv=("python3", "-c", "from multiprocessing.spawn import spawn_main"))
    claim = Claim(instance="main", state_dir="/lib", uid=7)
    assert evidence(proc, claim) == ({10: "marker"} if owned else {})
    assert evidence(proc, Claim(instance="main", state_dir="/lib", uid=None)) == {}


def test_the_one_who_looks_and_those_above_are_never_among_them(proc):
    proc.remove(OWN)
    proc.add(30, ppid=1, environ=ENVIRON)
    proc.add(901, ppid=30, environ=ENVIRON)
    proc.add(902, ppid=901, environ=ENVIRON)
    claim = Claim(instance="main", state_dir="/lib", uid=0)
    members = Ownership(claim, proc.procfs, own_pid=901).members()
    assert [member.process.pid for member in members] == [902]


def test_the_dead_are_not_among_them(proc):
    proc.add(10, cgroup="0::" + GROUP, state="Z")
    assert evidence(proc, Claim(unit="sglang-main.service", group=GROUP)) == {}


def test_an_environment_is_read(proc):
    proc.add(10, environ="A=1\0B=x=y\0=odd\0broken\0EMPTY=\0")
    assert proc.procfs.environ(10) == {"A": "1", "B": "x=y", "EMPTY": ""}
    assert proc.procfs.environ(11) is None
