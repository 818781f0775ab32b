# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a GPU is free, and how long it takes to be sure of it."""

from __future__ import annotations

import threading
import time
from itertools import groupby

import pytest

from .gpu_processes import kill
from .results import BUSY, FREE, gpu, uuid


def later(*steps):
    """Do things at certain seconds from now: pairs of time and action.  Returns the running thread."""
    began = time.monotonic()

    def run():
        for at, action in steps:
            time.sleep(max(0.0, began + at - time.monotonic()))
            action()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def base(host, index, mib):
    """Memory that belongs to no process."""
    return lambda: host.fakegpu("set", "gpu", index, "base=%d" % mib)


# ---- memory that comes back late


@pytest.mark.case(10, 25)
@pytest.mark.parametrize("delay", [0.8, 1.5])
def test_memory_that_returns_after_the_process_is_waited_for(gpu_host, delay):
    gpu_host.fakegpu("set", "release_delay", delay)
    held = gpu_host.hold(0, 90000)
    killed = []
    # Late enough for the module to have begun, however slow the machine is.
    ending = threading.Timer(1.5, lambda: killed.append((kill(held["pid"]), time.monotonic())[1]))
    ending.start()
    result = gpu_host.module("gpu_wait_free", gpus=["0"], timeout=30, stable_for=0.3, interval=0.02)
    ending.join()
    took = time.monotonic() - killed[0]
    assert not result.get("failed"), result["msg"]
    # Free at the release, proven a window later, and told at once.
    assert delay + 0.2 <= took < delay + 3
    # Each is rounded to milliseconds by itself.
    assert round(result["elapsed"] - result["free_after"], 3) >= 0.299
    # What the figures do while it is busy is the driver's business; it never looked free in between.
    assert [verdict for verdict, _changes in groupby(c["verdict"] for c in result["timeline"])] == ["busy", "free"]


@pytest.mark.case(17, 77)
def test_memory_that_falls_in_steps_is_followed_to_its_end(gpu_host):
    base(gpu_host, 0, 90000)()
    steps = [(0.5, 60000), (0.9, 30000), (1.3, 2000), (1.7, 3)]
    falling = later(*[(at, base(gpu_host, 0, mib)) for at, mib in steps])
    result = gpu_host.module("gpu_wait_free", gpus=["0"], timeout=30, stable_for=0.3, interval=0.02)
    falling.join()
    assert not result.get("failed"), result["msg"]
    # Each look asked anew.
    seen = [change["used_mib"] for change in result["timeline"]]
    assert seen == sorted(seen, reverse=True) and len(seen) >= 3 and seen[-1] == 3


@pytest.mark.case(17)
def test_a_gpu_that_is_free_for_less_than_the_window_is_not_free(gpu_host):
    flapping = later(*[(0.2 * n, base(gpu_host, 0, 5000 if n % 2 else 0)) for n in range(1, 11)])
    result = gpu_host.module("gpu_wait_free", gpus=["0"], timeout=1.2, stable_for=0.6, interval=0.02)
    flapping.join()
    assert result["failed"] and result["reason"] == "timeout"
    assert {change["verdict"] for change in result["timeline"]} == {"free", "busy"}


@pytest.mark.case(17)
def test_no_single_look_makes_a_gpu_free(gpu_host):
    result = gpu_host.module("gpu_wait_free", timeout=10, stable_for=0, interval=0.02)
    assert not result.get("failed") and result["samples"] >= 3


# ---- whose memory it is


@pytest.mark.case(11)
def test_seven_of_eight_free_names_the_eighth(gpu_host):
    gpu_host.fakegpu("setup", "--gpus", 8, "--release-delay", 0.1)
    gpu_host.fakegpu("nodes")
    held = gpu_host.hold(6, 7777)
    result = gpu_host.module("gpu_wait_free", expected_count=8, **BUSY)
    assert result["failed"] and result["changed"] is False
    assert [row["verdict"] for row in result["gpus"]] == ["free"] * 6 + ["busy", "free"]
    assert "GPU 6" in result["msg"] and str(held["pid"]) in result["msg"] and "7777" in result["msg"]
    assert not any("GPU %d" % index in result["msg"] for index in (0, 1, 2, 3, 4, 5, 7))
    missing = gpu_host.module("gpu_wait_free", expected_count=9, **FREE)
    assert missing["failed"] and "9" in missing["msg"] and "8" in missing["msg"]


@pytest.mark.case(38)
def test_memory_of_nobody_is_unattributed_with_its_usual_causes(gpu_host):
    base(gpu_host, 0, 9000)()
    result = gpu_host.module("gpu_wait_free", gpus=["0"], **BUSY)
    assert result["failed"] and result["holders"] == []
    row = gpu(result, 0)
    assert (row["verdict"], row["reason"], row["memory_used_mib"]) == ("busy", "unattributed", 9000)
    assert "reset" in row["message"]


@pytest.mark.case(62)
@pytest.mark.parametrize("utilization", [0, 100])
def test_utilisation_decides_nothing(gpu_host, utilization):
    gpu_host.fakegpu("set", "gpu", 0, "utilization=0", "base=%d" % (143771 * 92 // 100))
    gpu_host.fakegpu("set", "gpu", 1, "utilization=%d" % utilization)
    info = gpu_host.module("gpu_info")
    assert gpu(info, 0)["verdict"] == "busy" and gpu(info, 1)["verdict"] == "free"


@pytest.mark.case(27)
def test_the_driver_s_own_memory_is_nobody_s(gpu_host):
    gpu_host.fakegpu("set", "gpu", 0, "reserved=600", "base=4")
    row = gpu(gpu_host.module("gpu_info"), 0)
    assert (row["memory_used_mib"], row["memory_reserved_mib"], row["verdict"]) == (4, 600, "free")
    assert row["memory_source"] == "nvml_v2"
    # A driver without the second version of the question does not tell the two apart, and the module says so.
    gpu_host.fakegpu("fail", "nvmlDeviceGetMemoryInfo_v2", "*", 13)
    row = gpu(gpu_host.module("gpu_info"), 0)
    assert (row["memory_used_mib"], row["memory_reserved_mib"], row["verdict"]) == (604, None, "busy")
    assert row["memory_source"] == "nvml_v1" and "reserve" in row["message"]


@pytest.mark.case(60)
def test_a_small_holder_is_a_holder_however_little_it_holds(gpu_host):
    held = gpu_host.hold(0, 1)
    result = gpu_host.module("gpu_wait_free", gpus=["0"], **BUSY)
    assert result["failed"] and str(held["pid"]) in result["msg"]


# ---- thresholds


@pytest.mark.case(17, 38)
@pytest.mark.parametrize(
    ("limit", "free"),
    [
        ({}, False),
        ({"max_used_mib": 999}, False),
        ({"max_used_mib": 1000}, True),
        ({"max_used_fraction": 0.006}, False),
        ({"max_used_fraction": 0.007}, True),
    ],
    ids=str,
)
def test_the_threshold_is_the_users(gpu_host, limit, free):
    base(gpu_host, 0, 1000)()
    assert (gpu(gpu_host.module("gpu_info", **limit), 0)["verdict"] == "free") is free
    waited = gpu_host.module("gpu_wait_free", gpus=["0"], **(FREE if free else BUSY), **limit)
    assert bool(waited.get("failed")) is not free


@pytest.mark.case(38)
def test_a_recorded_baseline_is_added_to_the_threshold(gpu_host):
    base(gpu_host, 0, 700)()
    gpu_host.hold(2, 100)
    info = gpu_host.module("gpu_info")
    # Of GPUs that somebody is on there is no baseline.
    assert info["baseline"] == {uuid(info, 0): 700, uuid(info, 1): 0, uuid(info, 3): 0}
    known = {"baseline": info["baseline"], "max_used_mib": 64}
    assert not gpu_host.module("gpu_wait_free", gpus=["0", "1"], **known, **FREE).get("failed")
    base(gpu_host, 0, 765)()
    assert gpu_host.module("gpu_wait_free", gpus=["0"], **known, **BUSY)["failed"]


@pytest.mark.case(11, 17)
@pytest.mark.parametrize(
    ("limit", "word"),
    [
        ({"max_used_fraction": 1.5}, "max_used_fraction"),
        ({"max_used_fraction": -0.1}, "max_used_fraction"),
        ({"baseline": {"GPU-x": -5}}, "baseline"),
        ({"baseline": {"GPU-x": "many"}}, "baseline"),
        ({"interval": 0}, "interval"),
    ],
    ids=str,
)
def test_impossible_thresholds_are_refused_at_once(gpu_host, limit, word):
    began = time.monotonic()
    result = gpu_host.module("gpu_wait_free", timeout=60, **limit)
    assert result["failed"] and word in result["msg"] and time.monotonic() - began < 5
