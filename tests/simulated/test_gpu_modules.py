# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPU modules on real processes: one test for each state that public bug reports tell of."""

from __future__ import annotations

import os
import pathlib
import pwd
import shutil
import subprocess
import sys
import threading
import time

import pytest

from .conftest import FAKEGPU
from .waiting import is_alive, wait_until

FREE = {"timeout": 10, "stable_for": 0.3, "interval": 0.02}


def actions(result):
    return {row["pid"]: row["action"] for row in result["processes"]}


def gpu(result, index):
    return next(row for row in result["gpus"] if row["index"] == index)


# ---- finding and ending


def test_an_idle_host_is_free(host):
    info = host.module("gpu_info", expected_count=4)
    assert [(row["verdict"], row["memory_used_mib"], row["memory_source"]) for row in info["gpus"]] == [
        ("free", 0, "nvml_v2")
    ] * 4
    # The driver's own reserve is not somebody's memory.
    assert gpu(info, 0)["memory_reserved_mib"] == 615
    assert info["holders"] == [] and info["changed"] is False


@pytest.mark.parametrize("title", ["sglang::scheduler_TP0", "VLLM::EngineCore", "a ) name"])
def test_a_holder_is_found_whatever_its_name_and_ended(host, title):
    held = host.hold(1, 30000, "--title", title)
    result = host.module("gpu_reclaim", gpus=["1"], grace=5)
    assert result["changed"] and actions(result) == {held["pid"]: "terminated"}
    assert not is_alive(held["pid"])
    again = host.module("gpu_reclaim", gpus=["1"], grace=5)
    assert again["changed"] is False and again["processes"] == []


def test_an_orphan_in_a_session_of_its_own_is_found(host, tmp_path):
    # Its parent starts it in a session of its own, and is gone.
    start = "import subprocess, sys; print(subprocess.Popen(sys.argv[1:], start_new_session=True).pid)"
    hold = [sys.executable, FAKEGPU, "hold", "--gpu", "0", "--mib", "20000"]
    with open(tmp_path / "orphan", "w+", encoding="utf-8") as said:
        subprocess.run([sys.executable, "-c", start, *hold], env=host.environment, stdout=said, check=True)
        wait_until(lambda: "ready" in (tmp_path / "orphan").read_text())
        pid = next(int(line) for line in (tmp_path / "orphan").read_text().splitlines() if line.isdigit())
    host.others.append(pid)
    assert actions(host.module("gpu_reclaim", grace=5)) == {pid: "terminated"}


def test_one_that_ignores_sigterm_is_killed(host):
    held = host.hold(0, 5000, "--ignore-term")
    result = host.module("gpu_reclaim", grace=0.3)
    (row,) = result["processes"]
    assert (row["action"], row["signals"]) == ("killed", ["SIGTERM", "SIGKILL"])
    assert not is_alive(held["pid"])


def test_check_mode_plans_what_then_happens(host):
    first, second = host.hold(0, 5000), host.hold(2, 700)
    planned = host.module("gpu_reclaim", check=True, gpus=["0", "2"])
    assert actions(planned) == {first["pid"]: "would_terminate", second["pid"]: "would_terminate"}
    assert planned["changed"] is True
    assert is_alive(first["pid"]) and is_alive(second["pid"])
    done = host.module("gpu_reclaim", gpus=["0", "2"])
    assert sorted(actions(done)) == sorted(actions(planned))


def test_two_of_the_same_name_only_the_selected_gpu_s_one_ends(host):
    ended = host.hold(0, 9000, "--title", "sglang::scheduler_TP0")
    kept = host.hold(1, 9000, "--title", "sglang::scheduler_TP0")
    result = host.module("gpu_reclaim", gpus=["0"])
    assert actions(result) == {ended["pid"]: "terminated"}
    assert is_alive(kept["pid"])


def test_a_dead_pid_in_the_list_is_never_signalled(host):
    said = host.hold(0, 4000, "--fork-child")
    said["process"].kill()
    said["process"].wait()
    result = host.module("gpu_reclaim", gpus=["0"], grace=0.2, kill_timeout=0.5)
    (row,) = [row for row in result["processes"] if row["pid"] == said["pid"]]
    assert (row["action"], row["signals"]) == ("unresolved", [])
    assert is_alive(said["child"])
    busy = host.module("gpu_wait_free", gpus=["0"], timeout=0.6, stable_for=0.1)
    assert busy["failed"] and gpu(busy, 0)["verdict"] == "busy"
    os.kill(said["child"], 9)
    assert not host.module("gpu_wait_free", gpus=["0"], **FREE).get("failed")


def test_the_connection_s_own_parents_are_spared(host):
    # A shell that holds the GPU and runs the module, as an operator's own session might.
    script = (
        "import json, subprocess, sys; sys.path.insert(0, sys.argv[1]); import fakegpu\n"
        "held = fakegpu.allocate(0, 3000)\n"
        "out = subprocess.run([sys.executable, sys.argv[2], 'gpu_reclaim'], stdout=subprocess.PIPE,\n"
        "    input=json.dumps({'grace': 0.2, 'kill_timeout': 1, '_ansible_remote_tmp': '/tmp'}).encode()).stdout\n"
        "sys.stdout.write(out.decode())\n"
    )
    runner = pathlib.Path(__file__).with_name("run_module.py")
    simulator = runner.parents[1] / "simulator"
    done = subprocess.run(
        [sys.executable, "-c", script, str(simulator), str(runner)],
        env=host.environment,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout  # it lives
    assert '"action": "protected"' in done.stdout


def test_the_driver_s_daemons_are_known_by_their_executable_not_their_name(host, tmp_path):
    daemon = tmp_path / "nv-hostengine"
    shutil.copy(os.path.realpath(sys.executable), daemon)
    environment = dict(host.environment, PYTHONHOME=sys.base_prefix)
    host.environment, before = environment, host.environment
    real = host.hold(0, 20, executable=daemon)
    host.environment = before
    impostor = host.hold(0, 500, "--title", "nv-hostengine")
    result = host.module("gpu_reclaim", grace=5)
    assert actions(result) == {real["pid"]: "protected", impostor["pid"]: "terminated"}
    assert is_alive(real["pid"])


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to start a process of another user")
def test_only_the_given_users_processes_end(host):
    nobody = pwd.getpwnam("nobody")
    foreign, own = host.hold(0, 640, user=nobody.pw_uid), host.hold(0, 9000)
    result = host.module("gpu_reclaim", users=["root"])
    assert actions(result) == {foreign["pid"]: "skipped", own["pid"]: "terminated"}
    assert [row["pid"] for row in result["remaining"]] == [foreign["pid"]]
    busy = host.module("gpu_wait_free", timeout=1, stable_for=0.2)
    assert busy["failed"] and "nobody" in busy["msg"]
    allowed = host.module("gpu_wait_free", allow_users=["nobody"], allow_mib=512, **FREE)
    assert not allowed.get("failed")
    too_little = host.module("gpu_wait_free", allow_users=["nobody"], allow_mib=100, timeout=1, stable_for=0.2)
    assert too_little["failed"]


def test_a_user_that_does_not_exist_is_an_error_and_nothing_ends(host):
    held = host.hold(0, 500)
    result = host.module("gpu_reclaim", users=["no-such-user"])
    assert result["failed"] and "no-such-user" in result["msg"]
    assert is_alive(held["pid"])


# ---- waiting


def test_memory_that_comes_back_late_is_waited_for(host):
    host.fakegpu("set", "release_delay", 1.2)
    held = host.hold(0, 90000)
    host.module("gpu_reclaim", gpus=["0"])
    assert not is_alive(held["pid"])
    result = host.module("gpu_wait_free", gpus=["0"], **FREE)
    assert not result.get("failed")
    assert result["elapsed"] >= 0.3 and result["samples"] > 3


def test_a_holder_that_comes_during_the_window_starts_it_again(host):
    came = []
    timer = threading.Timer(1.2, lambda: came.append(host.hold(0, 3000)))
    timer.start()
    result = host.module("gpu_wait_free", gpus=["0"], timeout=5, stable_for=2.5, interval=0.02)
    timer.join()
    assert came and result["failed"] and str(came[0]["pid"]) in result["msg"]


def test_a_timeout_names_the_one_gpu_and_its_holder(host):
    held = host.hold(3, 7777)
    began = time.monotonic()
    result = host.module("gpu_wait_free", timeout=1, stable_for=0.2)
    assert time.monotonic() - began < 10
    assert result["failed"] and result["changed"] is False
    assert "GPU 3" in result["msg"] and str(held["pid"]) in result["msg"] and "7777" in result["msg"]
    assert "GPU 0" not in result["msg"]
    assert [row["verdict"] for row in result["gpus"]] == ["free", "free", "free", "busy"]


def test_memory_of_nobody_is_unattributed_and_not_free(host):
    host.fakegpu("set", "gpu", 0, "base=70000")
    result = host.module("gpu_wait_free", gpus=["0"], timeout=0.8, stable_for=0.2)
    assert result["failed"] and gpu(result, 0)["reason"] == "unattributed"


def test_check_mode_takes_one_look_and_does_not_fail(host):
    host.hold(0, 7777)
    began = time.monotonic()
    result = host.module("gpu_wait_free", check=True, timeout=60)
    assert time.monotonic() - began < 10
    assert not result.get("failed") and gpu(result, 0)["verdict"] == "busy"


def test_cuda_visible_devices_of_the_module_changes_nothing(host):
    host.hold(0, 5000)
    result = host.module("gpu_info", gpus=["0"], variables={"CUDA_VISIBLE_DEVICES": "3"})
    assert gpu(result, 0)["verdict"] == "busy"


# ---- bad input and a sick driver


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("gpu_reclaim", {"gpus": ["9"]}, ["gpus", "9"]),
        ("gpu_reclaim", {"gpus": ["GPU-none"]}, ["gpus", "GPU-none"]),
        ("gpu_reclaim", {"expected_count": 8}, ["expected_count", "8", "4"]),
        ("gpu_reclaim", {"grace": -1}, ["grace", "-1"]),
        ("gpu_reclaim", {"kill_timeout": 0}, ["kill_timeout", "0"]),
        ("gpu_wait_free", {"timeout": -5}, ["timeout", "-5"]),
        ("gpu_wait_free", {"stable_for": -1}, ["stable_for", "-1"]),
        ("gpu_wait_free", {"max_used_mib": -1}, ["max_used_mib", "-1"]),
        ("gpu_info", {"nvml_timeout": 0}, ["nvml_timeout", "0"]),
    ],
)
def test_bad_input_names_option_and_value_and_ends_nothing(host, name, arguments, words):
    held = host.hold(0, 5000)
    result = host.module(name, **arguments)
    assert result["failed"]
    for word in words:
        assert word in result["msg"]
    assert is_alive(held["pid"])


def test_a_gpu_that_hangs_is_named_and_the_others_are_read(host):
    host.fakegpu("hang", "nvmlDeviceGetMemoryInfo_v2", 3, "forever")
    began = time.monotonic()
    result = host.module("gpu_info", nvml_timeout=0.7)
    assert time.monotonic() - began < 10
    assert [row["verdict"] for row in result["gpus"]] == ["free", "free", "free", "unknown"]
    assert gpu(result, 3)["reason"] == "hung"
    waited = host.module("gpu_wait_free", nvml_timeout=0.5, timeout=1.5, stable_for=0.2)
    assert waited["failed"] and "GPU 3" in waited["msg"]


def test_nothing_is_ended_while_a_selected_gpu_is_unknown(host):
    held = host.hold(0, 5000)
    host.fakegpu("fail", "nvmlDeviceGetMemoryInfo_v2", 1, 15)
    result = host.module("gpu_reclaim")
    assert result["failed"] and "GPU 1" in result["msg"]
    assert is_alive(held["pid"])
    # A GPU outside the selection is nobody's business.
    assert actions(host.module("gpu_reclaim", gpus=["0"])) == {held["pid"]: "terminated"}


@pytest.mark.parametrize(
    ("function", "code", "reason"),
    [
        ("nvmlDeviceGetMemoryInfo_v2", 15, "lost"),
        ("nvmlDeviceGetHandleByIndex_v2", 15, "lost"),
        ("nvmlDeviceGetMemoryInfo_v2", 4, "no_permission"),
        ("nvmlDeviceGetMemoryInfo_v2", 16, "reset_required"),
        ("nvmlDeviceGetComputeRunningProcesses_v3", 999, None),
    ],
)
def test_what_the_driver_refuses_is_unknown_with_its_reason(host, function, code, reason):
    host.fakegpu("fail", function, 2, code)
    result = host.module("gpu_info")
    row = gpu(result, 2)
    assert row["verdict"] == "unknown" and row["message"]
    if reason:
        assert row["reason"] == reason
    assert [other["verdict"] for other in result["gpus"] if other["index"] != 2] == ["free"] * 3


@pytest.mark.parametrize(("code", "word"), [(18, "reboot"), (9, "driver"), (4, "root")])
def test_a_driver_that_cannot_be_asked_fails_with_the_remedy(host, code, word):
    host.fakegpu("set", "init", code)
    for name in ("gpu_info", "gpu_reclaim", "gpu_wait_free"):
        result = host.module(name)
        assert result["failed"] and word in result["msg"].lower()


def test_memory_v1_is_said_where_v2_is_missing(host):
    host.fakegpu("fail", "nvmlDeviceGetMemoryInfo_v2", "*", 13)
    result = host.module("gpu_info")
    assert gpu(result, 0)["memory_source"] == "nvml_v1"
