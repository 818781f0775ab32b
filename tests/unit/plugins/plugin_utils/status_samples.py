# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What gpu_info and sglang_info return, made short; and names that want to harm whoever reads them."""

from __future__ import annotations

HOSTILE = "\x1b]0;owned\x07\x1b[2J<script>alert(1)</script>{{ lookup('pipe', 'id') }}\u202e\r\n\"'"
TOTAL = 143771
EAGLE3 = {
    "model_path": "/models/target",
    "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
    "speculative_adaptive": False,
}


def gpu(index, verdict="busy", used=131072, **changes):
    values = {
        "index": index,
        "uuid": "GPU-%d" % index,
        "name": "NVIDIA H200",
        "memory_used_mib": used,
        "memory_total_mib": TOTAL,
        "verdict": verdict,
        "reason": {"busy": "holder", "unknown": "hung"}.get(str(verdict), ""),
        "message": "It is %s." % verdict,
        "recovery_action": "none",
    }
    return {**values, **changes}


def holder(pid, *gpus, memory=131072, **changes):
    values = {
        "pid": pid,
        "user": "llm",
        "name": "sglang::scheduler_TP%d" % (pid % 10),
        "gpus": ["GPU-%d" % index for index in gpus],
        "attached": [],
        "memory_mib": memory,
        "per_gpu_mib": {"GPU-%d" % index: memory for index in gpus},
        "state": "S",
        "unit": "sglang-main.service",
        "container": None,
        "protected": False,
    }
    return {**values, **changes}


def gpus(count=8, driver="580.159.04", **changes):
    """A host on which one server holds all GPUs."""
    values = {
        "changed": False,
        "driver_version": driver,
        "gpus": [gpu(index) for index in range(count)],
        "holders": [holder(600 + index, index) for index in range(count)],
    }
    return {**values, **changes}


def server(instance="main", state="serving", effective=None, **changes):
    values = {
        "instance": instance,
        "state": state,
        "reason": "",
        "message": "",
        "pid": 600,
        "started": "2026-11-30T02:46:49Z",
        "user": "llm",
        "manager": "systemd",
        "unit": "sglang-main.service",
        "container": "",
        "port": 30000,
        "version": "0.5.17",
        "release": "20261130T104500Z-5d41402a",
        "stale": False,
        "current": "20261130T104500Z-5d41402a",
        "last_good": "20261130T104500Z-5d41402a",
        "effective": EAGLE3 if effective is None else effective,
        "accept_length": 2.443,
        "load": {"running": 12, "waiting": 3, "source": "/v1/loads"},
        "problems": [],
    }
    return {**values, **changes}


def servers(*found):
    return {"changed": False, "servers": list(found or (server(),))}


UNREACHABLE = {"unreachable": True, "msg": "Failed to connect to the host via ssh: No route to host", "changed": False}
