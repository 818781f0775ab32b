# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.inferops.sglang.plugins.filter import gpu_reset_table
from ansible_collections.inferops.sglang.plugins.plugin_utils.reset_table import outcome_of, reset_table

PLANNED = {
    "decisions": [{"index": 0, "uuid": "GPU-a"}, {"index": 3, "uuid": "GPU-b"}],
    "command": "nvidia-smi --gpu-reset -i GPU-b",
    "resettable": ["GPU-b"],
    "plan": [
        {"action": "stop_unit", "target": "nvidia-dcgm.service", "command": "systemctl stop nvidia-dcgm.service"},
        {"action": "persistence_off", "target": "GPU-b", "command": "nvidia-smi -pm 0 -i GPU-b"},
        {"action": "reset", "target": "GPU-b", "command": "nvidia-smi --gpu-reset -i GPU-b"},
        {"action": "prove", "target": "GPU-b", "command": ""},
    ],
    "blockers": [{"code": "busy"}],
}
DONE = {
    "decisions": [],
    "changed": True,
    "resets": [{"done": ["GPU-b"]}],
    "stopped": [
        {"kind": "unit", "target": "nvidia-dcgm.service"},
        {"kind": "persistence_mode", "target": "GPU-b"},
    ],
    "restored": [{"target": "nvidia-dcgm.service", "ok": True}],
    "health": [],
    "allocations": [{"outcome": "passed"}],
}


def test_the_plan():
    text = reset_table(["a", "b"], {"a": {"gpu_reset_planned": PLANNED, "gpu_reset_failure": ""}}, plan=True)
    row = next(line for line in text.splitlines() if line.startswith("a "))
    assert [cell.strip() for cell in row.split("│")] == ["a", "would reset", "3", "nvidia-dcgm.service", "busy"]
    assert "persistence mode of GPU 3" in text and "systemctl stop nvidia-dcgm.service" in text and "  prove" in text
    assert any(line.startswith("b ") and "not reached" in line for line in text.splitlines())


def test_what_was_done():
    variables = {"a": {"gpu_reset_planned": PLANNED, "gpu_reset_done": DONE, "gpu_reset_failure": ""}}
    text = reset_table(["a"], variables, plan=False)
    row = next(line for line in text.splitlines() if line.startswith("a "))
    assert [cell.strip() for cell in row.split("│")] == ["a", "reset", "3", "nvidia-dcgm.service", "all", "well"]
    assert "persistence mode of GPU 3" in text and "allocation passed" in text


def test_what_did_not_come_back_and_why_it_failed():
    done = {**DONE, "restored": [{"target": "nvsm.service", "ok": False}], "health": ["GPU 3 is busy"]}
    variables = {"a": {"gpu_reset_planned": PLANNED, "gpu_reset_done": done, "gpu_reset_failure": "it is sick"}}
    text = reset_table(["a"], variables, plan=False)
    assert "NOT RESTORED: nvsm.service" in text and "GPU 3 is busy" in text and "a: it is sick" in text


@pytest.mark.parametrize(
    ("planned", "done", "failure", "plan", "outcome"),
    [
        ({}, {}, "", True, "not reached"),
        ({"command": ""}, {}, "", True, "nothing to do"),
        (PLANNED, {}, "busy", True, "refused"),
        (PLANNED, {}, "", True, "would reset"),
        ({**PLANNED, "reboot_needed": ["GPU-b"]}, {}, "x", True, "reboot needed"),
        ({**PLANNED, "drain_needed": ["GPU-b"]}, {}, "x", True, "drain needed"),
        (PLANNED, {"changed": True}, "", False, "reset"),
        (PLANNED, {"changed": True}, "x", False, "failed"),
        (PLANNED, {"reboot_needed": ["GPU-b"]}, "x", False, "reboot needed"),
        (PLANNED, {}, "", False, "not done"),
    ],
)
def test_outcome(planned, done, failure, plan, outcome):
    assert outcome_of(planned, done, failure, plan) == outcome


def test_the_filter():
    documentation = yaml.safe_load(gpu_reset_table.DOCUMENTATION)
    assert set(documentation["options"]) == {"_input", "hosts", "plan", "width"}
    (name,) = gpu_reset_table.FilterModule().filters()
    assert name == documentation["name"] and yaml.safe_load(gpu_reset_table.EXAMPLES)
    assert "not reached" in gpu_reset_table.gpu_reset_table({}, ["a"])
    with pytest.raises(AnsibleFilterError, match="hostvars"):
        gpu_reset_table.gpu_reset_table([], ["a"])
    with pytest.raises(AnsibleFilterError, match="list of hosts"):
        gpu_reset_table.gpu_reset_table({}, "a")
