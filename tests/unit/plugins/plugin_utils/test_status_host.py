# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One host's entry from what its modules returned, whatever that is."""

from __future__ import annotations

import json

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.status_host import host_entry
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.status_samples import (
    HOSTILE,
    UNREACHABLE,
    gpu,
    gpus,
    holder,
    server,
    servers,
)


def entry(gpu_result, server_result):
    return host_entry("gpu-a", "all", gpu_result, server_result)


def test_a_host_that_was_seen():
    found = entry(gpus(2), servers())
    assert (found["host"], found["group"], found["unreachable"], found["problems"]) == ("gpu-a", "all", False, [])
    assert (found["driver"], found["gpu_model"]) == ("580.159.04", "2 x NVIDIA H200")
    assert [item["verdict"] for item in found["gpus"]] == ["busy", "busy"]
    assert found["gpus"][1]["holders"][0]["pids"] == [601]
    assert found["holders"] == [
        {
            "user": "llm",
            "unit": "sglang-main.service",
            "container": "",
            "names": ["sglang::scheduler_TP0", "sglang::scheduler_TP1"],
            "pids": [600, 601],
            "memory_mib": 262144,
            "states": ["S"],
            "protected": False,
        }
    ]
    (main,) = found["servers"]
    assert (main["state"], main["speculation"], main["release_state"]) == ("serving", "EAGLE3 3/1/4", "proven")
    assert (main["accept_length"], main["load"]) == (2.443, {"running": 12, "waiting": 3})


CRASH = {
    "failed": True,
    "msg": "MODULE FAILURE: see stderr",
    "module_stderr": "/usr/bin/python3: not found\r\n",
    "rc": 127,
}


@pytest.mark.parametrize(
    ("gpu_result", "server_result", "problems"),
    [
        (UNREACHABLE, None, ["Unreachable: Failed to connect to the host via ssh: No route to host"]),
        (gpus(1), UNREACHABLE, ["Unreachable: Failed to connect to the host via ssh: No route to host"]),
        ({"unreachable": True}, {"skipped": True}, ["Unreachable: no reason was given"]),
        (
            {"failed": False, "reason": "library_not_found", "msg": "There is no NVIDIA driver."},
            servers(),
            ["The GPUs could not be read: There is no NVIDIA driver."],
        ),
        (
            CRASH,
            servers(),
            ["The GPUs could not be read: MODULE FAILURE: see stderr /usr/bin/python3: not found"],
        ),
        (
            gpus(1),
            {"failed": True, "timedout": {"period": 90}, "msg": "Task failed: Timed out after 90 seconds."},
            ["The servers could not be read: Timed out after 90 seconds."],
        ),
        (None, servers(), ["The GPUs were not looked at: the play did not get there."]),
        (gpus(1), {"skipped": True}, ["The servers were not looked at: the task was skipped."]),
        ({"gpus": "none"}, servers(), ["The GPUs could not be read: the task gave no reason"]),
        (7, servers(), ["The GPUs could not be read: the task gave no reason"]),
    ],
)
def test_a_host_that_was_not_seen_is_an_entry_with_the_reason(gpu_result, server_result, problems):
    found = entry(gpu_result, server_result)
    assert found["problems"] == problems
    assert found["unreachable"] is problems[0].startswith("Unreachable")
    # What could be read stays.
    assert (found["gpus"] is None) == (
        gpu_result is None or not isinstance(gpu_result, dict) or "driver_version" not in gpu_result
    )
    assert found["gpus"] is None or found["servers"] is None


def test_processes_that_could_not_be_looked_into_are_told():
    found = entry(gpus(1, uninspected=7), servers())
    assert found["problems"] == [
        "7 processes could not be looked into, so it is not known whether they have a GPU open."
    ]
    assert found["gpus"] is not None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "proven"),
        ({"last_good": "other"}, "not proven"),
        ({"stale": True}, "not the current one"),
        ({"stale": None}, None),
        ({"stale": "no"}, None),
    ],
)
def test_how_the_running_release_stands(changes, expected):
    assert entry(gpus(1), servers(server(**changes)))["servers"][0]["release_state"] == expected


@pytest.mark.parametrize(
    ("effective", "expected"),
    [
        ({}, None),
        ({"speculative_algorithm": None}, "no speculation"),
        ({"speculative_algorithm": "EAGLE3", "speculative_adaptive": True}, "EAGLE3 adaptive"),
    ],
)
def test_speculation_in_short(effective, expected):
    assert entry(gpus(1), servers(server(effective=effective)))["servers"][0]["speculation"] == expected


@pytest.mark.parametrize(
    ("tier", "expected"),
    [
        ({"num_steps": 0, "num_draft_tokens": 1}, "EAGLE3 adaptive (now 0)"),
        (None, "EAGLE3 adaptive"),
        ({"num_steps": "0"}, "EAGLE3 adaptive"),
        ("0", "EAGLE3 adaptive"),
    ],
)
def test_the_active_tier_of_a_server_that_adapts(tier, expected):
    effective = {"speculative_algorithm": "EAGLE3", "speculative_adaptive": True}
    (found,) = entry(gpus(1), servers(server(effective=effective, tier=tier)))["servers"]
    assert found["speculation"] == expected and (found["tier"] is None) == ("now" not in expected)
    fixed = {"speculative_algorithm": "EAGLE3"}
    assert entry(gpus(1), servers(server(effective=fixed, tier=tier)))["servers"][0]["speculation"] == "EAGLE3"


def test_what_is_not_known_is_never_free_or_serving():
    odd = gpus(1, gpus=[gpu(0, verdict="Free"), gpu(1, verdict=None), gpu(2, verdict={"a": 1}), {}])
    found = entry(odd, servers(server(state="SERVING"), server(state=None), {}))
    assert [item["verdict"] for item in found["gpus"]] == ["unknown"] * 4
    assert [item["state"] for item in found["servers"]] == ["unknown"] * 3


def test_hostile_names_are_harmless_and_huge_answers_bounded():
    docker = {"runtime": HOSTILE, "id": HOSTILE, "name": HOSTILE * 1000}
    held = [holder(n, 0, user=HOSTILE, name=HOSTILE, unit=HOSTILE * 1000, container=docker) for n in range(5000)]
    result = gpus(
        1, driver=HOSTILE, holders=held, gpus=[gpu(n, name=HOSTILE, message=HOSTILE * 999) for n in range(999)]
    )
    many = [server(str(n) + HOSTILE, effective={HOSTILE: HOSTILE * 99}, message=HOSTILE * 99) for n in range(999)]
    found = entry(result, servers(*many))
    assert (len(found["gpus"]), len(found["servers"]), len(found["holders"][0]["pids"])) == (128, 100, 1000)

    def check(value):
        if isinstance(value, dict):
            for name, item in value.items():
                check(name)
                check(item)
        elif isinstance(value, list):
            for item in value:
                check(item)
        elif isinstance(value, str):
            assert value.isprintable() and len(value) <= 600, value

    check(found)
    assert len(json.dumps(found)) < 10**6
