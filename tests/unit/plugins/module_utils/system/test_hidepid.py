# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A /proc that does not show all processes: what is not there is not known to be not there."""

from __future__ import annotations

import os

import pytest

from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import FakeProc

TRACER, NOBODY = "000001ffffffffff", "0000000000000000"
OURS = str(os.getegid())


@pytest.fixture
def proc(tmp_path):
    found = FakeProc(tmp_path)
    (tmp_path / "self").mkdir()
    return found


def mounted(proc, *options, caps=NOBODY, point=None):
    """Mount a /proc with each of these options, one over the other."""
    point = point or os.path.realpath(str(proc.root))
    lines = ["22 1 0:20 / / rw - ext4 /dev/sda1 rw,hidepid=2"]
    lines += ["%d 22 0:21 / %s rw,nosuid shared:5 - proc proc %s" % (23 + i, point, o) for i, o in enumerate(options)]
    (proc.root / "self" / "mountinfo").write_text("\n".join(lines) + "\n")
    (proc.root / "self" / "status").write_text("Name:\tx\nCapEff:\t%s\n" % caps)
    return proc.procfs.hidden()


@pytest.mark.parametrize("how", ["1", "2", "4", "noaccess", "invisible", "ptraceable"])
def test_processes_of_others_do_not_show(proc, how):
    assert "hidepid=%s" % how in mounted(proc, "rw,hidepid=%s" % how)
    assert mounted(proc, "rw,hidepid=%s" % how, caps=TRACER) == ""


@pytest.mark.parametrize("options", ["rw", "rw,hidepid=0", "rw,hidepid=off", "rw,gid=0,hidepid=0", "rw,subset=pid"])
def test_all_show(proc, options):
    assert mounted(proc, options) == ""


def test_the_group_of_the_mount_option_sees_all_but_where_only_tracers_do(proc):
    assert mounted(proc, "rw,gid=%s,hidepid=2" % OURS) == ""
    assert mounted(proc, "rw,gid=%s,hidepid=invisible" % OURS) == ""
    assert mounted(proc, "rw,gid=%s,hidepid=ptraceable" % OURS)
    assert mounted(proc, "rw,gid=4294967,hidepid=2")
    assert mounted(proc, "rw,gid=x,hidepid=2")


def test_the_last_mount_over_the_place_counts(proc):
    assert mounted(proc, "rw", "rw,hidepid=2")
    assert mounted(proc, "rw,hidepid=2", "rw") == ""
    assert mounted(proc, "rw,hidepid=2", point="/elsewhere/proc") == ""


@pytest.mark.parametrize("text", ["", "x", "1 2 - proc", " - \n", "1 2 3 4 /proc rw - proc proc"])
def test_a_table_of_mounts_that_tells_nothing(proc, text):
    (proc.root / "self" / "mountinfo").write_text(text)
    assert proc.procfs.hidden() == ""


def test_without_a_table_of_mounts(proc):
    assert proc.procfs.hidden() == ""


def test_a_process_is_there_whether_it_shows_or_not(proc, monkeypatch):
    assert proc.procfs.exists(os.getpid())
    assert not proc.procfs.exists(1 << 22) and not proc.procfs.read(os.getpid())

    def denied(_pid, _signal):
        raise PermissionError

    monkeypatch.setattr(os, "kill", denied)
    assert proc.procfs.exists(7)
