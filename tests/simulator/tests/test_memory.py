# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What unmodified nvidia-ml-py sees of memory and processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import fakegpu
import pytest
from harness import SIMULATOR, Host, wait_for


def test_idle_gpu_as_on_hardware(host: Host) -> None:
    v1, v2, name, processes = host.nvml(
        "v1 = n.nvmlDeviceGetMemoryInfo(h[1]); v2 = n.nvmlDeviceGetMemoryInfo(h[1], version=n.nvmlMemory_v2)\n"
        "result = [[x >> 20 for x in (v1.total, v1.free, v1.used)],"
        " [x >> 20 for x in (v2.total, v2.reserved, v2.free, v2.used)], n.nvmlDeviceGetName(h[1]),"
        " n.nvmlDeviceGetComputeRunningProcesses(h[1])]"
    )
    assert v1 == [143771, 143156, 615]  # used includes what the driver reserves
    assert v2 == [143771, 615, 143156, 0]
    assert name == "NVIDIA H200"
    assert processes == []


def test_identity(host: Host) -> None:
    fakegpu.set_gpu(1, host.state, minor=5, recovery=2, persistence=0)
    uuid, bus, minor, index, recovery, persistence, same = host.nvml(
        "d = h[1]; p = n.nvmlDeviceGetPciInfo(d)\n"
        "other = [n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(d)), n.nvmlDeviceGetHandleByPciBusId(p.busId),"
        " n.nvmlDeviceGetHandleByPciBusId(p.busIdLegacy.lower())]\n"
        "result = [n.nvmlDeviceGetUUID(d), p.busId, n.nvmlDeviceGetMinorNumber(d), n.nvmlDeviceGetIndex(d),"
        " n.nvmlDeviceGetFieldValues(d, [n.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])[0].value.uiVal,"
        " n.nvmlDeviceGetPersistenceMode(d), [n.nvmlDeviceGetIndex(o) for o in other]]"
    )
    assert uuid == fakegpu.gpu_uuid(1) != fakegpu.gpu_uuid(1, "another host")
    assert bus == "00000000:0B:00.0"
    assert (minor, index, recovery, persistence, same) == (5, 1, 2, 0, [1, 1, 1])


def test_wrong_version_of_the_structure(host: Host) -> None:
    code = host.nvml(
        "try: n.nvmlDeviceGetMemoryInfo(h[0], version=n.nvmlMemory_v2 + 8)\nexcept n.NVMLError as e: result = e.value"
    )
    assert code == 25


def test_holder_until_killed(host: Host) -> None:
    (pid,) = host.hold("--gpu", 1, "--mib", 30000)
    assert (host.used(0), host.used(1)) == (0, 30000)
    assert (host.listed(0), host.listed(1)) == ([], [[pid, 30000]])
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: host.used(1) == 0)
    assert host.listed(1) == []
    assert list((host.state / "alloc").iterdir()) == []


def test_one_row_for_several_allocations(host: Host) -> None:
    (pid,) = host.hold("--gpu", 0, "--mib", 100, "--gpu", 0, "--mib", 250)
    assert host.listed() == [[pid, 350]]


def test_lists_by_kind(host: Host) -> None:
    pids = [host.hold("--kind", kind)[0] for kind in "CGMH"]
    assert host.used() == 4000
    assert host.nvml(
        "result = [[p.pid for p in list(h[0])] for list in (n.nvmlDeviceGetComputeRunningProcesses,"
        " n.nvmlDeviceGetGraphicsRunningProcesses, n.nvmlDeviceGetMPSComputeRunningProcesses,"
        " n.nvmlDeviceGetComputeRunningProcesses_v2)]"
    ) == [[pids[0]], [pids[1]], [pids[2]], [pids[0]]]


def test_size_protocol(host: Host) -> None:
    for pid in (11, 12):
        fakegpu.add_process(0, pid, 5, state=host.state)
    assert host.nvml(
        "import ctypes\nlist = n.nvmlLib.nvmlDeviceGetComputeRunningProcesses_v3\n"
        "def ask(device, room):\n"
        "    count = ctypes.c_uint(room); rows = (n.c_nvmlProcessInfo_v2_t * max(room, 1))()\n"
        "    code = list(device, ctypes.byref(count), rows if room else None)\n"
        "    return [code, count.value]\n"
        "result = [ask(h[1], 0), ask(h[0], 0), ask(h[0], 1), ask(h[0], 2), ask(h[0], 9)]"
    ) == [[0, 0], [7, 2], [7, 2], [0, 2], [0, 2]]


def test_static_process_without_a_figure(host: Host) -> None:
    fakegpu.add_process(0, 999999, -1, state=host.state)
    assert host.listed() == [[999999, None]]
    assert host.used() == 0


def test_memory_without_a_process(host: Host) -> None:
    fakegpu.set_gpu(0, host.state, base=9000)
    assert (host.used(), host.listed()) == (9000, [])


def test_child_keeps_the_memory_of_its_dead_parent(host: Host) -> None:
    parent, child = host.hold("--fork-child")
    os.kill(parent, signal.SIGKILL)
    wait_for(lambda: not _alive(parent))
    time.sleep(0.1)
    assert host.listed() == [[parent, 1000]]
    os.kill(child, signal.SIGKILL)
    wait_for(lambda: host.used() == 0)


def test_holder_without_descriptors(host: Host) -> None:
    (pid,) = host.hold("--mmap-only")
    descriptors = [os.readlink("/proc/{}/fd/{}".format(pid, fd)) for fd in os.listdir("/proc/{}/fd".format(pid))]
    assert not [path for path in descriptors if str(host.folder) in path]
    with open("/proc/{}/maps".format(pid)) as maps:
        assert str(host.folder / "dev" / "nvidia0") in maps.read()
    assert host.listed() == [[pid, 1000]]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: host.used() == 0)


def test_zombie_leader_with_a_living_thread_holds(host: Host) -> None:
    (pid,) = host.hold("--zombie-leader")
    with open("/proc/{}/stat".format(pid)) as stat:
        wait_for(lambda: stat.seek(0) == 0 and stat.read().rpartition(")")[2].split()[0] == "Z")
    assert host.listed() == [[pid, 1000]]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: host.used() == 0)


def test_plain_zombie_holds_nothing(host: Host) -> None:
    (pid,) = host.hold()
    os.kill(pid, signal.SIGKILL)  # the fixture reaps it only at the end
    wait_for(lambda: host.used() == 0)
    assert os.path.exists("/proc/{}".format(pid))


def test_release_delay(host: Host) -> None:
    fakegpu.set_value("release_delay", 0.6, state=host.state)
    (pid,) = host.hold()
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not _alive(pid))
    began = time.monotonic()
    assert host.listed() == [[pid, 1000]]  # the dead process, as the driver shows it until the memory is back
    wait_for(lambda: host.used() == 0)
    assert 0.5 < time.monotonic() - began < 2.0


def test_release_delay_runs_although_nobody_looks(host: Host) -> None:
    fakegpu.set_value("release_delay", 0.5, state=host.state)
    (pid,) = host.hold()
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.8)
    assert host.used() == 0  # at the first look


def test_stopped_holder_holds(host: Host) -> None:
    fakegpu.set_value("release_delay", 0.1, state=host.state)
    (pid,) = host.hold()
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.4)
    assert host.listed() == [[pid, 1000]]


def test_settle_waits_for_the_release(host: Host) -> None:
    fakegpu.set_value("release_delay", 0.3, state=host.state)
    (pid,) = host.hold()
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not _alive(pid))
    fakegpu.settle(state=host.state)
    assert host.used() == 0


def test_released_by_its_owner(host: Host) -> None:
    allocation = fakegpu.allocate(0, 64, state=host.state)
    assert host.listed() == [[os.getpid(), 64]]
    allocation.release()
    assert host.used() == 0


def test_processes_of_another_namespace_are_left_out(host: Host) -> None:
    (pid,) = host.hold()
    fakegpu.add_process(0, 4194300, 70000, state=host.state)
    fakegpu.set_value("drop_foreign", state=host.state)
    assert host.listed() == [[pid, 1000]]
    assert host.used() == 71000


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make PID namespaces")
def test_a_process_has_the_pid_of_the_callers_namespace(host: Host) -> None:
    (own,) = host.hold()
    guest = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    holder = "import fakegpu, subprocess, sys\nfakegpu.allocate(0, 500)\nprint(fakegpu.os.getpid(), flush=True)\n" + (
        "code = sys.stdin.readline()\nsubprocess.run([sys.executable, '-c', code])\nsys.stdin.read()\n"
    )
    process = host.start(
        [*guest, sys.executable, "-c", holder],
        {"PYTHONPATH": str(SIMULATOR)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "1\n"
    (outside,) = map(int, Path("/proc/%d/task/%d/children" % (process.pid, process.pid)).read_text().split())
    assert sorted(host.listed()) == sorted([[own, 1000], [outside, 500]])
    process.stdin.write(
        "import pynvml as n; n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0); "
        "print([p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(h)], n.nvmlDeviceGetMemoryInfo(h).used >> 20)\n"
    )
    process.stdin.flush()
    # What the guest cannot see uses the memory all the same.
    inside, used = process.stdout.readline().rsplit(None, 1)
    assert inside == "[1]" and int(used) >= 1500


def test_mig_instances(host: Host) -> None:
    fakegpu.set_gpu(0, host.state, mig=1)
    with fakegpu.edit(host.state) as lines:
        lines += ["mig 0 0 MIG-aaaa 16000 1200 7 0", "proc 0 77 1200 C 7 0"]
    assert host.nvml(
        "d = n.nvmlDeviceGetMigDeviceHandleByIndex(h[0], 0)\n"
        "p = n.nvmlDeviceGetComputeRunningProcesses(d)[0]\n"
        "result = [n.nvmlDeviceGetMigMode(h[0]), n.nvmlDeviceGetUUID(d), n.nvmlDeviceGetMemoryInfo(d).used >> 20,"
        " n.nvmlDeviceGetGpuInstanceId(d), p.pid, p.gpuInstanceId]"
    ) == [[1, 1], "MIG-aaaa", 1200, 7, 77, 7]


def test_holder_in_a_mig_instance(host: Host) -> None:
    uuid = fakegpu.add_instance(0, 16000, 7, state=host.state)
    fakegpu.add_instance(0, 16000, 8, used=30, state=host.state)
    (pid,) = host.hold("--gpu", 0, "--mib", 500, "--gi", 7, "--ci", 0)
    assert host.nvml(
        "ds = [n.nvmlDeviceGetMigDeviceHandleByIndex(h[0], i) for i in (0, 1)]\n"
        "p = [n.nvmlDeviceGetComputeRunningProcesses(d) for d in ds]\n"
        "result = [n.nvmlDeviceGetUUID(ds[0]), [n.nvmlDeviceGetMemoryInfo(d).used >> 20 for d in ds],"
        " [[[r.pid, r.gpuInstanceId, r.computeInstanceId] for r in rows] for rows in p]]"
    ) == [uuid, [500, 30], [[[pid, 7, 0]], []]]
    assert host.used() == 500 and host.listed() == [[pid, 500]]


def test_a_failure_of_the_whole_gpu_spares_its_instances(host: Host) -> None:
    fakegpu.add_instance(0, 16000, 7, used=30, state=host.state)
    fakegpu.fail("nvmlDeviceGetMemoryInfo", "0/whole", 4, state=host.state)
    assert (
        host.nvml(
            "d = n.nvmlDeviceGetMigDeviceHandleByIndex(h[0], 0)\n"
            "result = n.nvmlDeviceGetMemoryInfo(d).used >> 20\n"
            "try: n.nvmlDeviceGetMemoryInfo(h[0]); result = None\n"
            "except n.NVMLError_NoPermission: pass"
        )
        == 30
    )


def test_importer_keeps_and_inherits_the_memory_of_its_exporter(host: Host) -> None:
    (exporter,) = host.hold("--gpu", 0, "--mib", 700)
    (importer,) = host.hold("--attach", 0, "--share-of", exporter, "--gpu", 1, "--mib", 1)
    assert host.listed() == [[exporter, 700]]
    os.kill(exporter, signal.SIGKILL)
    wait_for(lambda: host.listed() == [[importer, 700]])
    os.kill(importer, signal.SIGKILL)
    wait_for(lambda: host.used() == 0)


@pytest.mark.parametrize("readers", [4])
def test_concurrent_readers_agree_in_the_end(host: Host, readers: int) -> None:
    pids = [host.hold()[0] for _holder in range(3)]
    loop = (
        "import time, pynvml as n\nn.nvmlInit(); d = n.nvmlDeviceGetHandleByIndex(0); seen = []\n"
        "end = time.monotonic() + 0.8\n"
        "while time.monotonic() < end:\n"
        "    seen.append(n.nvmlDeviceGetMemoryInfo(d, version=n.nvmlMemory_v2).used >> 20)\n"
        "assert seen == sorted(seen, reverse=True), 'memory came back after it was gone'\n"
        "assert seen[-1] == 0, seen[-1]\n"
    )
    processes = [host.start([sys.executable, "-c", loop]) for _reader in range(readers)]
    time.sleep(0.4)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert [process.wait(10) for process in processes] == [0] * readers


def _alive(pid: int) -> bool:
    """Whether any thread is left; a zombie's other threads may still be on their way out, and hold until then."""
    try:
        with open("/proc/{}/stat".format(pid)) as file:
            zombie = file.read().rpartition(")")[2].split()[0] in "ZX"
        return not zombie or len(os.listdir("/proc/{}/task".format(pid))) > 1
    except OSError:
        return False
