# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings on their way from a preflight into a server that runs with them, and what versions refuse."""

from __future__ import annotations

import pytest

from .server import EAGLE3, succeeded

ADAPTIVE = {
    "adaptive": True,
    "adaptive_config": {"1": {"candidate_steps": [1, 3]}, "32": {"candidate_steps": [0]}},
}
NEW = {"STANDIN_VERSION": "0.5.23"}


def test_an_adaptive_configuration_is_checked_written_started_and_proven(server):
    server.go(environment=NEW, max_running_requests=64, speculative_options=ADAPTIVE, **EAGLE3)
    path = server.instance_dir / "current" / "adaptive.json"
    assert '"candidate_steps"' in path.read_text()
    ready = server.prove()["sglang"]
    assert ready["effective"]["speculative_adaptive"] is True
    assert ready["effective"]["speculative_adaptive_config"] == str(path)
    assert ready["mismatches"] == []

    same = succeeded(server.preflight(NEW, max_running_requests=64, speculative_options=ADAPTIVE, **EAGLE3))
    assert same["sglang"]["changes"] == []
    other = dict(ADAPTIVE, adaptive_config={"1": {"candidate_steps": [3]}, "16": {"candidate_steps": [0]}})
    changed = succeeded(server.preflight(NEW, max_running_requests=64, speculative_options=other, **EAGLE3))
    assert changed["sglang"]["changes"] == ["file adaptive.json: changed"]


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
