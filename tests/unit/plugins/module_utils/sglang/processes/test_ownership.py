# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which processes belong to an instance."""

from __future__ import annotations

import dataclasses
import os

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import MARKER, STATE_MARKER
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.ownership import (
    Claim,
    Ownership,
    marked_instance,
)
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


def test_one_process_is_judged_as_all_of_them_are(proc):
    main = proc.add(10, start=100, environ=ENVIRON)
    child = proc.add(11, ppid=10)
    grandchild = proc.add(12, ppid=11)
    stranger = proc.add(13, ppid=1)
    looker = proc.procfs.read(OWN)
    ownership = Ownership(
        Claim(roots=(ProcessIdentity(10, 100), ProcessIdentity(OWN, looker.start_time))), proc.procfs, own_pid=OWN
    )
    found = {p.pid: (ownership.evidence(p), ownership.owns(p)) for p in (main, child, grandchild, stranger, looker)}
    assert found == {
        10: ("main", True),
        11: ("descent", True),
        12: ("descent", True),
        13: ("", False),
        OWN: ("", False),
    }


def test_nothing_descends_from_a_main_process_that_has_ended(proc):
    proc.add(10, start=100, state="Z")
    child = proc.add(11, ppid=10)
    ownership = Ownership(Claim(roots=(ProcessIdentity(10, 100),)), proc.procfs, own_pid=OWN)
    assert (ownership.members(), ownership.evidence(child)) == ([], "")


def test_the_main_process_comes_first_then_the_lowest_pid(proc):
    for pid in (30, 9, 20):
        proc.add(pid, cgroup="0::" + GROUP)
    claim = Claim(unit="sglang-main.service", group=GROUP, roots=(ProcessIdentity(20, 100),))
    members = Ownership(claim, proc.procfs, own_pid=OWN).members()
    assert [(m.process.pid, m.evidence) for m in members] == [(20, "main"), (9, "unit"), (30, "unit")]


def test_the_kernels_own_processes_are_never_among_them(proc):
    proc.add(2, ppid=0, environ=ENVIRON)
    proc.add(3, ppid=2, environ=ENVIRON)
    claim = Claim(instance="main", state_dir="/lib", uid=0, roots=(ProcessIdentity(1, 100), ProcessIdentity(2, 100)))
    assert evidence(proc, claim) == {3: "descent"}
    # One that entered a container or guest from outside has no parent there.
    proc.remove(OWN)
    proc.add(OWN, ppid=0)
    assert evidence(proc, claim) == {3: "descent"}


def test_by_default_the_one_who_looks_is_this_process(proc, monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: 4711)
    proc.add(4711, environ=ENVIRON)
    claim = Claim(instance="main", state_dir="/lib", uid=0)
    assert Ownership(claim, proc.procfs).members() == []
    assert [member.process.pid for member in Ownership(claim, proc.procfs, own_pid=OWN).members()] == [4711]


def test_a_unit_seen_from_inside_a_guest(proc):
    # The kernel shows the guest's processes below the guest; its systemd knows nothing of that.
    proc.remove(OWN)
    proc.add(OWN, ppid=1, cgroup="0::/lxc.payload.129/system.slice/ssh.service")
    proc.add(10, cgroup="0::/lxc.payload.129" + GROUP)
    proc.add(11, cgroup="0::" + GROUP)
    proc.add(12, cgroup="0::/lxc.payload.130" + GROUP)
    for claim in (Claim(unit="sglang-main.service", group=GROUP), Claim(unit="sglang-main.service")):
        assert evidence(proc, claim) == {10: "unit", 11: "unit"}


def test_a_unit_in_a_group_of_its_own_choice(proc):
    proc.add(10, cgroup="0::/inference.slice/sglang-main.service")
    proc.add(11, cgroup="0::" + GROUP)
    claim = Claim(unit="sglang-main.service", group="/inference.slice/sglang-main.service")
    assert evidence(proc, claim) == {10: "unit"}
    # A group without a unit claims nothing.
    assert evidence(proc, Claim(group=GROUP)) == {}


def test_a_container_inside_another(proc):
    outer = "/lxc.payload.129/system.slice/docker-%s.scope"
    proc.add(10, cgroup="0::" + outer % CONTAINER)
    proc.add(11, cgroup="0::" + outer % ("cd" * 32))
    proc.add(12, cgroup="0::/system.slice/docker-%s.scope" % (CONTAINER[:11] + "0" + CONTAINER[12:]))
    assert evidence(proc, Claim(container=CONTAINER)) == {10: "container"}
    assert evidence(proc, Claim(container="129")) == {10: "container", 11: "container"}
    assert evidence(proc, Claim()) == {}


@pytest.mark.parametrize(
    ("leader", "start", "owned"),
    [
        (100, 100, True),  # it began the session itself
        (100, 250, True),
        (100, 99, False),  # older than the session
        (None, 100, True),  # the leader has ended: its number stays taken while the session lives
        (300, 250, False),  # the number was given to a later process
    ],
)
def test_a_session_by_its_number_and_its_beginning(proc, leader, start, owned):
    if leader is not None:
        proc.add(10, start=leader)
    member = dataclasses.replace(proc.add(11, start=start), session=10)
    ownership = Ownership(Claim(session=10, session_since=100), proc.procfs, own_pid=OWN)
    assert ownership.evidence(member) == ("session" if owned else "")
    assert ownership.evidence(dataclasses.replace(member, session=12)) == ""


def test_stronger_evidence_comes_first(proc):
    both = proc.add(10, cgroup="0::%s/docker-%s.scope" % (GROUP, CONTAINER), start=100, environ=ENVIRON)
    everything = {
        "roots": (ProcessIdentity(10, 100),),
        "unit": "sglang-main.service",
        "container": CONTAINER,
        "session": 10,
        "session_since": 100,
        "instance": "main",
    }
    for kind, without in (
        ("main", ()),
        ("unit", ("roots",)),
        ("container", ("roots", "unit")),
        ("session", ("roots", "unit", "container")),
        ("marker", ("roots", "unit", "container", "session")),
    ):
        given = {name: value for name, value in everything.items() if name not in without}
        claim = Claim(state_dir="/lib", uid=0, **given)
        assert Ownership(claim, proc.procfs, own_pid=OWN).evidence(both) == kind


def test_a_marker_needs_an_instance_and_an_environment_that_can_be_read(proc):
    marked = proc.add(10, uid=7, environ=ENVIRON)
    unread = proc.add(11, uid=7, environ=ENVIRON)
    (proc.root / "11" / "environ").unlink()
    assert not Ownership(Claim(uid=7), proc.procfs, own_pid=OWN).owns(marked)
    ownership = Ownership(Claim(instance="main", state_dir="/lib", uid=7), proc.procfs, own_pid=OWN)
    assert ownership.owns(marked) and not ownership.owns(unread)


def test_the_instance_that_a_process_names(proc):
    proc.add(10, environ=ENVIRON)
    proc.add(11, environ="A=1\0")
    assert [marked_instance(pid, proc.procfs) for pid in (10, 11, 12)] == ["main", "", ""]


def test_an_empty_marker_is_no_marker(proc):
    nameless = proc.add(10, uid=7, environ="%s=\0" % MARKER)
    assert not Ownership(Claim(uid=7), proc.procfs, own_pid=OWN).owns(nameless)


def test_a_looker_whose_own_place_is_not_known_looks_all_the_same(proc):
    proc.add(10, cgroup="0::" + GROUP)
    members = Ownership(Claim(unit="sglang-main.service"), proc.procfs, own_pid=4711).members()
    assert [(member.process.pid, member.evidence) for member in members] == [(10, "unit")]
