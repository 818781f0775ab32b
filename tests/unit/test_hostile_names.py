# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever a process calls itself, its file, its control group: it is told in one line that shows everything."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.matching import Who
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Holder
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.plan import Rules, plan_reclaim
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.protection import Allowance, Protection
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reclaim_report import diff_text, planned_rows
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.results import holder_result
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.verdict import Limits, View, judge
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes import ports, unmanaged
from ansible_collections.inferops.sglang.plugins.module_utils.system import stuck
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import parse_stat
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import name_processes
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import listed, process, reading, uuid
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import FakeProc

HOSTILE = {
    "colours": "\x1b[31mred\x1b[2J",
    "title": "\x1b]0;root@gpu-a\x07",
    "link": "\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "clipboard": "\x1b]52;c;cm0gLXJmIH4=\x07",
    "eight bits": "\x9b2J\x90q\x9c",
    "a second line": "x\nok: [gpu-b] => all GPUs are free",
    "overwritten": "GPU 0 is busy\rGPU 0 is free",
    "backspaces": "busy\x08\x08\x08\x08free",
    "right to left": "\u202egnp.sgnittes",
    "unseen": "v\u200bl\u00adlm\ufe0f\U000e0041",
    "NUL": "a\0b",
    "no UTF-8": "caf\udce9\udcff",
    "markers": "{{ lookup('pipe', 'touch /tmp/pwned') }}{% for x in y %}{# #}",
    "JSON": '"}, "failed": false, "verdict": "free',
    "a shell": "$(touch /tmp/pwned)`id`;rm -rf /|&",
    "an option": "--help",
    "endless": "A" * (4 << 20),
    "endless escapes": "\x1b[2J" * (1 << 20),
    "nothing": "",
    "a space": " ",
}


def one_line(text, longest=1500):
    assert text.isprintable() and len(text) <= longest, text[:200]
    text.encode()  # nothing that no terminal and no file takes


@pytest.fixture(params=HOSTILE)
def hostile(request):
    return HOSTILE[request.param]


def test_a_process_that_is_called_so(hostile):
    called = process(900, comm=hostile[:15], argv=(hostile, hostile))
    assert called.name == process(900, comm=hostile[:15], argv=(hostile,)).name
    one_line(called.name, 80)
    holder = Holder(900, called, "", ((uuid(0), 1000),), ("nvml_compute",))
    one_line(holder.label)
    verdict = judge(reading(0, 1000, [listed(900)]), [holder], Limits(), View(scanned=True))
    assert verdict.state == "busy"
    one_line(verdict.message)
    plan = plan_reclaim([holder], frozenset([uuid(0)]), Rules())
    (row,) = planned_rows(plan, {}, {}, {})
    one_line(row["why"])
    one_line(diff_text([holder]).rstrip("\n"))
    one_line(name_processes([called]))
    one_line(ports._who(called))
    assert json.loads(json.dumps(row)) == row


def test_what_a_result_has_of_it(hostile):
    place = {"exe": "/tmp/" + hostile, "cgroup": "/user.slice/" + hostile.replace("\n", "")}
    row = holder_result(Holder(900, process(900, argv=(hostile,), **place), "", (), ("fd",)))
    for key in ("name", "exe", "cgroup"):
        one_line(row[key], 4200)


def test_a_control_group_that_is_called_so(tmp_path, hostile):
    name = hostile.replace("\n", "").replace("/", "").replace("\0", "")[:200] or "x"
    name = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    proc = FakeProc(tmp_path)
    for pid, group in enumerate(("%s.service", "lxc.payload.%s", "machine-qemu-1-%s.scope", "%s"), 900):
        found = proc.add(pid, "0::/user.slice/user@1000.service/" + group % name)
        one_line(Holder(pid, found, "", (), ("fd",)).label)
        if found.container is not None:
            row = holder_result(Holder(pid, found, "", (), ("fd",)))["container"]
            one_line(row["id"], 80)
            one_line(row["name"], 80)
        # What systemd would not have made is no unit that it is asked about.
        assert found.unit is None or found.unit.replace("\\", "").isascii()


def test_what_people_copy_from_a_message_does_not_run_what_a_name_says(tmp_path):
    proc = FakeProc(tmp_path / "proc" if (tmp_path / "proc").mkdir() is None else None)
    group = "/user.slice/$(touch pwned);\x1b[2J"
    frozen = proc.add(900, "0::" + group)
    folder = tmp_path / "cgroup" / group.lstrip("/")
    folder.mkdir(parents=True)
    (folder / "cgroup.events").write_text("populated 1\nfrozen 1\n")
    (folder / "cgroup.freeze").write_text("1\n")
    told = stuck._frozen(frozen, proc.procfs, str(tmp_path / "cgroup"))
    assert told.isprintable() and "echo 0 > '" in told and "$(touch pwned);\\x1b[2J/cgroup.freeze'" in told


STAT = "%d (%s) S 7 900 900 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0"


@pytest.mark.parametrize(
    "comm",
    [") R 1 1 1", "a) Z (b", "((((", "))))", "", " ", "x\ny", "1 (init) S 0", "\x1b[2J", "0 " * 7, ") X 0 0 0 0 0 0"],
)
def test_a_name_that_looks_like_the_rest_of_a_line_changes_nothing(comm):
    parsed = parse_stat(STAT % (900, comm))
    assert parsed == {
        "comm": comm,
        "state": "S",
        "ppid": 7,
        "pgid": 900,
        "session": 900,
        "start_time": 4711,
    }


@given(st.text(max_size=15))
def test_any_name_leaves_the_rest_of_the_line_alone(comm):
    parsed = parse_stat(STAT % (900, comm))
    assert (parsed["comm"], parsed["state"], parsed["ppid"], parsed["start_time"]) == (comm, "S", 7, 4711)


def test_a_command_line_without_end_is_read_up_to_a_bound(tmp_path):
    proc = FakeProc(tmp_path)
    proc.add(900)
    for name in ("cmdline", "environ"):
        with open(str(tmp_path / "900" / name), "wb") as stream:
            stream.truncate(1 << 36)
    began = time.process_time()
    assert sum(map(len, proc.procfs.read(900).argv)) <= 8 << 20
    # Of a part of an environment it is not known what the rest says.
    assert proc.procfs.environ(900) is None
    assert time.process_time() - began < 5


# -- nobody is spared, or counted as welcome, for a name that he chose

NOBODY = Protection(own=frozenset(), ancestors=frozenset())
USER_UNIT = "/user.slice/user-1000.slice/user@1000.service/app.slice/%s"


@pytest.mark.parametrize("name", ["nvidia-persistenced", "nv-hostengine", "dcgm-exporter", "Xorg", "gnome-shell"])
def test_a_file_of_ones_own_with_the_name_of_a_daemon_protects_nobody(name):
    for owner in (1000, -1):
        assert NOBODY.reason(process(900, exe="/home/eve/" + name, exe_owner=owner)) == ""


def test_a_daemons_own_file_run_by_a_person_protects_nobody():
    # With LD_PRELOAD it does what that person likes.
    assert NOBODY.reason(process(900, exe="/usr/bin/nvidia-persistenced", exe_owner=0, uid=1000)) == ""
    assert NOBODY.reason(process(900, exe="/usr/bin/nvidia-persistenced", exe_owner=0, uid=999))


@pytest.mark.parametrize("unit", ["nvidia-dcgm.service", "gdm.service"])
def test_a_unit_of_ones_own_with_the_name_of_a_daemon_protects_nobody(unit):
    assert NOBODY.reason(process(900, unit=unit, cgroup="/system.slice/" + unit))
    assert NOBODY.reason(process(900, unit=unit, cgroup=USER_UNIT % unit)) == ""


def test_a_unit_or_container_of_ones_own_is_none_that_an_operator_meant(tmp_path):
    proc = FakeProc(tmp_path)
    who = Who(units=("weights",), containers=("lxc:129", "docker:" + "a" * 64))
    groups = ("system.slice/weights.service", "lxc.payload.129", "system.slice/docker-%s.scope" % ("a" * 64))
    for pid, group in enumerate(groups, 900):
        assert who.match(proc.add(pid, "0::/" + group))[0]
        forged = proc.add(pid + 100, "0::" + USER_UNIT % group, uid=1000)
        assert who.match(forged) == ("", "")
        holder = Holder(pid + 100, forged, "", ((uuid(0), 10),), ("nvml_compute",))
        assert not Allowance(who).covers(holder)
        assert Allowance(Who(uids=frozenset([1000]))).covers(holder)


def test_a_server_in_a_container_is_not_taken_over_as_one_of_the_host(tmp_path):
    argv = ("/usr/bin/python3", "-m", "sglang.launch_server", "--port", "30000")
    inside = FakeProc(tmp_path).add(900, "0::/system.slice/docker-%s.scope" % ("a" * 64), argv=argv)
    found = unmanaged.Unmanaged(inside, argv[3:], "127.0.0.1", 30000, True)
    (check,) = unmanaged.check_unmanaged(found, unmanaged.TAKE_OVER)
    assert check.status == "failed" and "docker:aaaaaaaaaaaa" in check.message
