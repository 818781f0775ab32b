# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A driver that is sick: what cannot be known is said, nothing waits for ever, and nobody is ended on a guess."""

from __future__ import annotations

import time

import pytest

from .gpu_processes import living
from .results import BUSY, FREE, actions, gpu, warnings
from .waiting import is_alive

MODULES = pytest.mark.parametrize("name", ["gpu_info", "gpu_reclaim", "gpu_wait_free"])
HANGS = ("nvmlDeviceGetHandleByIndex*", "nvmlDeviceGetMemoryInfo*", "nvmlDeviceGet*RunningProcesses*")


# ---- calls that never return


@pytest.mark.case(46)
@pytest.mark.parametrize("function", HANGS)
def test_a_gpu_that_hangs_is_named_and_the_others_are_read(gpu_host, function):
    held = gpu_host.hold(1, 9000)
    gpu_host.fakegpu("hang", function, 3, "forever")
    began = time.monotonic()
    info = gpu_host.module("gpu_info", nvml_timeout=0.5)
    assert time.monotonic() - began < 8
    assert [row["verdict"] for row in info["gpus"]] == ["free", "busy", "free", "unknown"]
    assert gpu(info, 3)["reason"] == "hung" and gpu(info, 3)["message"]
    assert [row["pid"] for row in info["holders"]] == [held["pid"]]
    # The hung one is outside this selection, and touched by nobody.
    result = gpu_host.module("gpu_reclaim", gpus=["1"], grace=5, nvml_timeout=0.5)
    assert actions(result) == {held["pid"]: "terminated"}


@pytest.mark.case(46)
def test_while_a_selected_gpu_hangs_nobody_is_ended(gpu_host):
    held = gpu_host.hold(0, 9000)
    gpu_host.fakegpu("hang", "nvmlDeviceGetMemoryInfo*", 3, "forever")
    result = gpu_host.module("gpu_reclaim", nvml_timeout=0.5)
    assert result["failed"] and result["reason"] == "unknown" and "GPU 3" in result["msg"]
    assert is_alive(held["pid"])
    waited = gpu_host.module("gpu_wait_free", gpus=["3"], nvml_timeout=0.3, **BUSY)
    assert waited["failed"] and "GPU 3" in waited["msg"]


@pytest.mark.case(46, 75)
@MODULES
def test_a_driver_that_hangs_at_once_leaves_nobody_behind(gpu_host, name):
    # The reader hangs, ignores SIGTERM and has the module's output open; that must not keep the task.
    gpu_host.fakegpu("hang", "nvmlInit*", "*", "forever")
    began = time.monotonic()
    result = gpu_host.module(name, nvml_timeout=0.5)
    assert time.monotonic() - began < 10
    assert result["failed"] and result["reason"]
    assert living(gpu_host.folder, "run_module.py") == []


@pytest.mark.case(75)
def test_a_hang_in_the_middle_of_a_wait_ends_at_the_deadline(gpu_host):
    gpu_host.hold(0, 9000)
    gpu_host.fakegpu("hang", "nvmlDeviceGetMemoryInfo*", 0, "forever", "--after", 5)
    began = time.monotonic()
    result = gpu_host.module("gpu_wait_free", gpus=["0"], timeout=1.5, stable_for=0.2, interval=0.02, nvml_timeout=0.4)
    assert time.monotonic() - began < 10
    assert result["failed"] and gpu(result, 0)["reason"] == "hung"
    assert living(gpu_host.folder, "run_module.py") == []


@pytest.mark.case(75)
def test_a_holder_that_ignores_sigterm_and_has_our_output_open_does_not_keep_the_task(gpu_host):
    held = gpu_host.hold(0, 9000, "--ignore-term", "--fork-child")
    began = time.monotonic()
    result = gpu_host.module("gpu_reclaim", gpus=["0"], grace=0.3, kill_timeout=5)
    assert time.monotonic() - began < 8
    assert actions(result)[held["pid"]] == "killed"


@pytest.mark.case(47)
def test_an_nvidia_smi_that_is_stuck_is_given_up_and_does_not_pile_up(gpu_host, tmp_path):
    (tmp_path / "bin").mkdir()
    stuck = tmp_path / "bin" / "nvidia-smi"
    started = tmp_path / "started"
    stuck.write_text("#!/bin/sh\ntrap '' TERM\nsleep 300 &\necho $$ $! >> %s\nwait\nsleep 300\n" % started)
    stuck.chmod(0o755)
    path = {"PATH": "%s:/usr/bin:/bin" % stuck.parent}
    began = time.monotonic()
    result = gpu_host.module("gpu_reclaim", reader="nvidia_smi", nvml_timeout=0.5, variables=path)
    assert time.monotonic() - began < 10
    assert result["failed"] and "nvidia-smi" in result["msg"] and result["reason"]
    pids = [int(pid) for pid in started.read_text().split()]
    assert pids and not any(is_alive(pid) for pid in pids)


# ---- calls that fail


@pytest.mark.case(50)
@pytest.mark.parametrize("function", HANGS)
def test_a_lost_gpu_is_lost_and_the_others_are_done(gpu_host, function):
    held = gpu_host.hold(1, 9000)
    gpu_host.fakegpu("fail", function, 2, 15)
    info = gpu_host.module("gpu_info")
    assert [row["verdict"] for row in info["gpus"]] == ["free", "busy", "unknown", "free"]
    assert gpu(info, 2)["reason"] == "lost" and gpu(info, 2)["message"]
    began = time.monotonic()
    waited = gpu_host.module("gpu_wait_free", gpus=["2"], timeout=30, stable_for=0.2)
    # It does not come back by waiting.
    assert waited["failed"] and "GPU 2" in waited["msg"] and time.monotonic() - began < 8
    assert actions(gpu_host.module("gpu_reclaim", gpus=["1"], grace=5)) == {held["pid"]: "terminated"}


@pytest.mark.case(51)
@MODULES
def test_a_driver_and_a_library_that_do_not_match_are_not_free(gpu_host, name):
    gpu_host.fakegpu("set", "init", 18)
    result = gpu_host.module(name)
    assert result["failed"] and result["reason"] == "library_mismatch"
    assert "reboot" in result["msg"].lower() and "reload" in result["msg"].lower()
    assert "gpus" not in result or all(row["verdict"] == "unknown" for row in result["gpus"])


@pytest.mark.case(48)
def test_a_list_that_an_old_driver_lacks_is_not_an_empty_list(gpu_host):
    gpu_host.hold(0, 9000)
    gpu_host.fakegpu("missing", "nvmlDeviceGetComputeRunningProcesses*")
    assert gpu(gpu_host.module("gpu_info"), 0)["verdict"] != "free"
    assert gpu(gpu_host.module("gpu_info"), 1)["verdict"] == "unknown"


@pytest.mark.case(48)
def test_pids_that_cannot_be_are_not_believed(gpu_host):
    gpu_host.fakegpu("proc", 0, 0, 500)
    gpu_host.fakegpu("proc", 1, 4294967295, 500)
    info = gpu_host.module("gpu_info")
    assert [gpu(info, index)["reason"] for index in (0, 1)] == ["implausible_pid"] * 2
    assert gpu_host.module("gpu_reclaim", gpus=["0", "1"])["failed"]


# ---- what the driver asks for


@pytest.mark.case(50)
@pytest.mark.parametrize(("action", "name"), [(2, "node_reboot"), (3, "drain_p2p")])
def test_where_the_driver_wants_more_than_an_end_nobody_is_ended(gpu_host, action, name):
    held = gpu_host.hold(0, 9000)
    gpu_host.fakegpu("set", "gpu", 0, "recovery=%d" % action)
    result = gpu_host.module("gpu_reclaim", gpus=["0"], grace=5)
    assert result["failed"] and result["reason"] == "recovery_action" and result["changed"] is False
    assert gpu(result, 0)["recovery_action"] == name and is_alive(held["pid"])
    anyway = gpu_host.module("gpu_reclaim", gpus=["0"], grace=5, ignore_recovery_action=True)
    assert actions(anyway) == {held["pid"]: "terminated"}


@pytest.mark.case(50)
def test_a_gpu_that_wants_a_reset_is_emptied_and_is_not_free(gpu_host):
    held = gpu_host.hold(0, 9000)
    gpu_host.fakegpu("set", "gpu", 0, "recovery=1")
    result = gpu_host.module("gpu_reclaim", gpus=["0"], grace=5)
    assert actions(result) == {held["pid"]: "terminated"} and result["changed"]
    assert "reset" in warnings(result) and gpu(result, 0)["verdict"] == "unknown"
    waited = gpu_host.module("gpu_wait_free", gpus=["0"], **BUSY)
    assert waited["failed"] and gpu(waited, 0)["reason"] == "recovery_action"
    assert gpu(waited, 0)["verdict"] == "unknown"
    assert not gpu_host.module("gpu_wait_free", gpus=["0"], ignore_recovery_action=True, **FREE).get("failed")


def test_a_part_without_memory_figures_is_emptied_and_never_called_free(gpu_host):
    held = gpu_host.hold(0, 9000)
    gpu_host.fakegpu("fail", "nvmlDeviceGetMemoryInfo*", 0, 3)
    info = gpu_host.module("gpu_info", gpus=["0"])
    assert (gpu(info, 0)["verdict"], gpu(info, 0)["reason"]) == ("unknown", "not_supported")
    assert gpu(info, 0)["memory_used_mib"] is None and [row["pid"] for row in info["holders"]] == [held["pid"]]
    result = gpu_host.module("gpu_reclaim", gpus=["0"], grace=5)
    assert actions(result) == {held["pid"]: "terminated"} and not result.get("failed")
    waited = gpu_host.module("gpu_wait_free", gpus=["0"], **BUSY)
    assert waited["failed"] and "GB10" in waited["msg"]
