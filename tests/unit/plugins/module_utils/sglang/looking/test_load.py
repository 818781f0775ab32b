# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests and acceptance, as each release of SGLang tells them."""

from __future__ import annotations

import json

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import (
    Answer,
    Broken,
    Refused,
    TimedOut,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.looking.load import (
    from_get_load,
    from_loads,
    from_metrics,
    mean_accept_length,
    read_load,
)

METRICS = """# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{tp_rank="0",dp_rank="0"} 3.0
sglang:num_running_reqs{tp_rank="1",dp_rank="0"} 3.0
sglang:num_running_reqs{tp_rank="0",dp_rank="1"} 2.0
sglang:num_queue_reqs{tp_rank="0",dp_rank="0"} 1.0
sglang:num_running_reqs_total{} 99.0
sglang:spec_accept_length{tp_rank="0"} 2.5
"""


def row(running, waiting, **more):
    return {"num_running_reqs": running, "num_waiting_reqs": waiting, **more}


def numbers(load):
    return None if load is None else (load.running, load.waiting, load.accept_length)


@pytest.mark.parametrize(
    ("read", "body", "expected"),
    [
        (from_loads, {"loads": [row(0, 0)]}, (0, 0, None)),
        (from_loads, {"loads": [row(3, 1), row(2, 0)]}, (5, 1, None)),
        (from_loads, {"loads": [row(1, 0, speculative={"accept_length": 2.4})]}, (1, 0, 2.4)),
        (from_loads, {"loads": [row(1, 0, speculative={"accept_length": 0.0})]}, (1, 0, None)),
        (from_loads, {"loads": [row(1, 0, speculative=7)]}, (1, 0, None)),
        (from_loads, {"loads": []}, None),
        (from_loads, {"loads": [7]}, None),
        (from_loads, {"loads": [{"num_running_reqs": 1}]}, None),
        (from_loads, {"loads": [row(True, 0)]}, None),
        (from_loads, {"loads": [row(-1, 0)]}, None),
        (from_loads, {"loads": [row(10**30, 0)]}, None),
        (from_loads, {"loads": [row(float("nan"), 0)]}, None),
        (from_loads, [], None),
        (from_get_load, [{"num_reqs": 4, "num_waiting_reqs": 1}, {"num_reqs": 1, "num_waiting_reqs": 0}], (4, 1, None)),
        (from_get_load, {"num_reqs": 2, "num_waiting_reqs": 2}, (0, 2, None)),
        (from_get_load, [{"load": 2}], None),
        (from_get_load, "x", None),
        (from_metrics, METRICS, (5, 1, 2.5)),
        (from_metrics, "sglang:num_running_reqs 4\n", (4, None, None)),
        (from_metrics, "sglang:num_running_reqs 1e400\n", None),
        (from_metrics, "sglang:num_running_reqs --\n", None),
        (from_metrics, "sglang:num_queue_reqs 0\n", None),
        (from_metrics, "", None),
    ],
)
def test_what_a_source_says(read, body, expected):
    assert numbers(read(body)) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], None), ([0.0], None), ([2.0, 3.0], 2.5), ([0, 2.0], 2.0), ([True, "2", None, 1e300, float("inf")], None)],
)
def test_acceptance_is_the_mean_of_the_ranks_that_counted(values, expected):
    assert mean_accept_length(values) == expected


class Server:
    """Answers each path by table; every look at the clock takes a second."""

    def __init__(self, answers):
        self.answers = answers
        self.asked = []
        self.now = 0.0

    def clock(self):
        self.now += 1.0
        return self.now

    def get(self, path, timeout):
        self.asked.append((path, timeout))
        answer = self.answers.get(path, 404)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int):
            return Answer(path, answer, b"{}", 0.0)
        return Answer(path, 200, (answer if isinstance(answer, str) else json.dumps(answer)).encode(), 0.0)


def ask(answers, timeout=60.0):
    server = Server(answers)
    return read_load(server, timeout, server.clock), server


@pytest.mark.parametrize(
    ("answers", "source"),
    [
        ({"/v1/loads": {"loads": [row(1, 2)]}}, "/v1/loads"),
        ({"/get_load": [{"num_reqs": 3, "num_waiting_reqs": 2}]}, "/get_load"),
        ({"/metrics": "sglang:num_running_reqs 1\nsglang:num_queue_reqs 2\n"}, "/metrics"),
        ({"/v1/loads": Broken("it broke"), "/get_load": [{"num_reqs": 3, "num_waiting_reqs": 2}]}, "/get_load"),
        ({"/v1/loads": "[" * 10**5, "/get_load": [{"num_reqs": 3, "num_waiting_reqs": 2}]}, "/get_load"),
    ],
)
def test_the_first_source_that_tells_counts(answers, source):
    load, _server = ask(answers)
    assert load.to_dict() == {"running": 1, "waiting": 2, "source": source}


def test_a_server_without_any_source_says_why():
    load, server = ask({"/v1/loads": 401, "/get_load": {"x": 1}})
    assert numbers(load) == (None, None, None)
    assert load.problem == "/v1/loads answers 401; /get_load does not tell it; /metrics answers 404"
    assert [path for path, _timeout in server.asked] == ["/v1/loads", "/get_load", "/metrics"]


def test_all_sources_together_have_one_limit():
    load, server = ask({"/v1/loads": TimedOut("late"), "/get_load": TimedOut("late")}, timeout=2.5)
    assert [timeout for _path, timeout in server.asked] == [1.5, 0.5]
    assert load.problem == "late; late; no time was left for /metrics"


def test_where_nobody_listens_nothing_more_is_asked():
    load, server = ask({"/v1/loads": Refused("nothing listens")})
    assert load.problem == "nothing listens" and len(server.asked) == 1
