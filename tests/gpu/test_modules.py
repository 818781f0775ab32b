# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPU modules against the real driver and real CUDA processes."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

FREE = {"timeout": 30, "stable_for": 0.5, "interval": 0.01}


@pytest.fixture(autouse=True)
def idle_first(idle):
    """No test starts on a GPU that somebody else uses."""


def by_pid(rows):
    return {row["pid"]: row for row in rows}


def test_an_idle_gpu_is_free_by_memory_v2(idle):
    for gpu in idle["gpus"]:
        assert (gpu["verdict"], gpu["memory_source"]) == ("free", "nvml_v2")
        # What version 1 calls used on an idle card is the driver's own reserve.
        assert gpu["memory_used_mib"] <= 16 < gpu["memory_reserved_mib"]
        assert gpu["recovery_action"] in ("none", None)
    assert idle["holders"] == []


@pytest.mark.parametrize("form", ["index", "uuid", "prefix", "pci", "short pci"])
def test_a_gpu_is_selected_in_every_form(module, idle, form):
    gpu = idle["gpus"][0]
    selector = {
        "index": str(gpu["index"]),
        "uuid": gpu["uuid"],
        "prefix": gpu["uuid"][:12],
        "pci": gpu["pci_bus_id"],
        "short pci": gpu["pci_bus_id"][-7:],
    }[form]
    assert [row["uuid"] for row in module("gpu_info", gpus=[selector])["gpus"]] == [gpu["uuid"]]


def test_a_gpu_that_is_not_there_is_refused(module, idle):
    result = module("gpu_reclaim", gpus=["99"])
    assert result["failed"] and "99" in result["msg"] and idle["gpus"][0]["uuid"] in result["msg"]


def test_a_wrong_count_is_refused(module, idle):
    result = module("gpu_wait_free", expected_count=len(idle["gpus"]) + 1)
    assert result["failed"] and "expected_count" in result["msg"]


def test_a_holder_is_found_and_ended_and_the_gpu_proven_free(module, hold, note):
    holder = hold(20, visible="0")
    info = module("gpu_info", gpus=["0"])
    row = by_pid(info["holders"])[holder.pid]
    assert info["gpus"][0]["verdict"] == "busy"
    assert row["memory_mib"] > 20 * 1024 and row["evidence"] == ["nvml_compute"]

    planned = module("gpu_reclaim", check=True, gpus=["0"])
    assert by_pid(planned["processes"])[holder.pid]["action"] == "would_terminate"
    assert holder.process.poll() is None

    began = time.monotonic()
    done = module("gpu_reclaim", gpus=["0"], grace=10)
    assert done["changed"] and by_pid(done["processes"])[holder.pid]["action"] == "terminated"
    free = module("gpu_wait_free", gpus=["0"], **FREE)
    assert not free.get("failed") and free["gpus"][0]["memory_used_mib"] <= 256
    note(
        "SIGTERM of one holder of 20 GiB",
        module_seconds=done["elapsed"],
        both_modules_seconds=round(time.monotonic() - began, 2),
    )
    again = module("gpu_reclaim", gpus=["0"])
    assert not again["changed"] and again["processes"] == []


def test_one_that_ignores_sigterm_is_killed_after_the_grace(module, hold, note):
    holder = hold(4, code="signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    done = module("gpu_reclaim", gpus=["0"], grace=1)
    row = by_pid(done["processes"])[holder.pid]
    assert (row["action"], row["signals"]) == ("killed", ["SIGTERM", "SIGKILL"])
    assert not module("gpu_wait_free", gpus=["0"], **FREE).get("failed")
    note("SIGKILL after a grace of 1 s", module_seconds=done["elapsed"])


def test_a_stopped_process_is_killed(module, hold):
    holder = hold(2)
    os.kill(holder.pid, signal.SIGSTOP)
    time.sleep(0.5)  # until it has stopped, a SIGTERM would still be served first
    done = module("gpu_reclaim", gpus=["0"], grace=0.5)
    assert by_pid(done["processes"])[holder.pid]["action"] == "killed"


def test_a_dead_pid_in_the_list_is_never_signalled_and_never_free(module, hold, note):
    code = (
        "child = os.fork()\n"
        "if child:\n"
        "    time.sleep(0.5)\n"
        "    print('held', child, flush=True)\n"
        "    os._exit(0)\n"
    )
    # The first line is the child's own, written after the fork; the second is the parent's.
    holder = hold(2, code=code, ready=2)
    holder.process.wait()
    child = next(pid for pid in holder.pids if pid != holder.pid)
    result = module("gpu_reclaim", gpus=["0"], grace=1, kill_timeout=2)
    row = by_pid(result["processes"])[holder.pid]
    assert row["action"] == "unresolved" and row["signals"] == []
    os.kill(child, 0)  # alive
    busy = module("gpu_wait_free", gpus=["0"], timeout=1, stable_for=0.2)
    assert busy["failed"] and str(holder.pid) in busy["msg"]
    note("killed parent whose child inherited the descriptors", listed=holder.pid, child=child, msg=busy["msg"])


def test_a_timeout_names_the_gpu_and_its_holder(module, hold):
    holder = hold(1)
    result = module("gpu_wait_free", gpus=["0"], timeout=1.5, stable_for=0.2)
    assert result["failed"]
    for word in ("GPU 0", str(holder.pid), "MiB"):
        assert word in result["msg"]


def test_the_wait_ends_when_the_memory_is_back(module, hold, note):
    holder = hold(100)
    killed_at = []

    def kill():
        killed_at.append(time.time())
        os.kill(holder.pid, signal.SIGKILL)

    timer = threading.Timer(3, kill)
    timer.start()
    result = module("gpu_wait_free", gpus=["0"], timeout=30, stable_for=0.5, interval=0.01)
    timer.join()
    assert not result.get("failed") and result["samples"] > 2
    note(
        "100 GiB back after SIGKILL",
        free_after=result["free_after"],
        samples=result["samples"],
        changes=len(result["timeline"]),
    )


@pytest.mark.two_gpus
def test_a_process_that_only_opened_a_gpu_is_not_its_user(module, hold):
    # Without CUDA_VISIBLE_DEVICES CUDA opens every device, also those it computes nothing on.
    holder = hold(2, gpus=(0,))
    assert os.path.exists("/dev/nvidia1")
    result = module("gpu_reclaim", gpus=["1"], grace=1)
    assert result["processes"] == [] and not result["changed"]
    assert holder.process.poll() is None
    assert not module("gpu_wait_free", gpus=["1"], **FREE).get("failed")


@pytest.mark.two_gpus
def test_reclaim_stays_inside_the_selection(module, hold):
    kept, ended = hold(2, visible="1"), hold(2, visible="0")
    result = module("gpu_reclaim", gpus=["0"], grace=5)
    assert list(by_pid(result["processes"])) == [ended.pid]
    assert kept.process.poll() is None


@pytest.mark.two_gpus
def test_one_process_on_two_gpus_is_one_row(module, hold):
    holder = hold(3, gpus=(0, 1))
    rows = [row for row in module("gpu_info")["holders"] if row["pid"] == holder.pid]
    assert len(rows) == 1 and len(rows[0]["gpus"]) == 2
