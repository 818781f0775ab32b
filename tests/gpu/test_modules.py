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
    assert row["memory_mib"] > 20 * 1024 and row["evidence"] == ["fd", "map", "nvml_compute"]
    assert info["uninspected"] == 0

    planned = module("gpu_reclaim", check=True, gpus=["0"])
    assert [row["pid"] for row in planned["processes"]] == [holder.pid]
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


FORK = "child = os.fork()\nif child:\n    time.sleep(0.5)\n    print('held', child, flush=True)\n    os._exit(0)\n"


def test_the_child_of_a_dead_listed_pid_is_ended_and_the_number_never_signalled(module, hold, note):
    # The first line is the child's own, written after the fork; the second is the parent's.  Without
    # CUDA_VISIBLE_DEVICES the child has every GPU open, and only kinship says whose memory it keeps.
    holder = hold(2, code=FORK, ready=2)
    holder.process.wait()
    child = next(pid for pid in holder.pids if pid != holder.pid)
    info = module("gpu_info", gpus=["0"])
    rows = by_pid(info["holders"])
    assert rows[holder.pid]["user"] is None and "nvml_compute" in rows[holder.pid]["evidence"]
    assert rows[child]["gpus"] == [info["gpus"][0]["uuid"]] and "fd" in rows[child]["evidence"]
    result = module("gpu_reclaim", gpus=["0"], grace=2, kill_timeout=10)
    actions = {row["pid"]: (row["action"], row["signals"]) for row in result["processes"]}
    assert not result.get("failed"), result["msg"]
    assert actions[holder.pid] == ("vanished", [])
    assert actions[child][0] in ("terminated", "killed")
    assert not module("gpu_wait_free", gpus=["0"], **FREE).get("failed")
    note("forked child of a dead listed PID", actions=actions, seconds=result["elapsed"])


def test_a_leader_that_has_ended_is_a_holder_while_a_thread_lives(module, hold, note):
    code = (
        "import ctypes, threading\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "print('held', os.getpid(), flush=True)\n"
        "ctypes.CDLL(None).syscall(60, 0)\n"
    )
    holder = hold(2, visible="0", code=code)
    time.sleep(0.5)
    info = module("gpu_info", gpus=["0"])
    row = by_pid(info["holders"])[holder.pid]
    assert row["state"] == "Z" and row["exe"] and "fd" in row["evidence"]
    result = module("gpu_reclaim", gpus=["0"], grace=1, kill_timeout=10)
    assert not result.get("failed"), result["msg"]
    assert by_pid(result["processes"])[holder.pid]["action"] in ("terminated", "killed")
    assert not module("gpu_wait_free", gpus=["0"], **FREE).get("failed")
    note("leader ended, thread alive", evidence=row["evidence"], seconds=result["elapsed"])


def test_a_killed_process_that_nobody_reaped_holds_nothing(module, hold):
    holder = hold(2, visible="0")
    os.kill(holder.pid, signal.SIGKILL)
    time.sleep(1)  # it stays a zombie: only the end of the test waits for it
    assert not module("gpu_wait_free", gpus=["0"], **FREE).get("failed")
    assert module("gpu_reclaim", gpus=["0"])["processes"] == []


def test_a_device_that_was_only_opened_makes_no_gpu_busy(module, start):
    bare = start("import time; f = open('/dev/nvidia0'); print('held', flush=True); time.sleep(600)")
    info = module("gpu_info", gpus=["0"])
    row = by_pid(info["holders"])[bare]
    assert row["gpus"] == [] and row["attached"] == [info["gpus"][0]["uuid"]] and row["evidence"] == ["fd"]
    assert info["gpus"][0]["verdict"] == "free"
    result = module("gpu_reclaim", gpus=["0"], grace=2)
    assert by_pid(result["processes"])[bare]["action"] == "terminated"


def test_a_monitor_is_left_alone(module, start, note):
    code = (
        "import time, pynvml as n; n.nvmlInit()\n"
        "h = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]\n"
        "print('held', flush=True)\n"
        "while True: n.nvmlDeviceGetUtilizationRates(h[0]); time.sleep(0.2)\n"
    )
    monitor = start(code)
    result = module("gpu_reclaim", grace=2)
    row = by_pid(result["processes"])[monitor]
    assert row["action"] == "skipped" and "monitor" in row["why"], row
    assert not result["changed"] and not module("gpu_wait_free", **FREE).get("failed")
    note("NVML client", evidence=row["evidence"], attached=len(row["attached"]))
    assert by_pid(module("gpu_reclaim", attached="any", grace=2)["processes"])[monitor]["action"] == "terminated"


def test_both_readers_say_the_same(module, hold, note):
    holder = hold(3, visible="0")
    nvml, smi = (module("gpu_info", reader=reader) for reader in ("nvml", "nvidia_smi"))
    assert (nvml["reader"], smi["reader"]) == ("nvml", "nvidia_smi")
    for ours, theirs in zip(nvml["gpus"], smi["gpus"]):
        assert abs(ours.pop("memory_used_mib") - theirs.pop("memory_used_mib")) <= 1
        assert (ours.pop("memory_source"), theirs.pop("memory_source")) == ("nvml_v2", "nvidia_smi")
        ours.pop("message"), theirs.pop("message")
        assert ours == theirs
    ours, theirs = by_pid(nvml["holders"])[holder.pid], by_pid(smi["holders"])[holder.pid]
    for row in (ours, theirs):
        row.pop("per_gpu_mib")
    assert abs(ours.pop("memory_mib") - theirs.pop("memory_mib")) <= 1 and ours == theirs
    result = module("gpu_wait_free", reader="nvidia_smi", timeout=3, stable_for=0.5, interval=0.2)
    assert result["failed"] and str(holder.pid) in result["msg"]
    ended = module("gpu_reclaim", reader="nvidia_smi", gpus=["0"], grace=5)
    assert not ended.get("failed") and ended["changed"]
    note("through nvidia-smi", reclaim_seconds=ended["elapsed"])


def test_inside_a_pid_namespace_memory_of_nobody_says_where_to_look(module, hold, note):
    hold(2, visible="0")
    result = module("gpu_info", gpus=["0"], prefix=["unshare", "--pid", "--fork", "--mount-proc"])
    gpu = result["gpus"][0]
    assert (gpu["verdict"], gpu["reason"]) == ("busy", "unattributed")
    assert "PID namespace" in gpu["message"]
    note("inside a PID namespace", message=gpu["message"])


def test_the_importer_of_shared_memory_keeps_it_and_is_ended(module, start, note):
    exporter = start(IPC, count=2)
    parent, child = exporter
    os.kill(parent, signal.SIGKILL)
    time.sleep(1)
    info = module("gpu_info", gpus=["0"])
    assert by_pid(info["holders"])[child]["memory_mib"] > 4096  # the exporter's memory is now the importer's
    result = module("gpu_reclaim", gpus=["0"], grace=2, kill_timeout=10)
    assert by_pid(result["processes"])[child]["action"] in ("terminated", "killed")
    assert not module("gpu_wait_free", gpus=["0"], **FREE).get("failed")
    note("CUDA IPC importer after its exporter's SIGKILL", mib=by_pid(info["holders"])[child]["memory_mib"])


IPC = """
import os, time, torch, torch.multiprocessing as mp
def importer(queue, said):
    tensor = queue.get()
    tensor.sum().item()
    said.put(os.getpid())
    time.sleep(600)
if __name__ == "__main__":
    mp.set_start_method("spawn")
    queue, said = mp.Queue(), mp.Queue()
    child = mp.Process(target=importer, args=(queue, said), daemon=False)
    child.start()
    tensor = torch.empty(4 << 30, dtype=torch.uint8, device="cuda:0").fill_(1)
    queue.put(tensor)
    pid = said.get()
    print("held", os.getpid(), flush=True)
    print("held", pid, flush=True)
    time.sleep(600)
"""


def test_a_parent_that_starts_its_child_again_is_named_and_nobody_dies_in_circles(module, start, note):
    loop = (
        "import os, subprocess, sys, time\n"
        "code = 'import torch, time; x = torch.zeros(1 << 30, dtype=torch.uint8, device=\"cuda:0\"); '"
        " 'print(1, flush=True); time.sleep(600)'\n"
        "for _ in range(2):\n"
        "    child = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE)\n"
        "    child.stdout.readline()\n"
        "    print('held', child.pid, flush=True)\n"
        "    child.wait()\n"
        "time.sleep(600)\n"
    )
    loop_pid, child = start(loop, own=True)
    result = module("gpu_reclaim", gpus=["0"], grace=2)
    note("parent that forks again", reason=result.get("reason"), msg=result.get("msg"), seconds=result["elapsed"])
    rows = by_pid(result["processes"])
    assert rows[child]["action"] in ("terminated", "killed")
    # The next child needs seconds to reach CUDA: seen either by reclaim or by the wait that follows.
    wait = module("gpu_wait_free", gpus=["0"], timeout=15, stable_for=13)
    assert result.get("failed") or wait.get("failed")
    assert result.get("failed") or any(str(loop_pid) in str(warning) for warning in result["warnings"])
    assert os.path.exists("/proc/%d" % loop_pid)


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
def test_a_process_that_only_opened_a_gpu_is_not_its_user(module, hold, note):
    # Without CUDA_VISIBLE_DEVICES CUDA opens every device, also those it computes nothing on.
    holder = hold(2, gpus=(0,))
    everything = module("gpu_info")
    row = by_pid(everything["holders"])[holder.pid]
    first, second = (gpu["uuid"] for gpu in everything["gpus"][:2])
    assert row["gpus"] == [first] and second in row["attached"]
    result = module("gpu_reclaim", gpus=["1"], grace=1)
    assert by_pid(result["processes"])[holder.pid]["action"] == "skipped" and not result["changed"]
    assert first in by_pid(result["processes"])[holder.pid]["attached"]
    assert holder.process.poll() is None
    free = module("gpu_wait_free", gpus=["1"], **FREE)
    assert not free.get("failed")
    note("GPU 1, opened by a process on GPU 0", used_mib=free["gpus"][0]["memory_used_mib"])


@pytest.mark.two_gpus
def test_with_cuda_visible_devices_no_other_gpu_is_touched(module, hold):
    holder = hold(2, visible="0")
    # PyTorch asks NVML about all GPUs, which opens them; what is mapped tells where it computes.
    result = module("gpu_reclaim", gpus=["1"], grace=1)
    assert [row["action"] for row in result["processes"]] in ([], ["skipped"])
    assert not result["changed"] and holder.process.poll() is None


@pytest.mark.two_gpus
def test_the_other_reader_sees_two_gpus_in_the_same_order(module):
    uuids = [[gpu["uuid"] for gpu in module("gpu_info", reader=r)["gpus"]] for r in ("nvml", "nvidia_smi")]
    assert uuids[0] == uuids[1] and len(uuids[0]) >= 2


@pytest.mark.two_gpus
def test_reclaim_stays_inside_the_selection(module, hold):
    kept, ended = hold(2, visible="1"), hold(2, visible="0")
    result = module("gpu_reclaim", gpus=["0"], grace=5)
    actions = {row["pid"]: row["action"] for row in result["processes"]}
    assert actions[ended.pid] == "terminated" and actions.get(kept.pid, "skipped") == "skipped"
    assert kept.process.poll() is None


@pytest.mark.two_gpus
def test_one_process_on_two_gpus_is_one_row(module, hold):
    holder = hold(3, gpus=(0, 1))
    rows = [row for row in module("gpu_info")["holders"] if row["pid"] == holder.pid]
    assert len(rows) == 1 and len(rows[0]["gpus"]) == 2
    # It is ended for the one that is selected, and the other one is free with it.
    assert module("gpu_reclaim", gpus=["1"], grace=5)["changed"]
    assert not module("gpu_wait_free", **FREE).get("failed")


@pytest.mark.mps
def test_mps_is_ended_through_its_control_daemon(module, mps, hold, note):
    client = hold(2, visible="0", environment=mps.environment)
    info = module("gpu_info", gpus=["0"])
    rows = by_pid(info["holders"])
    servers = [row for row in info["holders"] if row["exe"].endswith("nvidia-cuda-mps-server")]
    note("MPS", rows=[(row["name"], row["evidence"], row["memory_mib"], row["protected"]) for row in rows.values()])
    assert len(servers) == 1 and servers[0]["protected"]
    kept = module("gpu_reclaim", gpus=["0"], grace=3, kill_timeout=10)
    assert by_pid(kept["processes"])[client.pid]["action"] in ("terminated", "killed")
    assert by_pid(kept["processes"])[servers[0]["pid"]]["action"] == "protected"
    planned = module("gpu_reclaim", check=True, gpus=["0"], stop_mps=True)
    assert by_pid(planned["processes"])[servers[0]["pid"]]["action"] == "would_stop_service"
    result = module("gpu_reclaim", gpus=["0"], stop_mps=True)
    assert not result.get("failed"), result["msg"]
    assert by_pid(result["processes"])[servers[0]["pid"]]["action"] == "stopped_service"
    assert not os.path.exists("/proc/%d" % servers[0]["pid"])
    assert not module("gpu_wait_free", gpus=["0"], **FREE).get("failed")
    note("MPS ended", seconds=result["elapsed"], client=by_pid(kept["processes"])[client.pid]["why"])
