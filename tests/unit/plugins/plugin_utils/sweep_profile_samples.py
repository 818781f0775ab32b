# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of sweeps for tests of profiles and of the guard."""

from __future__ import annotations

import copy

CONFIG = {"1": {"candidate_steps": [3]}, "16": {"candidate_steps": [0]}}


def row(name, steps, **more):
    """A configuration that was proven; steps 0 for no speculation."""
    settings = {"algorithm": "none"}
    if steps:
        settings = {
            "algorithm": "EAGLE3",
            "draft_model_path": "/models/draft",
            "num_steps": steps,
            "eagle_topk": 1,
            "num_draft_tokens": steps + 1,
        }
    return {
        "name": name,
        "key": name,
        "host": "gpu-a",
        "state": "proven",
        "baseline": not steps,
        "adaptive": False,
        "settings": settings,
        "environment": {"NCCL_NVLS_ENABLE": "1"} if steps == 3 else {},
        "extra_args": ["--enable-metrics"],
        "max_running_requests": 64,
        "version": "0.5.17",
        "hardware": {"gpu": "NVIDIA H200", "count": 8},
        "effective": {},
        **more,
    }


RESULTS = {
    "format": 1,
    "sweep": {"name": "steps", "model": "/models/target", "ended": "2026-11-30T10:45:00Z"},
    "configurations": [
        row("baseline", 0),
        row("eagle3-steps3", 3),
        row("eagle3-steps5", 5),
        row("eagle3-steps9", 9, state="failed", message="out of memory"),
    ],
    "analysis": {
        "configurations": [
            {"configuration": name, "name": name} for name in ("baseline", "eagle3-steps3", "eagle3-steps5")
        ],
        "decision": {
            "ranges": [
                {"from": 1, "to": 15, "configuration": "eagle3-steps3", "confirmed": True},
                {"from": 16, "to": None, "configuration": "baseline", "confirmed": True},
            ],
        },
        "adaptive": {
            "config": CONFIG,
            "num_steps": 3,
            "max_running_requests": 64,
            "base": "eagle3-steps3",
            "reason": "",
        },
    },
}


def results(**analysis):
    """Results of which some parts of the analysis are replaced."""
    found = copy.deepcopy(RESULTS)
    found["analysis"].update(analysis)
    return found
