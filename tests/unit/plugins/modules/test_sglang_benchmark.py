# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""sglang_benchmark through its real main(): its options.  What it measures is in tests/simulated."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark import task as task_module
from ansible_collections.inferops.sglang.plugins.modules import sglang_benchmark


@pytest.fixture
def call(run_module, tmp_path):
    prompts = tmp_path / "p.jsonl"
    prompts.write_text('"Tell me a story"\n')

    def run(check=False, **options):
        folders = {name: str(tmp_path) for name in ("state_dir", "run_dir", "log_dir")}
        given = {"concurrencies": [1], "prompts": str(prompts), "manager": "process", **folders, **options}
        given = {name: value for name, value in given.items() if value is not None}
        return run_module(sglang_benchmark, given, check=check)[1]

    return run


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"concurrencies": []}, "concurrencies: it is empty"),
        ({"concurrencies": [0]}, "concurrencies: 0 is not possible"),
        ({"concurrencies": [9000]}, "concurrencies: 9000 is not possible: give numbers from 1 to 8192"),
        ({"concurrencies": [8, 1, 8]}, "has a number twice"),
        ({"concurrencies": None}, "concurrencies"),
        ({"output_len": 3}, "output_len: 3 is not possible: give a number from 4"),
        ({"input_len": 1}, "input_len"),
        ({"repeats": 0}, "repeats"),
        ({"prompts_per_stream": 0}, "prompts_per_stream"),
        ({"num_prompts_min": 0}, "num_prompts_min"),
        ({"warmup_requests": -1}, "warmup_requests"),
        ({"seed": -1}, "seed"),
        ({"num_prompts": 7, "concurrencies": [1, 8]}, "num_prompts: 7 requests can never be 8 at a time"),
        ({"timeout": 0}, "timeout: 0.0 is not a positive number of seconds"),
        ({"timeout": "inf"}, "timeout: inf"),
        ({"interval": 0}, "interval"),
        ({"request_timeout": "nan"}, "request_timeout"),
        ({"idle_timeout": -1}, "idle_timeout"),
        ({"return_after": -1}, "return_after"),
        ({"progress_interval": "nan"}, "progress_interval"),
        ({"prompts": None}, "dataset is custom but all of the following are missing: prompts"),
        ({"prompts": "/no/such/file"}, "prompts: /no/such/file cannot be read"),
        ({"dataset": "random"}, "dataset must be one of"),
        ({"api_key": "two words"}, "api_key: it holds characters"),
        ({"instance": "../x"}, "instance"),
        ({"state_dir": "relative"}, "state_dir"),
        ({"resume": {"format": 9}}, "current does not exist"),
        ({"failed_points": "ignore"}, "failed_points must be one of"),
    ],
)
def test_options_that_make_no_sense(call, options, words):
    result = call(**options)
    assert result["failed"] and words in result["msg"], result


@pytest.mark.parametrize("check", [False, True])
def test_without_a_release_nothing_is_measured(call, check):
    result = call(check=check)
    assert result["failed"] and result["reason"] == "no_release" and "deploy a release" in result["msg"]
    assert call(dataset="random-ids", prompts=None)["reason"] == "no_release"


def test_without_systemd(call, monkeypatch):
    monkeypatch.setattr(sglang_benchmark.AnsibleModule, "get_bin_path", lambda *args, **kwargs: None)
    assert "set manager to process" in call(manager="systemd")["msg"]


def point(state, reason="", message=""):
    return {"concurrency": 8, "state": state, "reason": reason, "message": message}


@pytest.mark.parametrize(
    ("points", "failed_points", "failed"),
    [
        ([point("measured")], "fail", False),
        ([point("measured"), point("failed", "timeout", "Too slow.")], "fail", True),
        ([point("failed", "timeout", "Too slow.")], "report", False),
    ],
)
def test_failed_points(call, monkeypatch, points, failed_points, failed):
    class Task:
        def __init__(self, params, run):
            pass

        def run(self):
            pass

        def results(self):
            return {"changed": False, "points": points}

    monkeypatch.setattr(sglang_benchmark, "BenchmarkTask", Task)
    result = call(failed_points=failed_points)
    assert bool(result.get("failed")) is failed and result["points"] == points
    if failed:
        assert result["reason"] == "timeout" and result["msg"] == "1 of 2 points failed. Concurrency 8: Too slow."


def test_a_client_does_not_outlive_a_bug(call, monkeypatch):
    ended = []

    class Task(task_module.BenchmarkTask):
        def __init__(self, params, run):
            pass

        def run(self):
            raise ZeroDivisionError

        def give_up(self):
            ended.append(True)

    monkeypatch.setattr(sglang_benchmark, "BenchmarkTask", Task)
    with pytest.raises(ZeroDivisionError):
        call()
    assert ended == [True]
