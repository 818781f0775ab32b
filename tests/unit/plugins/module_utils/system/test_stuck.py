# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a process is still there: by table, then a stopped, a traced-free and an unreaped one of our own."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs
from ansible_collections.inferops.sglang.plugins.module_utils.system.stuck import explain
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import FakeProc

A = "4f2a6d" + "0" * 58
PENDING = "SigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\n"
NOT_PENDING = "SigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\n"
UVM_STACK = "[<0>] uvm_spin_loop+0x84/0xd0 [nvidia_uvm]\n[<0>] uvm_release+0x1/0x2 [nvidia_uvm]\n"
OLD_STACK = "[<ffffffffa0123456>] os_acquire_semaphore+0x35/0x60 [nvidia]\n"
NFS_STACK = "[<0>] rpc_wait_bit_killable+0x1e/0xa0 [sunrpc]\n"


@pytest.fixture
def proc(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "cgroup").mkdir()
    return FakeProc(tmp_path / "proc")


def sentence(proc, process):
    return explain(process, proc.procfs, str(proc.root.parent / "cgroup"))


@pytest.mark.parametrize(
    ("kernel", "words", "others"),
    [
        (
            {"state": "D", "stack": UVM_STACK},
            ["NVIDIA driver (uvm_spin_loop in nvidia_uvm)", "state D", "Xid", "reboot"],
            [],
        ),
        ({"state": "D", "stack": OLD_STACK}, ["os_acquire_semaphore in nvidia)"], []),
        ({"state": "R", "stack": UVM_STACK}, ["uvm_spin_loop", "state R", "reboot"], []),
        (
            {"state": "D", "stack": NFS_STACK, "wchan": "rpc_wait_bit_killable"},
            ["kernel (rpc_wait_bit_killable)"],
            ["reboot"],
        ),
        ({"state": "D", "wchan": "nvidia_close_callback"}, ["nvidia_close_callback", "reboot"], []),
        ({"state": "D", "stack": NFS_STACK, "wchan": "0"}, ["kernel (rpc_wait_bit_killable)"], []),
        ({"state": "D"}, ["waits in the kernel where no signal reaches it"], ["NVIDIA"]),
        ({"state": "R"}, ["runs in the kernel", "reboot"], []),
        ({"state": "D", "flags": 0x400004, "stack": UVM_STACK}, ["while it ends"], []),
        ({"state": "S", "flags": 0x4}, ["on its way out"], ["reboot"]),
        ({"state": "T", "status": PENDING}, ["stopped", "pending"], ["did not reach"]),
        ({"state": "T", "status": NOT_PENDING}, ["stopped", "did not reach it"], []),
        ({"state": "S", "status": PENDING}, ["SIGKILL pending"], ["did not reach"]),
        ({"state": "S", "status": NOT_PENDING}, ["did not reach it"], []),
        ({"state": "S", "flags": 0x200040}, ["thread of the kernel"], []),
    ],
)
def test_what_the_kernel_says(proc, kernel, words, others):
    text = sentence(proc, proc.add(100, **kernel))
    assert text.startswith("it ")
    for word in words:
        assert word in text
    for word in others:
        assert word not in text


def test_the_worst_thread_is_the_reason(proc):
    process = proc.add(100, threads={100: "S", 101: "D", 102: "R"}, stack=UVM_STACK)
    assert "thread 101 of it waits in the NVIDIA driver" in sentence(proc, process)


def test_a_thread_behind_a_zombie(proc):
    process = proc.add(100, state="Z", threads={100: "Z", 101: "D"}, stack=UVM_STACK)
    assert "thread 101 of it waits" in sentence(proc, process)


def test_a_zombie_and_its_parent(proc):
    proc.add(50, argv=("supervise",))
    text = sentence(proc, proc.add(100, ppid=50, state="Z"))
    assert "holds nothing" in text and "process 50 (supervise)" in text


def test_a_traced_process_names_its_tracer(proc):
    proc.add(60, argv=("gdb",))
    text = sentence(proc, proc.add(100, state="t", status="TracerPid:\t60\n" + PENDING))
    assert "traced by process 60 (gdb)" in text


def test_gone_or_another_by_now(proc):
    process = proc.add(100)
    (proc.root / "100" / "stat").write_text((proc.root / "100" / "stat").read_text().replace(" 100 0 0", " 777 0 0"))
    assert sentence(proc, process) == ""
    proc.remove(100)
    assert sentence(proc, process) == ""


def test_its_number_in_its_own_namespace(proc):
    process = proc.add(100, "0::/docker/" + A, state="D", namespace=7)
    assert sentence(proc, process).endswith("(PID 7 inside docker:4f2a6d000000)")


def files(proc, **contents):
    for path, content in contents.items():
        target = proc.root.parent / "cgroup" / path.replace("__", "/").replace("_D_", ".")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)


def test_frozen_by_the_first_version(proc):
    files(
        proc,
        freezer__jobs__a__freezer_D_state="FROZEN\n",
        freezer__jobs__a__freezer_D_self_freezing="0\n",
        freezer__jobs__freezer_D_self_freezing="1\n",
    )
    text = sentence(proc, proc.add(100, "5:cpu,freezer:/jobs/a\n0::/", state="D", status=PENDING))
    root = proc.root.parent / "cgroup"
    assert "frozen by its control group /jobs/a" in text
    assert "echo THAWED > %s/freezer/jobs/freezer.state" % root in text


@pytest.mark.parametrize("mount", ["", "unified__"])
def test_frozen_by_the_second_version(proc, mount):
    files(proc, **{mount + "docker__%s__cgroup_D_events" % A: "populated 1\nfrozen 1\n"})
    files(proc, **{mount + "docker__%s__cgroup_D_freeze" % A: "1\n"})
    text = sentence(proc, proc.add(100, "0::/docker/" + A, status=PENDING))
    assert "docker unpause 4f2a6d000000" in text
    assert "echo 0 > " in text


def test_a_frozen_unit_is_thawed_by_systemd(proc):
    files(proc, **{"system.slice__a.service__cgroup_D_events": "populated 1\nfrozen 1\n"})
    assert "systemctl thaw a.service" in sentence(proc, proc.add(100, "0::/system.slice/a.service"))


@pytest.mark.parametrize("state", ["THAWED\n", ""])
def test_not_frozen(proc, state):
    files(proc, freezer__a__freezer_D_state=state, a__cgroup_D_events="populated 1\nfrozen 0\n")
    assert "frozen" not in sentence(proc, proc.add(100, "5:freezer:/a\n0::/a", status=NOT_PENDING))


def test_processes_of_our_own():
    procfs = ProcFs()
    child = subprocess.Popen(["sleep", "60"])
    try:
        os.kill(child.pid, signal.SIGSTOP)
        _wait_for(procfs, child.pid, "T")
        assert "is stopped (state T)" in explain(procfs.read(child.pid), procfs)
        os.kill(child.pid, signal.SIGKILL)
        _wait_for(procfs, child.pid, "Z")
        assert "process %d" % os.getpid() in explain(procfs.read(child.pid), procfs)
    finally:
        child.kill()
        child.wait()


def _wait_for(procfs, pid, state):
    deadline = time.monotonic() + 5
    while procfs.read(pid).state != state:
        assert time.monotonic() < deadline
        time.sleep(0.005)
