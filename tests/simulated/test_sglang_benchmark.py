# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The benchmark of a stand-in server, with a stand-in client that really sends its requests."""

from __future__ import annotations

import contextlib
import json
import pathlib
import shlex
import sys
import threading

import pytest

from .server import EAGLE3, behave, succeeded
from .waiting import is_alive, wait_until

KEY = "kq-bench-5d0a83e2"
# It sleeps rather than computes: a stream makes 400 tokens a second, and two of them fill the GPU.
SPEED = behave(tokens_per_second=400, saturation=2, draft_cost=0.15, accept_probability=0.8)
# What a step of three drafts yields on average: 1 + 0.8 + 0.64 + 0.512.
ACCEPT = 2.952


@pytest.fixture
def measure(host, server, tmp_path):
    """Run the module on the instance.  Nothing of a key is in any result, and nothing stays behind."""
    prompts = tmp_path / "prompts.jsonl"
    rows = [{"prompt": "Tell me number %d of your stories." % number} for number in range(9)]
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    results = []

    def run(check=False, **options):
        folders = {name: str(server.folder / name) for name in ("state_dir", "run_dir", "log_dir")}
        quick = {
            "concurrencies": [1],
            "prompts": str(prompts),
            "output_len": 32,
            "num_prompts_min": 2,
            "prompts_per_stream": 1,
            "repeats": 1,
            "timeout": 20,
            "interval": 0.05,
            "idle_timeout": 1,
            "manager": "process",
        }
        result = host.module("sglang_benchmark", check=check, **{**quick, **folders, **options})
        results.append(result)
        return result

    yield run
    assert KEY not in json.dumps(results)
    assert not folder_of(server).exists()


def folder_of(server):
    """Where the client of the instance has its files."""
    return server.folder / "run_dir" / "main.benchmark"


@pytest.fixture
def broken_client(tmp_path):
    """An interpreter whose client has a fault."""

    def make(fault):
        program = tmp_path / ("python-" + fault)
        program.write_text('#!/bin/sh\nSTANDIN_CLIENT=%s exec %s "$@"\n' % (fault, shlex.quote(sys.executable)))
        program.chmod(0o755)
        return str(program)

    return make


def client_of(server):
    """PID of the client, once it runs."""
    found = []

    def look():
        try:
            found[:] = [json.loads((folder_of(server) / "process.json").read_text())["pid"]]
        except (OSError, ValueError):
            return False
        return b"repeat_begins" in (folder_of(server) / "events").read_bytes()

    wait_until(look)
    return found[0]


@contextlib.contextmanager
def used_by_others(server):
    """A long request of somebody else."""
    body = {"text": "x", "sampling_params": {"max_new_tokens": 4000}}
    thread = threading.Thread(target=lambda: server.request("/generate", body, key=KEY))
    thread.start()
    try:
        wait_until(lambda: server.request("/flush_cache", {}, key=KEY) == 400)
        yield
    finally:
        server.request("/abort_request", {"rid": "", "abort_all": True}, key=KEY)
        thread.join()


def failed_with(result, reason):
    """The only point of a result, which must have failed so."""
    assert result["failed"] and result["reason"] == reason, result
    (point,) = result["points"]
    assert (point["state"], point["reason"], point["median"], point["spread"]) == ("failed", reason, {}, {})
    assert point["message"] in result["msg"]
    return point


def test_an_eagle3_server(server, measure, broken_client):
    server.go({"api-key": KEY}, environment=SPEED, **EAGLE3)
    assert measure()["reason"] == "not_proven"
    server.prove()

    planned = succeeded(measure(check=True, concurrencies=[1, 3]))
    assert planned["planned"] == [{"concurrency": 1, "num_prompts": 2}, {"concurrency": 3, "num_prompts": 3}]

    result = succeeded(measure(concurrencies=[1, 8], repeats=2))
    assert result["changed"] is False
    facts, how = result["sglang"], result["benchmark"]
    assert (facts["pid"], facts["version"], facts["max_running_requests"]) == (server.identity().pid, "0.5.17", 48)
    assert facts["effective"]["speculative_num_steps"] == 3
    assert (how["module"], how["version"], how["prompts"]["count"]) == ("sglang.benchmark.serving", "0.5.17", 9)
    one, eight = result["points"]
    assert [(point["concurrency"], point["num_prompts"], point["state"]) for point in (one, eight)] == [
        (1, 2, "measured"),
        (8, 8, "measured"),
    ]
    for point in (one, eight):
        assert len(point["repeats"]) == 2 and point["warnings"] == []
        for repeat in point["repeats"]:
            assert repeat["completed"] == point["num_prompts"] and repeat["failed"] == 0
            assert repeat["total_output_tokens"] == 32 * point["num_prompts"]
            assert repeat["accept_length"] == pytest.approx(ACCEPT, abs=0.1)
            assert repeat["accept_length_source"] == "requests"
            assert repeat["verify_steps"] == 11 * point["num_prompts"]
            assert sum(repeat["correct_drafts_histogram"]) == repeat["verify_steps"]
            assert repeat["server_accept_length"] == pytest.approx(repeat["accept_length"], abs=0.01)
            assert repeat["p99_ttft_ms"] <= repeat["p99_e2e_latency_ms"]
        spread = point["spread"]["output_throughput"]
        assert spread["min"] <= point["median"]["output_throughput"] <= spread["max"]
    # The model of the stand-in says 513 and 812; this machine may be slow, and never too fast.
    assert 200 < one["median"]["output_throughput"] < 540 and 300 < eight["median"]["output_throughput"] < 850
    assert eight["median"]["concurrency"] > 4

    # In parts: what is asked for next goes on with the client that runs.
    part = succeeded(measure(return_after=0.01))
    pid = client_of(server)
    assert part["waiting"] and part["progress"]["of"] == 2 and part["points"] == []
    assert measure()["reason"] == "busy" and is_alive(pid)
    while part.get("waiting"):
        part = succeeded(measure(return_after=0.2, resume=part["resume"]))
    assert part["points"][0]["state"] == "measured"

    # Clients that fail, each in its own way.
    for fault, reason, words in (
        ("die", "client_failed", "ended"),
        ("exit", "client_failed", "status 1"),
        ("print_key", "client_failed", "the key is ****"),
        ("no_result", "no_result", "no result"),
        ("drop", "prompts_dropped", "1 of 2"),
    ):
        point = failed_with(measure(python=broken_client(fault)), reason)
        assert words in point["message"], point
    assert "is not ready" in "".join(measure(python=broken_client("exit"))["points"][0]["log_tail"])
    point = failed_with(measure(python=broken_client("hang"), timeout=1), "timeout")
    assert "timeout 1 s" in point["message"] and "repeat 1 of 1" in point["message"]
    failed_with(measure(python="/bin/false"), "client_missing")
    reported = succeeded(measure(python=broken_client("die"), failed_points="report", concurrencies=[1, 2]))
    assert [point["reason"] for point in reported["points"]] == ["client_failed"] * 2

    # One that nobody can listen to.
    (point,) = succeeded(measure(python=broken_client("no_functions")))["points"]
    assert [repeat["accept_length_source"] for repeat in point["repeats"]] == ["sample"]
    assert point["median"]["accept_length"] == pytest.approx(ACCEPT, abs=0.1)

    # Requests of others, with which a server is not measured, unless somebody wants that.
    with used_by_others(server):
        assert "1 requests of others" in failed_with(measure(idle_timeout=0.1), "other_load")["message"]
        (point,) = succeeded(measure(idle_timeout=0.1, allow_other_load=True))["points"]
    assert "had 1 requests of others" in point["warnings"][0] and "not flushed" in point["warnings"][1]


def test_an_early_baseline_and_what_becomes_of_it(server, measure):
    server.go({"api-key": KEY}, environment=dict(SPEED, STANDIN_VERSION="0.5.7", STANDIN_FAIL_EVERY="8"))
    server.prove()  # three generations
    result = succeeded(measure(dataset="random-ids", input_len=16))  # one to warm up, and two that count
    assert (result["benchmark"]["module"], result["benchmark"]["version"]) == ("sglang.bench_serving", "0.5.7")
    assert result["benchmark"]["prompts"] is None and result["benchmark"]["input_len"] == 16
    (baseline,) = result["points"]
    (repeat,) = baseline["repeats"]
    assert "random tokens" in baseline["warnings"][0] and repeat["total_input_tokens"] == 32
    assert (repeat["accept_length"], repeat["accept_length_source"], repeat["verify_steps"]) == (None, "", None)
    assert repeat["correct_drafts_histogram"] is None and baseline["median"]["accept_length"] is None
    assert 150 < repeat["output_throughput"] < 420
    point = failed_with(measure(), "requests_failed")  # the eighth is its first that counts
    assert "1 of 2 requests were not completed" in point["message"] and "503" in point["message"]

    # A key that stands in no command line and no environment, while the client runs.
    thread = threading.Thread(target=lambda: found.append(measure(output_len=400)))
    found = []
    thread.start()
    pid = client_of(server)
    for name in ("cmdline", "environ"):
        assert KEY.encode() not in pathlib.Path("/proc/%d/%s" % (pid, name)).read_bytes()
    for path in folder_of(server).iterdir():
        assert KEY.encode() not in path.read_bytes(), path
    # Its server dies.
    server.kill()
    thread.join()
    point = failed_with(found[0], "server_died")
    assert "ended while it was measured" in point["message"] and not is_alive(pid)
    assert measure()["reason"] == "server_died"
