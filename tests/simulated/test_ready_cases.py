# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting in parts for real stand-in servers: what is told meanwhile, and what is noticed between two parts."""

from __future__ import annotations

import json

from .server import EAGLE3, behave, succeeded
from .waiting import wait_until


def in_parts(server, **options):
    """Wait in short parts to the end: the progress that was told, and the last result."""
    progress = []
    resume = {}
    while True:
        result = server.wait(return_after=0.3, **resume, **options)
        if not result.get("waiting"):
            return progress, result
        progress.append(result["progress"])
        resume = {"resume": result["resume"]}


def test_the_phases_of_a_start_are_told_while_it_goes_on(server):
    key = "kq-progress-5d1c9a40"
    slow = behave(import_seconds=0.5, load_seconds=4, graph_seconds=3, warmup_seconds=2)
    server.go(secret_args={"api-key": key}, environment=slow, **EAGLE3)
    progress, result = in_parts(server, timeout=100, soak_requests=40)
    succeeded(result)
    order = ("loading_weights", "loading_draft", "capturing_graphs", "warming_up", "soaking")
    told = [phase for phase in dict.fromkeys(row["phase"] for row in progress) if phase in order]
    # A slow machine may miss one, but none comes before its time.
    assert len(told) >= 2 and told == [phase for phase in order if phase in told]
    assert all(0 <= row["percent"] <= 100 for row in progress if row["percent"] is not None)
    assert [row["elapsed"] for row in progress] == sorted(row["elapsed"] for row in progress)
    assert result["proof"]["ready_after"] >= 9
    assert set(told) | {"soaking", "proving"} <= {phase["name"] for phase in result["proof"]["phases"]}
    # The parts hand on what the server said, and none of them its key.
    assert key not in json.dumps(server.results)


def test_the_last_proven_start_tells_how_long_this_one_takes(server):
    server.go(environment=behave(load_seconds=1))
    ready = succeeded(server.wait())
    succeeded(server.module("sglang_release", state="proven", proof=ready["proof"]))
    server.stop()
    server.go(environment=behave(hang_at="warm_up"))
    progress = server.wait(return_after=0.3)["progress"]
    assert progress["last_start"] == ready["proof"]["ready_after"] > 1
    assert 0 <= progress["left"] < progress["last_start"]


def test_a_scheduler_that_dies_alone_is_noticed_between_two_parts(server):
    """Up to 0.5.9 no watchdog ends the server then."""
    server.go(tp_size=2, environment=behave(version="0.5.7", hang_at="warm_up"))
    wait_until(lambda: server.request("/health") == 503)
    first = server.wait(return_after=1)
    assert first["waiting"] and first["progress"]["phase"] == "warming_up"
    pid = server.kill("sglang::scheduler_TP1")
    result = server.wait(timeout=60, resume=first["resume"])
    assert result["failed"] and result["reason"] == "worker_died" and result["waited"] < 30
    assert "sglang::scheduler_TP1 (PID %d)" % pid in result["msg"]


def test_a_server_that_was_started_anew_between_two_parts_is_noticed(server):
    server.go(environment=behave(hang_at="warm_up"))
    first = server.wait(return_after=0.2)
    server.stop(grace=0)
    succeeded(server.start())
    result = server.wait(resume=first["resume"])
    assert result["failed"] and result["reason"] == "restarted"


def test_refusals_under_load_are_counted(server):
    server.go(environment=behave(fail_every=30), **EAGLE3)
    progress, result = in_parts(server, soak_requests=60, soak_concurrency=4, interval=0.05)
    soak = succeeded(result)["sglang"]["soak"]
    assert soak["requests"] == 60 and 1 <= soak["failed"] <= 3
    assert 2 < soak["accept_length"] < 4
    assert len([row for row in progress if row["phase"] == "soaking"]) <= len(progress)
