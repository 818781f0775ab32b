# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Resetting GPUs: what is in the way is found first, what was stopped comes back, and nothing is tried for ever."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest

from .conftest import SIMULATOR
from .reset_host import ResetHost
from .results import gpu, warnings
from .waiting import is_alive, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root resets GPUs")

DAEMONS = ("nvidia-persistenced.service", "nvidia-dcgm.service", "dcgm-exporter.service", "nvsm-core.service")


@pytest.fixture
def resets(gpu_host, tmp_path):
    """A host with four Hopper GPUs that nobody uses."""
    return ResetHost(gpu_host, tmp_path)


def blockers(result):
    return [blocker["code"] for blocker in result["blockers"]]


# ---- a reset that is needed


def test_only_what_the_driver_wants_reset_is_reset_and_proven(resets):
    for unit in DAEMONS:
        resets.unit(unit)
    resets.unit("sshd.service")
    resets.set(2, "recovery=1", "persistence=1")
    resets.host.fakegpu("fail", "nvmlDeviceGetMemoryInfo*", 2, 16)
    planned = resets.host.module("gpu_reset", check=True)
    line = "nvidia-smi --gpu-reset -i %s" % resets.uuids[2]
    assert planned["changed"] and planned["command"] == line
    assert [step["action"] for step in planned["plan"]] == [
        *("stop_unit", "stop_unit", "stop_unit", "persistence_off", "stop_unit_if_still_open", "reset"),
        *("start_unit", "start_unit", "start_unit", "start_unit", "persistence_on", "prove"),
    ]
    assert [row["action"] for row in planned["decisions"]] == ["leave", "leave", "reset", "leave"]
    assert planned["decisions"][2]["architecture"] == "hopper"
    assert resets.changes == [] and resets.smi_changes == [] and not (resets.host.folder / "audit").exists()

    result = resets.reset(expected_count=4)
    assert not result.get("failed") and result["changed"]
    assert resets.changes == [
        "stop nvsm-core.service",
        "stop dcgm-exporter.service",
        "stop nvidia-dcgm.service",
        "start nvidia-dcgm.service",
        "start dcgm-exporter.service",
        "start nvsm-core.service",
    ]
    assert resets.smi_changes == ["-pm 0 -i <2>", "--gpu-reset -i <2>", "-pm 1 -i <2>"]
    assert {unit: resets.state(unit) for unit in DAEMONS} == dict.fromkeys(DAEMONS, "active")
    after = gpu(result, 2)
    assert (after["verdict"], after["recovery_action"], after["persistence_mode"]) == ("free", "none", "enabled")
    assert [row["outcome"] for row in result["resets"]] == ["done"] and result["health"] == []
    assert "recovery" in result["diff"]["before_header"] and "reset (wanted)" in result["diff"]["before"]
    actions = [(event["action"], event["outcome"]) for event in resets.audited()]
    assert actions.count(("reset", "done")) == 1
    assert [action for action, _outcome in actions] == [
        *["stop"] * 3,
        "driver_setting",
        "reset",
        *["start"] * 3,
        "driver_setting",
    ]

    again = resets.reset()
    assert not again["changed"] and again["command"] == "" and again["plan"] == []


def test_all_of_a_selection_are_in_one_command_by_uuid(resets):
    result = resets.reset(when="always", gpus=["3", "1"])
    assert result["changed"] and resets.smi_changes == ["--gpu-reset -i <1>,<3>"]
    assert resets.changes == []


# ---- what is in the way


@pytest.mark.parametrize("attached", [False, True])
def test_a_process_on_the_gpu_is_named_and_nothing_is_touched(resets, attached):
    resets.unit("nvidia-dcgm.service")
    options = ("--attach", 1) if attached else ()
    held = resets.host.hold(None if attached else 1, 900, *options, user=65534)
    result = resets.reset(when="always", gpus=["1"])
    assert result["failed"] and result["reason"] == "busy" and "PID %d" % held["pid"] in result["msg"]
    assert "nobody" in result["msg"] and ("has GPU 1 open" if attached else "uses GPU 1") in result["msg"]
    assert result["msg"].startswith("Nothing was touched")
    assert resets.changes == [] and resets.smi_changes == [] and is_alive(held["pid"])
    # On another GPU it is in nobody's way.
    assert not resets.reset(when="always", gpus=["0"]).get("failed")


def test_a_server_of_ours_is_named_by_its_instance(resets):
    held = resets.host.hold(1, 900, env={"INFEROPS_SGLANG_INSTANCE": "main"})
    result = resets.reset(when="always", gpus=["1"])
    assert result["reason"] == "server" and "server main holds GPU 1" in result["msg"]
    assert [(row["pid"], row["instance"]) for row in result["blockers"]] == [(held["pid"], "main")]


@pytest.mark.case(65)
def test_a_module_that_holds_the_gpus_is_named_before_and_after_a_try(resets):
    resets.drm(uses=2, users="nvidia_modeset")
    resets.rule("drm", "*")
    result = resets.reset(when="always", gpus=["0"])
    assert result["reason"] == "nvidia_drm" and "modeset on" in result["msg"] and "nvidia_modeset" in result["msg"]
    assert resets.smi_changes == []
    # Tried all the same: no process, and "In use by another client".
    resets.unit("nvidia-dcgm.service")
    result = resets.reset(when="always", gpus=["0"], nvidia_drm="ignore")
    assert result["reason"] == "in_use" and "nvidia_drm" in result["msg"]
    assert [row["rc"] for row in result["resets"]] == [255, 255]
    assert resets.state("nvidia-dcgm.service") == "active"


@pytest.mark.case(65)
def test_without_mode_setting_the_module_is_in_nobodys_way(resets):
    resets.drm(modeset="N")
    result = resets.reset(when="always", gpus=["0"])
    assert not result.get("failed") and "nvidia_drm" in warnings(result)


@pytest.mark.case(66)
@pytest.mark.parametrize("kind", ["passthrough", "vgpu"])
def test_in_a_guest_it_is_refused_and_mig_is_left_alone(resets, kind):
    resets.set(0, "virtualization=%d" % ["", "passthrough", "vgpu"].index(kind), "mig=1")
    result = resets.reset(when="always", gpus=["0"])
    assert result["failed"] and "Not Supported" in result["msg"] and "MIG" in result["msg"]
    assert set(blockers(result)) == {"guest", "mig"} and resets.smi_changes == []
    assert gpu(result, 0)["mig_mode"] == "enabled"
    # Tried all the same, it fails at once, and once.
    resets.set(0, "mig=0")
    result = resets.reset(when="always", gpus=["0"], in_guest=True)
    assert result["reason"] == "not_supported" and [row["rc"] for row in result["resets"]] == [3]


@pytest.mark.case(67)
def test_a_reset_that_fails_twice_is_not_tried_again(resets):
    resets.unit("nvidia-dcgm.service")
    resets.set(1, "persistence=1", "recovery=1")
    resets.rule("reset", 1, "fail")
    result = resets.reset()
    assert result["failed"] and result["reason"] == "reset_failed" and not result["changed"]
    assert [(row["attempt"], row["rc"], row["done"]) for row in result["resets"]] == [(1, 255, []), (2, 255, [])]
    assert "nvidia-bug-report.sh" in result["msg"] and result["reboot_needed"] == [resets.uuids[1]]
    assert resets.smi_changes == ["-pm 0 -i <1>", *["--gpu-reset -i <1>"] * 2, "-pm 1 -i <1>"]
    assert resets.state("nvidia-dcgm.service") == "active"


def test_the_second_try_is_about_those_that_are_left(resets):
    resets.rule("reset", 1, 1, "busy")
    result = resets.reset(when="always", gpus=["0", "1"])
    assert not result.get("failed")
    assert resets.smi_changes == ["--gpu-reset -i <0>,<1>", "--gpu-reset -i <1>"]


@pytest.mark.case(68)
def test_a_fabric_manager_is_not_restarted_without_all_of_its_gpus(resets):
    resets.unit("nvidia-fabricmanager.service")
    for index in range(4):
        resets.set(index, "links=switch,switch")
    result = resets.reset(when="always", gpus=["0"], fabric_manager="stop")
    assert result["reason"] == "fabric_manager" and "NVLS" in result["msg"] and resets.changes == []
    assert not resets.reset(when="always", gpus=["0"]).get("failed") and resets.changes == []
    assert not resets.reset(when="always", fabric_manager="stop").get("failed")
    assert resets.changes == ["stop nvidia-fabricmanager.service", "start nvidia-fabricmanager.service"]


def test_gpus_that_belong_together_are_reset_together(resets):
    buses = [row["pci_bus_id"] for row in resets.host.module("gpu_info")["gpus"]]
    for index, other in ((0, 1), (1, 0), (2, 3), (3, 2)):
        resets.set(index, "capability=70", "links=%s" % buses[other])
    result = resets.reset(when="always", gpus=["0"])
    assert result["reason"] == "nvlink_peers" and "GPU 1" in result["msg"] and "GPU 2" not in result["msg"]
    result = resets.reset(when="always", gpus=["0"], include_peers=True)
    assert not result.get("failed") and resets.smi_changes == ["--gpu-reset -i <0>,<1>"]


def test_links_that_cannot_be_read_are_no_reason_to_guess(resets):
    for index in range(4):
        resets.set(index, "capability=80", "links=switch")
    # nvidia-smi -q does not tell where links lead.
    result = resets.reset(when="always", gpus=["0"], reader="nvidia_smi")
    assert result["reason"] == "nvlink_unknown" and resets.smi_changes == []
    assert not resets.reset(when="always", reader="nvidia_smi").get("failed")
    # The library knows, and who is missing is said.
    assert resets.reset(when="always", gpus=["0"])["reason"] == "nvlink_peers"


@pytest.mark.parametrize(
    ("action", "reason", "key"),
    [(2, "reboot_needed", "reboot_needed"), (3, "drain_needed", "drain_needed"), (5, "imex_domain", None)],
)
def test_what_a_reset_does_not_help_is_said_and_not_tried(resets, action, reason, key):
    resets.set(3, "recovery=%d" % action)
    result = resets.reset()
    assert result["failed"] and result["reason"] == reason and resets.smi_changes == []
    if key:
        assert result[key] == [resets.uuids[3]]


# ---- after it


def test_a_gpu_that_then_wants_a_reboot_is_not_well(resets):
    resets.set(1, "recovery=1")
    resets.rule("reset", 1, "raise", 2)
    result = resets.reset()
    assert result["failed"] and result["reason"] == "unhealthy" and result["reboot_needed"] == [resets.uuids[1]]
    assert result["changed"] and "rebooted" in result["msg"]
    assert [row["outcome"] for row in result["resets"]] == ["done"]


def test_a_gpu_that_does_not_come_back_is_not_well(resets):
    resets.rule("reset", 1, "lost")
    result = resets.reset(when="always", gpus=["1"])
    assert result["reason"] == "unhealthy" and "GPU 1" in result["msg"]


def test_a_reset_that_hangs_is_given_up_and_everything_comes_back(resets):
    resets.unit("nvidia-dcgm.service")
    resets.set(1, "persistence=1")
    resets.rule("reset", 1, "hang", "forever")
    began = time.monotonic()
    result = resets.reset(when="always", gpus=["1"], reset_timeout=0.7)
    assert time.monotonic() - began < 15
    assert result["reason"] == "hung" and len(result["resets"]) == 1 and result["resets"][0]["rc"] is None
    assert resets.state("nvidia-dcgm.service") == "active" and resets.smi_changes[-1] == "-pm 1 -i <1>"
    assert [row["ok"] for row in result["restored"]] == [True, True]


def test_what_cannot_be_put_back_is_told_and_the_rest_is(resets):
    for unit in DAEMONS:
        resets.unit(unit)
    resets.refuse("start nvidia-dcgm.service")
    result = resets.reset(when="always", gpus=["0"])
    assert result["failed"] and result["reason"] == "not_restored"
    assert "systemctl start nvidia-dcgm.service" in result["msg"] and result["changed"]
    assert resets.state("nvsm-core.service") == resets.state("dcgm-exporter.service") == "active"


def test_a_stop_that_fails_ends_it_and_what_was_stopped_comes_back(resets):
    for unit in DAEMONS:
        resets.unit(unit)
    resets.refuse("stop nvidia-dcgm.service")
    result = resets.reset(when="always", gpus=["0"])
    assert result["reason"] == "not_prepared" and "nvidia-dcgm.service" in result["msg"]
    assert {unit: resets.state(unit) for unit in DAEMONS} == dict.fromkeys(DAEMONS, "active")
    assert resets.smi_changes == []


def test_a_task_that_is_told_to_end_puts_everything_back(resets):
    resets.unit("nvidia-dcgm.service")
    resets.set(0, "persistence=1")
    resets.rule("reset", 0, "hang", 1.5)
    process = resets.start_reset(when="always", gpus=["0"])
    wait_until(lambda: "--gpu-reset -i <0>" in resets.smi_changes)
    process.send_signal(signal.SIGTERM)
    result = json.loads(process.stdout.read().strip().splitlines()[-1])
    assert process.wait(20) != 0
    # The reset was not cut off in the middle.
    assert result["reason"] == "interrupted" and [row["outcome"] for row in result["resets"]] == ["done"]
    assert resets.state("nvidia-dcgm.service") == "active" and resets.smi_changes[-1] == "-pm 1 -i <0>"


@pytest.fixture(scope="session")
def cuda(tmp_path_factory):
    """A folder with the simulated libcuda.so.1."""
    folder = tmp_path_factory.mktemp("cuda")
    source = str(SIMULATOR / "cuda_driver.c")
    command = ["gcc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), source]
    subprocess.run(command, check=True)
    return folder


@pytest.mark.parametrize(
    ("wish", "fault", "outcome", "reason"),
    [
        ("auto", "", "passed", ""),
        ("required", "cuMemAlloc_v2 2", "failed", "allocation_failed"),
        ("auto", "cuInit hang", "failed", "allocation_failed"),
        ("auto", "cuCtxCreate_v2 crash", "failed", "allocation_failed"),
    ],
)
def test_memory_is_allocated_where_cuda_is_there(resets, cuda, wish, fault, outcome, reason):
    # In a process of its own: another library path is read at the start of a process only.
    library = "%s:%s" % (resets.host.environment["LD_LIBRARY_PATH"], cuda)
    resets.host.environment.update(LD_LIBRARY_PATH=library, FAKECUDA=fault, CUDA_VISIBLE_DEVICES="3")
    result = resets.host.module(
        "gpu_reset", launcher=("env",), when="always", gpus=["0"], allocation_test=wish, allocation_timeout=0.7
    )
    assert [(row["uuid"], row["outcome"]) for row in result["allocations"]] == [(resets.uuids[0], outcome)]
    assert result.get("reason", "") == reason


def test_where_cuda_is_not_there_that_is_said(resets):
    result = resets.reset(when="always", gpus=["0"], allocation_test="auto")
    if result["allocations"][0]["outcome"] != "absent":
        pytest.skip("this machine has CUDA's driver library")
    assert not result.get("failed") and "libcuda.so.1" in warnings(result)
    assert resets.reset(when="always", gpus=["0"], allocation_test="required")["reason"] == "allocation_failed"
