# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings on their way from a preflight into a server that runs with them, and what versions refuse."""

from __future__ import annotations

import pytest

from .server import EAGLE3, behave, succeeded

ADAPTIVE = {
    "adaptive": True,
    "adaptive_config": {"1": {"candidate_steps": [1, 3]}, "32": {"candidate_steps": [0]}},
}


def test_an_adaptive_configuration_is_checked_written_started_and_proven(host, server):
    slow = behave(version="0.5.23", tokens_per_second=100)
    metrics = {"extra_args": ["--enable-metrics"], "max_running_requests": 64}
    server.go(environment=slow, speculative_options=ADAPTIVE, **metrics, **EAGLE3)
    path = server.instance_dir / "current" / "adaptive.json"
    assert '"candidate_steps"' in path.read_text()
    ready = server.prove()["sglang"]
    assert ready["effective"]["speculative_adaptive"] is True
    assert ready["effective"]["speculative_adaptive_config"] == str(path)
    assert ready["mismatches"] == [] and ready["tier"] == {"num_steps": 3, "num_draft_tokens": 4}

    same = succeeded(server.preflight(slow, speculative_options=ADAPTIVE, **metrics, **EAGLE3))
    assert same["sglang"]["changes"] == []
    other = dict(ADAPTIVE, adaptive_config={"1": {"candidate_steps": [3]}, "16": {"candidate_steps": [0]}})
    changed = succeeded(server.preflight(slow, speculative_options=other, **metrics, **EAGLE3))
    assert changed["sglang"]["changes"] == ["file adaptive.json: changed"]

    # Under load the server itself speculates no more, and says so.
    folders = {name: str(server.folder / name) for name in ("state_dir", "run_dir", "log_dir")}
    with server.requests(*[80] * 40):
        (found,) = succeeded(host.module("sglang_info", load_window=0.1, timeout=5, **folders))["servers"]
    assert found["tier"] == {"num_steps": 0, "num_draft_tokens": 1}
    assert found["load_window"]["peak"] == 40 and found["load_window"]["complete"] and found["uptime"] > 0
    assert "Adaptive spec params updated: steps 3 -> 0" in server.log()


def test_adaptive_speculation_that_the_running_server_turns_off_is_not_proven_and_the_log_says_why(server):
    server.go(environment=behave(adaptive_disabled_by="pdmux is on"), speculative_options={"adaptive": True}, **EAGLE3)
    result = server.wait()
    assert result["failed"] and result["reason"] == "config_mismatch"
    assert "speculative_adaptive is False instead of True (the log says: " in result["msg"]
    assert result["msg"].count("speculative_adaptive disabled: pdmux is on") == 1


@pytest.mark.parametrize(
    ("version", "options", "words"),
    [
        ("0.5.7", {"speculative_options": ADAPTIVE}, "came with 0.5.11"),
        ("0.5.12", {"speculative_options": ADAPTIVE}, "knows from 0.5.13 on"),
        (
            "0.5.23",
            {"speculative_options": {"adaptive": True}, "speculative_num_steps": 4, "speculative_num_draft_tokens": 5},
            "candidate_steps",
        ),
        ("0.5.17", {"speculative_options": {"adaptve": True}}, "did you mean --speculative-adaptive?"),
        ("0.5.17", {"extra_args": ["--enable-metric"]}, "it would be read as --enable-metrics"),
    ],
)
def test_what_a_version_would_misread_is_refused(server, version, options, words):
    result = server.preflight({"STANDIN_VERSION": version}, **dict(EAGLE3, **options))
    assert result["failed"] and words in result["msg"], result["msg"]


def test_the_middle_version_silently_uses_the_older_worker_and_that_is_said(server):
    tree = {"speculative_num_steps": 5, "speculative_eagle_topk": 4, "speculative_num_draft_tokens": 8}
    old = {"STANDIN_VERSION": "0.5.12"}
    result = succeeded(server.preflight(old, **dict(EAGLE3, **tree)))
    (said,) = [check for check in result["checks"] if check["name"] == "worker"]
    assert said["status"] == "warning" and "eagle_worker.py" in said["message"]
    result = server.preflight(dict(old, SGLANG_ENABLE_SPEC_V2="True"), **dict(EAGLE3, **tree))
    assert result["failed"] and "eagle_worker.py" in result["msg"]
