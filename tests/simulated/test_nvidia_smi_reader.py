# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The same simulated host through NVML and through nvidia-smi: both must say the same."""

from __future__ import annotations

import json
import shlex
import sys

import pytest

from .conftest import SIMULATOR
from .results import FREE, actions
from .waiting import is_alive, wait_until

FAKE = str(SIMULATOR / "fake_nvidia_smi.py")
ALL = (0, 1, 2, 3)
TIMEOUT = 5.0
# The same figure from either source.
SAME_SOURCE = {"nvidia_smi": "nvml_v2", "nvidia_smi_v1": "nvml_v1"}


@pytest.fixture
def smi_host(gpu_host, tmp_path):
    """A simulated host that has nvidia-smi, and device nodes of its own: a scan sees only its processes."""
    host = gpu_host
    folder = tmp_path / "bin"
    folder.mkdir()
    tool = folder / "nvidia-smi"
    tool.write_text('#!/bin/sh\nexec %s %s "$@"\n' % (shlex.quote(sys.executable), shlex.quote(FAKE)))
    tool.chmod(0o755)
    host.environment["PATH"] = "%s:%s" % (folder, host.environment["PATH"])
    return host


def configure(host, *lines):
    """Add lines to the simulated host's configuration."""
    path = host.folder / "config"
    path.write_text(path.read_text() + "".join(line + "\n" for line in lines))


def read(host, reader, indices=ALL, timeout=TIMEOUT, times=1):
    """What a session with this reader says."""
    wanted = {"reader": reader, "indices": list(indices), "timeout": timeout, "times": times}
    output, errors = host.modules.run("read_gpus", host.environment, wanted)
    assert output, errors
    return json.loads(output)


def comparable(reading):
    """A reading without what the source alone explains: its name, and the words of a failure."""
    reading = json.loads(json.dumps(reading))
    for memory in [reading["memory"], *(device["memory"] for device in reading["mig_devices"])]:
        if memory:
            memory["source"] = SAME_SOURCE.get(memory["source"], memory["source"])
    if reading["failure"]:
        reading["failure"] = [reading["failure"]["code"], reading["failure"]["permanent"]]
    return reading


def both(host, indices=ALL, **options):
    """The readings, which both readers agree on."""
    nvml, smi = (read(host, reader, indices, **options) for reader in ("nvml", "nvidia_smi"))
    assert [comparable(r) for r in smi["readings"]] == [comparable(r) for r in nvml["readings"]]
    assert [comparable(r) for r in smi["identified"]] == [comparable(r) for r in nvml["identified"]]
    for part in ("driver_version", "count"):
        assert smi["system"][part] == nvml["system"][part]
    return smi["readings"]


def codes(readings):
    return [reading["failure"]["code"] if reading["failure"] else "" for reading in readings]


# ---- the sessions


def test_an_idle_host(smi_host):
    readings = both(smi_host)
    assert codes(readings) == [""] * 4
    assert [r["memory"]["used_mib"] for r in readings] == [0] * 4
    assert {r["memory"]["source"] for r in readings} == {"nvidia_smi"}


def test_holders_of_every_kind(smi_host):
    held = smi_host.hold(1, 30000)
    for kind, gpu in (("G", 2), ("M", 3)):
        smi_host.hold(gpu, 700, "--kind", kind)
    smi_host.fakegpu("proc", 1, held["pid"], 30000, "G")  # in two lists
    smi_host.fakegpu("proc", 1, held["pid"] + 1, -1)  # the driver does not say how much
    readings = both(smi_host)
    kinds = [(p["pid"], p["kind"], p["memory_mib"]) for p in readings[1]["processes"]]
    assert (held["pid"], "compute", 30000) in kinds
    assert (held["pid"], "graphics", 30000) in kinds
    assert (held["pid"] + 1, "compute", None) in kinds
    assert [p["kind"] for p in readings[3]["processes"]] == ["mps"]


def test_only_some_gpus_in_any_order(smi_host):
    smi_host.hold(2, 900)
    assert [r["index"] for r in both(smi_host, [3, 2])] == [3, 2]
    assert [r["memory"]["used_mib"] for r in both(smi_host, [2])] == [900]


def test_properties(smi_host):
    for gpu, change in enumerate(("recovery=1", "recovery=2", "recovery=4", "persistence=0")):
        smi_host.fakegpu("set", "gpu", gpu, change)
    readings = both(smi_host)
    assert [r["recovery_action"] for r in readings] == ["reset", "node_reboot", "drain_and_reset", "none"]
    assert [r["persistence_mode"] for r in readings] == ["enabled"] * 3 + ["disabled"]


def test_minor_numbers_that_are_not_indices(smi_host):
    for gpu in ALL:
        smi_host.fakegpu("set", "gpu", gpu, "minor=%d" % (7 - gpu))
    assert [r["identity"]["minor"] for r in both(smi_host)] == [7, 6, 5, 4]


def test_mig_instances(smi_host):
    smi_host.fakegpu("set", "gpu", 1, "mig=1")
    configure(
        smi_host,
        "mig 1 0 MIG-11111111-1111 16384 15 7 0",
        "mig 1 2 MIG-22222222-2222 16384 1200 9 0",
        "proc 1 4711 1180 C 9 0",
    )
    reading = both(smi_host)[1]
    uuids = [device["uuid"] for device in reading["mig_devices"]]
    assert uuids == ["MIG-11111111-1111", "MIG-22222222-2222"]
    assert [(p["pid"], p["gpu_instance"], p["compute_instance"]) for p in reading["processes"]] == [(4711, 9, 0)]


def test_mig_without_the_right_to_see_the_whole_gpu(smi_host):
    smi_host.fakegpu("set", "gpu", 1, "mig=1")
    configure(smi_host, "mig 1 0 MIG-11111111-1111 16384 15 7 0", "mig 1 1 MIG-22222222-2222 16384 1200 9 0")
    for part in ("total", "reserved", "used", "free"):
        configure(smi_host, "smi set 1 fb_memory_usage/%s [Insufficient Permissions]" % part)
    reading = read(smi_host, "nvidia_smi")["readings"][1]
    assert reading["memory"] == {
        "total_mib": 32768,
        "used_mib": 1215,
        "reserved_mib": None,
        "source": "mig_instances",
    }


def test_a_driver_without_memory_version_2(smi_host):
    smi_host.fakegpu("missing", "nvmlDeviceGetMemoryInfo_v2")
    readings = both(smi_host)
    assert [(r["memory"]["used_mib"], r["memory"]["reserved_mib"]) for r in readings] == [(615, None)] * 4
    assert {r["memory"]["source"] for r in readings} == {"nvidia_smi_v1"}


def test_memory_that_is_not_available(smi_host):
    smi_host.fakegpu("fail", "nvmlDeviceGetMemoryInfo*", 2, 3)
    readings = both(smi_host)
    assert codes(readings) == ["", "", "not_supported", ""]
    assert readings[2]["memory"] is None


@pytest.mark.parametrize(("code", "reason"), [(15, "lost"), (999, "unknown_error"), (4, "no_permission")])
def test_a_gpu_that_cannot_be_opened(smi_host, code, reason):
    smi_host.fakegpu("fail", "nvmlDeviceGetHandleBy*", 1, code)
    readings = both(smi_host)
    assert codes(readings) == ["", reason, "", ""]
    assert [bool(r["identity"]) for r in readings] == [True, False, True, True]


def test_the_first_gpu_cannot_be_opened(smi_host):
    smi_host.fakegpu("fail", "nvmlDeviceGetHandleBy*", 0, 15)
    assert codes(both(smi_host)) == ["lost", "", "", ""]


def test_a_gpu_whose_every_value_is_an_error(smi_host):
    smi_host.fakegpu("fail", "nvmlDeviceGet*", 3, 15)
    assert codes(both(smi_host)) == ["", "", "", "lost"]


def test_a_process_list_that_cannot_be_read(smi_host):
    smi_host.fakegpu("fail", "nvmlDeviceGetComputeRunningProcesses*", 0, 999)
    readings = both(smi_host)
    assert codes(readings) == ["unknown_error", "", "", ""]


def test_a_gpu_that_hangs(smi_host):
    asked = {}
    for reader in ("nvml", "nvidia_smi"):
        smi_host.fakegpu("clear")
        smi_host.fakegpu("hang", "nvmlDeviceGetMemoryInfo*", 1, "forever", "--times", 99)
        got = read(smi_host, reader, timeout=3, times=3)
        assert codes(got["readings"]) == ["", "hung", "", ""]
        asked[reader] = (smi_host.folder / "calls" / "hang.nvmlDeviceGetMemoryInfo*.1").stat().st_size
    # With the others, and then alone; after that it is left alone.
    assert asked == {"nvml": 1, "nvidia_smi": 2}


def test_a_gpu_that_was_not_asked_for_may_hang(smi_host):
    configure(smi_host, "smi hang 1 forever")
    got = read(smi_host, "nvidia_smi", [0, 2], timeout=8)
    assert codes(got["readings"]) == ["", ""]
    assert got["seconds"][0] < 8


def test_all_hang(smi_host):
    configure(smi_host, "smi hang * forever")
    assert read(smi_host, "nvidia_smi", timeout=1)["failure"]["code"] == "hung"


def test_an_impossible_pid(smi_host):
    smi_host.fakegpu("proc", 0, 4294967295, 5)
    assert codes(both(smi_host)) == ["implausible_pid", "", "", ""]


@pytest.mark.parametrize(
    ("code", "reason"), [(9, "driver_not_loaded"), (18, "library_mismatch"), (999, "unknown_error")]
)
def test_a_driver_that_cannot_be_used(smi_host, code, reason):
    smi_host.fakegpu("set", "init", code)
    failures = [read(smi_host, reader)["failure"] for reader in ("nvml", "nvidia_smi")]
    assert [failure["code"] for failure in failures] == [reason] * 2


def test_an_answer_that_breaks_off(smi_host):
    configure(smi_host, "smi cut * 600")
    assert read(smi_host, "nvidia_smi")["failure"]["code"] == "nvidia_smi_output"


def test_warnings_before_the_answer(smi_host):
    configure(smi_host, "smi say * WARNING: infoROM is corrupted at gpu 0000:08:00.0")
    assert codes(both(smi_host)) == [""] * 4


def test_no_nvidia_smi(host):
    host.environment["PATH"] = "/nonexistent"
    failure = read(host, "nvidia_smi")["failure"]
    assert (failure["code"], failure["permanent"]) == ("nvidia_smi_missing", True)


# ---- the modules


def test_gpu_info_says_the_same(smi_host):
    held = smi_host.hold(1, 30000)
    nvml, smi = (smi_host.module("gpu_info", reader=reader) for reader in ("nvml", "nvidia_smi"))
    assert (nvml["reader"], smi["reader"]) == ("nvml", "nvidia_smi")
    for gpu in smi["gpus"]:
        gpu["memory_source"] = SAME_SOURCE[gpu["memory_source"]]
    assert smi["gpus"] == nvml["gpus"]
    assert smi["holders"] == nvml["holders"]
    assert [holder["pid"] for holder in smi["holders"]] == [held["pid"]]


def test_memory_is_freed_through_nvidia_smi(smi_host):
    held, other = smi_host.hold(1, 30000), smi_host.hold(2, 500)
    result = smi_host.module("gpu_reclaim", gpus=["1"], grace=5, reader="nvidia_smi")
    assert actions(result) == {held["pid"]: "terminated"}
    waited = smi_host.module("gpu_wait_free", gpus=["1"], reader="nvidia_smi", **{**FREE, "stable_for": 0.5})
    assert waited["gpus"][0]["verdict"] == "free", waited
    assert is_alive(other["pid"])


def test_nobody_is_ended_while_a_selected_gpu_hangs(smi_host):
    held = smi_host.hold(0, 500)
    configure(smi_host, "smi hang 1 forever")
    result = smi_host.module("gpu_reclaim", gpus=["0", "1"], nvml_timeout=3, reader="nvidia_smi")
    assert result["failed"] and result["changed"] is False
    assert is_alive(held["pid"])


def test_a_wait_sees_memory_that_comes_back(smi_host):
    held = smi_host.hold(0, 500)
    held["process"].kill()
    wait_until(lambda: not is_alive(held["pid"]))
    waited = smi_host.module("gpu_wait_free", reader="nvidia_smi", **{**FREE, "stable_for": 0.5})
    assert {gpu["verdict"] for gpu in waited["gpus"]} == {"free"}
