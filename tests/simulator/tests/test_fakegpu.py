# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Setting up, names of holders, and their ways to leave."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import fakegpu
import pytest
from harness import SIMULATOR, Host, wait_for


def run(host: Host, *arguments: str) -> str:
    command = [sys.executable, str(SIMULATOR / "fakegpu.py"), *arguments]
    return subprocess.run(command, env=host.environment, capture_output=True, text=True, check=True).stdout


def test_setup_by_command_line(host: Host) -> None:
    run(host, "setup", "--gpus", "8", "--name", "NVIDIA A100 80GB", "--total", "81920", "--host-seed", "b")
    assert host.nvml("result = [len(h), n.nvmlDeviceGetName(h[7]), n.nvmlDeviceGetUUID(h[7])]") == [
        8,
        "NVIDIA A100 80GB",
        fakegpu.gpu_uuid(7, "b"),
    ]


def test_changes_by_command_line(host: Host) -> None:
    run(host, "set", "gpu", "1", "base=77", "name=Some GPU")
    run(host, "set", "driver", "550.1")
    run(host, "fail", "nvmlDeviceGetUUID", "0", "3")
    assert host.nvml("result = [n.nvmlDeviceGetName(h[1]), n.nvmlSystemGetDriverVersion()]") == ["Some GPU", "550.1"]
    assert host.used(1) == 77
    assert '"allocations": []' in run(host, "show")
    run(host, "clear", "fail")
    assert host.nvml("result = n.nvmlDeviceGetUUID(h[0])") == fakegpu.gpu_uuid(0)


def test_unknown_gpu_is_refused(host: Host) -> None:
    with pytest.raises(ValueError, match="no GPU 9"):
        fakegpu.set_gpu(9, host.state, base=1)


def test_title_is_the_process_name(host: Host) -> None:
    (pid,) = host.hold("--title", "sglang::scheduler_TP3")
    with open("/proc/{}/comm".format(pid)) as comm, open("/proc/{}/cmdline".format(pid)) as cmdline:
        assert comm.read() == "sglang::schedul\n"
        assert cmdline.read().rstrip("\0") == "sglang::scheduler_TP3"
    assert os.path.basename(os.readlink("/proc/{}/exe".format(pid))).startswith("python")
    assert host.nvml("result = n.nvmlSystemGetProcessName({})".format(pid)) == "sglang::scheduler_TP3"


def test_open_device_nodes(host: Host) -> None:
    (pid,) = host.hold("--gpu", 0, "--mib", 10, "--attach", 1)
    names = {os.path.basename(os.readlink("/proc/{}/fd/{}".format(pid, fd))) for fd in os.listdir("/proc/%d/fd" % pid)}
    assert {"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"} <= names
    assert host.listed(1) == []  # open, but not used


def test_attached_only(host: Host) -> None:
    (pid,) = host.hold("--gpu", 1, "--mib", 1, "--attach", 0)
    assert (host.listed(0), host.listed(1)) == ([], [[pid, 1]])


def test_monitor(host: Host) -> None:
    (pid,) = host.hold("--monitor", "--gpu", 0, "--mib", 1)
    open_nodes = {os.path.basename(os.readlink(link)) for link in Path("/proc/%d/fd" % pid).iterdir()}
    assert {"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"} <= open_nodes
    maps = Path("/proc/%d/maps" % pid).read_text()
    assert "libnvidia-ml.so" in maps and "/nvidia0" not in maps


def test_waits_as_a_vfork_does(host: Host) -> None:
    (pid,) = host.hold("--vfork")

    def state() -> str:
        return Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[0]

    wait_for(lambda: state() == "D")
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: state() == "Z")


def test_ignores_term(host: Host) -> None:
    (pid,) = host.hold("--ignore-term")
    os.kill(pid, signal.SIGTERM)
    time.sleep(0.2)
    assert host.listed() == [[pid, 1000]]


def test_leaves_slowly(host: Host) -> None:
    (pid,) = host.hold("--slow-exit", "0.4")
    began = time.monotonic()
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: host.used() == 0)
    assert time.monotonic() - began > 0.4


def test_python_3_8_is_enough(host: Host) -> None:
    for file in [*SIMULATOR.glob("*.py"), *SIMULATOR.glob("sglang_standin/**/*.py")]:
        ast.parse(file.read_text(), feature_version=(3, 8))
