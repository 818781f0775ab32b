# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sweeps whose truth is known: a server with known times per step, a draft with known p, and known noise."""

from __future__ import annotations

import functools
import math
import random
import statistics
from dataclasses import dataclass

GPU = {"gpu": "NVIDIA H200", "count": 1, "driver": "580.82.07", "memory_total_mib": 143771}


@dataclass(frozen=True)
class Truth:
    """Times of a step in ms.  The more is verified at once, the longer it takes: so speculation loses under load."""

    p: float = 0.75
    step: float = 8.5
    verified_token: float = 0.3
    draft_step: float = 0.9
    drafted_token: float = 0.01

    def tokens(self, steps):
        """Of a verify step."""
        return sum(self.p**power for power in range(steps + 1))

    @functools.lru_cache(maxsize=None)  # noqa: B019 - a handful of values that never change
    def throughput(self, concurrency, steps):
        """In tok/s, without noise."""
        verify = self.step + self.verified_token * concurrency * (steps + 1)
        draft = steps * (self.draft_step + self.drafted_token * concurrency)
        return 1000 * concurrency * self.tokens(steps) / (verify + draft)

    def crossover(self, steps, fewer=0):
        """The concurrency at which both are equally fast."""
        low, high = 0.001, 1e6
        for _step in range(200):
            middle = math.sqrt(low * high)
            if self.throughput(middle, steps) > self.throughput(middle, fewer):
                low = middle
            else:
                high = middle
        return low


def repeat(throughput, concurrency, accept_length=None, num_prompts=None, **more):
    """One repeat of a point, as a benchmark stores it."""
    completed = num_prompts or max(16, 4 * concurrency)
    tokens = completed * 256
    seconds = tokens / throughput
    each = 1000 * concurrency * 256 / throughput
    values = {
        "duration": round(seconds, 3),
        "completed": completed,
        "failed": 0,
        "output_throughput": round(throughput, 2),
        "request_throughput": round(completed / seconds, 4),
        "total_input_tokens": completed * 96,
        "total_output_tokens": tokens,
        "concurrency": round(concurrency * 0.97, 2),
        "accept_length": accept_length,
        "accept_length_source": "" if accept_length is None else "requests",
        "verify_steps": None if accept_length is None else round(tokens / accept_length),
        "server_accept_length": accept_length,
        "correct_drafts_histogram": None,
    }
    for name, value in (("ttft", 40 + 2 * concurrency), ("tpot", each / 256), ("e2e_latency", each)):
        values["mean_%s_ms" % name] = round(value, 2)
        values["median_%s_ms" % name] = round(value * 0.98, 2)
        values["p99_%s_ms" % name] = round(value * 1.4, 2)
    values.update(more)
    return values


def point(concurrency, repeats):
    """A point of repeats."""
    numbers = {
        name: [one[name] for one in repeats]
        for name, value in repeats[0].items()
        if isinstance(value, (int, float)) and all(isinstance(one.get(name), (int, float)) for one in repeats)
    }
    return {
        "concurrency": concurrency,
        "num_prompts": repeats[0]["completed"],
        "state": "measured",
        "reason": "",
        "message": "",
        "repeats": repeats,
        "median": {name: statistics.median(values) for name, values in numbers.items()},
        "spread": {name: {"min": min(values), "max": max(values)} for name, values in numbers.items()},
        "warnings": [],
    }


def failed_point(concurrency, reason, message):
    """A point that could not be measured."""
    return {
        "concurrency": concurrency,
        "num_prompts": max(16, 4 * concurrency),
        "state": "failed",
        "reason": reason,
        "message": message,
        "repeats": [],
        "median": {},
        "spread": {},
        "warnings": [],
    }


def row(name, steps=0, topk=1, points=(), host="gpu-a", version="0.5.23", **more):
    """A configuration: the baseline without steps, EAGLE-3 with them."""
    settings = {"algorithm": None, "max_running_requests": 256}
    if steps:
        settings = {
            "algorithm": "EAGLE3",
            "draft_model_path": "/models/draft",
            "num_steps": steps,
            "eagle_topk": topk,
            "num_draft_tokens": steps + 1 if topk == 1 else 8,
            "max_running_requests": 256,
        }
    effective = {"speculative_" + key: value for key, value in settings.items() if key != "max_running_requests"}
    effective.update(
        {
            "model_path": "/models/target",
            "tp_size": 1,
            "dp_size": 1,
            "mem_fraction_static": 0.85,
            "attention_backend": "fa3",
            "max_running_requests": 256,
            "effective_max_running_requests_per_dp": 256,
        }
    )
    values = {
        "name": name,
        "key": "%08x" % (sum(map(ord, name)) * 2654435761 % 2**32),
        "baseline": not steps,
        "adaptive": False,
        "settings": settings,
        "environment": {},
        "host": host,
        "state": "proven",
        "reason": "",
        "message": "",
        "version": version,
        "effective": effective,
        "max_running_requests": 256,
        "command": ["python3", "-m", "sglang.launch_server", "--model-path", "/models/target"],
        "hardware": dict(GPU),
        "ready_after": 41.5,
        "points": list(points),
    }
    values.update(more)
    return values


def results(*rows, **more):
    """The results of a sweep."""
    found = {
        "name": "example",
        "model": "/models/target",
        "prompts": {"name": "prompts.jsonl", "sha256": "5f0c" * 16, "count": 256},
        "concurrencies": sorted({one["concurrency"] for each in rows for one in each["points"]}),
        "repeats": max((len(one["repeats"]) for each in rows for one in each["points"]), default=0),
        "started": "2026-11-30T20:00:00Z",
        "ended": "2026-11-30T20:41:12Z",
        "hosts": sorted({each["host"] for each in rows}),
        "original": {"name": rows[0]["name"] if rows else "", "settings": rows[0]["settings"] if rows else {}},
    }
    found.update(more)
    return {"format": 1, "sweep": found, "configurations": list(rows)}


def flat(values, steps=0, name=None, repeats=3, accept_length=None, **more):
    """A configuration from its throughputs: {concurrency: tok/s, or a list of them, one for each repeat}."""
    points = []
    for concurrency, throughputs in values.items():
        listed = throughputs if isinstance(throughputs, (list, tuple)) else [throughputs] * repeats
        points.append(point(concurrency, [repeat(value, concurrency, accept_length) for value in listed]))
    return row(name or ("eagle3-steps%d" % steps if steps else "baseline"), steps, points=points, **more)


def noisy(truth, steps, concurrencies, noise, seed, repeats=3, factor=1.0, **more):
    """A configuration of the known server, with normal noise of the logarithm; noise may depend on the concurrency."""
    chance = random.Random("%s %s %s" % (seed, steps, more.get("name")))
    points = []
    for concurrency in concurrencies:
        spread = noise(concurrency) if callable(noise) else noise
        measured = [
            repeat(
                factor * truth.throughput(concurrency, steps) * math.exp(chance.gauss(0, spread)),
                concurrency,
                round(truth.tokens(steps) * math.exp(chance.gauss(0, 0.01)), 3) if steps else None,
            )
            for _number in range(repeats)
        ]
        points.append(point(concurrency, measured))
    name = more.pop("name", None) or ("eagle3-steps%d" % steps if steps else "baseline")
    return row(name, steps, points=points, **more)
