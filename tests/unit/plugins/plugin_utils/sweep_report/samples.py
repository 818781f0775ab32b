# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of sweeps that never were, from a simple model of a server, so that what they must show is known.

A verification of k + 1 tokens takes a fixed time, a time for each drafted token, and one that grows with the batch: few
requests leave the GPU idle, many do not.  Each drafted token is accepted with the chance P.
"""

from __future__ import annotations

import hashlib
import json

P = 0.7
LEVELS = (1, 2, 4, 8, 16, 32, 64, 128, 250)
HOSTILE = "<script>alert(1)</script>{{ 7 * 7 }}{% raw %}\x1b]0;owned\x07\u202e$x^2$\"'&amp;`"
_NOISE = (0.0, 0.006, -0.005, 0.009, -0.008)


def accepted(steps):
    """Tokens of a verification."""
    return sum(P**power for power in range(steps + 1))


def token_ms(steps, level):
    """What a token takes."""
    return (10 + 0.4 * steps + 0.12 * level * (steps + 1) ** 0.85) / accepted(steps)


def repeat(steps, level, number=0, tokens=256):
    """One run of the client."""
    tpot = token_ms(steps, level) * (1 + _NOISE[(number + level + steps) % len(_NOISE)])
    ttft = 30 + 2.5 * level
    whole = ttft + tpot * tokens
    count = 4 * level
    return {
        "duration": round(count / level * whole / 1000, 3),
        "completed": count,
        "failed": 0,
        "output_throughput": round(level * tokens / whole * 1000, 2),
        "request_throughput": round(level / whole * 1000, 3),
        "total_input_tokens": 120 * count,
        "total_output_tokens": tokens * count,
        "mean_ttft_ms": ttft,
        "median_ttft_ms": ttft,
        "p99_ttft_ms": ttft * 1.9,
        "mean_tpot_ms": tpot,
        "median_tpot_ms": tpot,
        "p99_tpot_ms": tpot * 1.2,
        "mean_e2e_latency_ms": whole,
        "median_e2e_latency_ms": whole,
        "p99_e2e_latency_ms": whole * 1.3,
        "concurrency": level * 0.99,
        "accept_length": round(accepted(steps), 3) if steps else None,
        "accept_length_source": "requests" if steps else "",
        "verify_steps": int(count * tokens / accepted(steps)) if steps else None,
        "server_accept_length": round(accepted(steps), 2) if steps else None,
        "correct_drafts_histogram": None,
    }


def point(steps, level, repeats=3, **changes):
    """One concurrency."""
    return {
        "concurrency": level,
        "num_prompts": 4 * level,
        "state": "measured",
        "reason": "",
        "message": "",
        "repeats": [repeat(steps, level, number) for number in range(repeats)],
        "median": {},
        "spread": {},
        "warnings": [],
        **changes,
    }


def row(name, steps, levels=LEVELS, repeats=3, topk=1, **changes):
    """One configuration; 0 steps is the baseline."""
    eagle = {
        "algorithm": "EAGLE3",
        "draft_model_path": "/models/draft",
        "num_steps": steps,
        "eagle_topk": topk,
        "num_draft_tokens": steps + 1,
    }
    command = ["python3", "-m", "sglang.launch_server", "--model-path", "/models/target", "--port", "30000"]
    return {
        "name": name,
        "key": hashlib.sha256(name.encode("utf-8")).hexdigest()[:12],
        "baseline": not steps,
        "adaptive": False,
        "settings": eagle if steps else {"algorithm": "none"},
        "environment": {},
        "host": "gpu-a",
        "state": "proven",
        "reason": "",
        "message": "",
        "version": "0.5.17",
        "effective": {"speculative_" + name: value for name, value in eagle.items()} if steps else {},
        "max_running_requests": 256,
        "command": command + (["--speculative-num-steps", str(steps)] if steps else []),
        "hardware": {"gpu": "NVIDIA H200", "count": 8, "driver": "580.159.04", "memory_total_mib": 143771},
        "ready_after": 41.5,
        "points": [point(steps, level, repeats) for level in levels],
        **changes,
    }


def failed(name, steps, **changes):
    """One that did not start."""
    message = "The server died in the phase loading_weights: a GPU ran out of memory."
    return row(
        name, steps, **{"state": "failed", "reason": "out_of_memory", "message": message, "points": [], **changes}
    )


def document(*rows, levels=LEVELS, **sweep):
    """A whole results.json without its analysis."""
    return {
        "format": 1,
        "sweep": {
            "name": "llama-70b",
            "model": "/models/target",
            "prompts": {"name": "prompts.jsonl", "sha256": "5d41402a" * 8, "count": 64},
            "concurrencies": list(levels),
            "repeats": 3,
            "started": "2026-11-30T10:00:00Z",
            "ended": "2026-11-30T11:30:00Z",
            "hosts": ["gpu-a"],
            **sweep,
        },
        "configurations": list(rows),
    }


def usual():
    """The baseline, four numbers of steps, and one that failed."""
    return document(
        row("baseline", 0),
        *(row("eagle3-steps%d" % steps, steps) for steps in (1, 2, 3, 5)),
        failed("eagle3-steps9", 9),
    )


def small():
    """What a report needs to have something of everything."""
    levels = (1, 16, 250)
    rows = (row("baseline" if not steps else "eagle3-steps%d" % steps, steps, levels=levels) for steps in (0, 1, 5))
    return document(*rows, failed("eagle3-steps9", 9), levels=levels)


def large(configurations=20):
    """As many configurations as anybody looks at, with names that are long."""
    names = ["eagle3-steps%d-topk%d-tokens%d-nccl%d" % (1 + n % 7, 1, 2 + n % 7, n) for n in range(configurations - 1)]
    return document(row("baseline", 0), *(row(name, 1 + n % 7, topk=1) for n, name in enumerate(names)))


def hostile():
    """Texts in every place that somebody may write to, and numbers that are none."""
    bad = row(HOSTILE, 3, levels=(1, 2))
    for name in ("key", "host", "version", "reason", "message"):
        bad[name] = HOSTILE
    bad["settings"] = {HOSTILE: HOSTILE, "algorithm": HOSTILE, "num_steps": 3, "eagle_topk": 1}
    bad["environment"] = {HOSTILE: HOSTILE, "HF_TOKEN": "hf_secret_of_somebody"}
    bad["effective"] = {"speculative_" + HOSTILE: HOSTILE, "api_key": "sk-secret-of-somebody"}
    bad["command"] = ["python3", HOSTILE, "--api-key", "sk-secret-of-somebody", "--admin-api-key=sk-secret-of-somebody"]
    bad["hardware"] = {"gpu": HOSTILE, "count": HOSTILE, "driver": HOSTILE, "memory_total_mib": -1}
    bad["points"][0]["warnings"] = [HOSTILE]
    bad["points"][1]["repeats"][0]["output_throughput"] = float("nan")
    broken = failed(HOSTILE + "2", 2, message=HOSTILE + "x" * 3_000_000, reason=HOSTILE)
    return document(
        row("baseline", 0, levels=(1, 2)),
        bad,
        broken,
        row("odd", 1, points=[{"concurrency": "4"}, "x", None, {"concurrency": 2, "repeats": "x"}]),
        "no row",
        levels=(1, 2),
        name=HOSTILE,
        model=HOSTILE,
        prompts={"name": HOSTILE, "sha256": HOSTILE, "count": HOSTILE},
        hosts=[HOSTILE],
        started=HOSTILE,
        ended=HOSTILE,
    )


def write_folder(raw, folder):
    """The files that a sweep leaves, of its results."""
    for name in ("configurations", "points"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    rows = [{name: value for name, value in each.items() if name != "points"} for each in raw["configurations"]]
    plan = {
        "format": 1,
        "sweep": raw["sweep"],
        "configurations": [{"name": each["name"], "key": each["key"]} for each in rows],
    }
    (folder / "sweep.json").write_text(json.dumps(plan))
    for each, whole in zip(rows, raw["configurations"]):
        (folder / "configurations" / f"{each['key']}.json").write_text(json.dumps(each))
        (folder / "points" / each["key"]).mkdir(exist_ok=True)
        for measured in whole["points"]:
            file = folder / "points" / each["key"] / f"{measured['concurrency']}.json"
            file.write_text(json.dumps(measured))
