# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting until a server has no requests."""

from __future__ import annotations

import json

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import Answer, Refused, TimedOut
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.drain import (
    count_get_load,
    count_loads,
    count_metrics,
    drain,
)
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import FakeClock


def loads(*pairs):
    return {"loads": [{"num_running_reqs": running, "num_waiting_reqs": waiting} for running, waiting in pairs]}


METRICS = """# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",tp_rank="0",dp_rank="0"} 3.0
sglang:num_running_reqs{engine_type="unified",tp_rank="1",dp_rank="0"} 3.0
sglang:num_running_reqs{engine_type="unified",tp_rank="0",dp_rank="1"} 2.0
sglang:num_queue_reqs{engine_type="unified",tp_rank="0",dp_rank="0"} 1.0
sglang:num_running_reqs_total{} 99.0
"""


@pytest.mark.parametrize(
    ("count", "body", "expected"),
    [
        (count_loads, loads((0, 0)), 0),
        (count_loads, loads((3, 1), (2, 0)), 6),
        (count_loads, {"loads": []}, None),
        (count_loads, {"loads": [{"num_running_reqs": 1}]}, None),
        (count_loads, {"loads": [{"num_running_reqs": True, "num_waiting_reqs": 0}]}, None),
        (count_loads, [], None),
        (count_get_load, [{"num_reqs": 4, "num_waiting_reqs": 1}, {"num_reqs": 1}], 5),
        (count_get_load, {"num_reqs": 2}, 2),
        (count_get_load, [{"load": 2}], None),
        (count_get_load, "x", None),
        (count_metrics, METRICS, 6),
        (count_metrics, METRICS.replace("} 3.0", "} 0.0").replace("} 2.0", "} 0.0").replace("} 1.0", "} 0.0"), 0),
        (count_metrics, "sglang:num_queue_reqs 0\n", None),
        (count_metrics, "", None),
    ],
)
def test_what_the_sources_say(count, body, expected):
    assert count(body) == expected


class Server:
    """Answers each path by table; a list is used up, its last element stays."""

    def __init__(self, **paths):
        self.paths = {"/" + name.replace("__", "/"): answers for name, answers in paths.items()}
        self.asked = []

    def get(self, path, timeout):
        self.asked.append(path)
        answer = self.paths.get(path, 404)
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int):
            return Answer(path, answer, b"{}", 0.0)
        return Answer(path, 200, (answer if isinstance(answer, str) else json.dumps(answer)).encode(), 0.0)


def run(server, budget=10.0, alive=lambda: True):
    clock = FakeClock()
    return drain(server, budget, alive, clock, clock.sleep)


def test_two_looks_in_a_row_must_find_none():
    server = Server(v1__loads=[loads((1, 0)), loads((0, 0)), loads((0, 1)), loads((0, 0)), loads((0, 0))])
    result = run(server)
    assert len(server.asked) == 5
    assert result.to_dict() == {"asked": True, "seconds": 1.0, "in_flight": 0, "source": "/v1/loads", "message": ""}
    assert not result.notable


@pytest.mark.parametrize(
    ("server", "source"),
    [
        (Server(get_load=[{"num_reqs": 0}]), "/get_load"),
        (Server(v1__loads=401, get_load=401, metrics=METRICS.replace("3.0", "0").replace("2.0", "0")), ""),
        (Server(metrics="sglang:num_running_reqs 0\nsglang:num_queue_reqs 0\n"), "/metrics"),
        (Server(v1__loads=401, get_load=404, metrics="sglang:num_running_reqs 0\n"), "/metrics"),
    ],
)
def test_the_first_source_that_tells_is_kept(server, source):
    result = run(server, budget=2.0)
    assert result.source == (source or "/metrics")
    assert server.asked[-1] == server.asked[-2] == result.source


def test_budget_over():
    result = run(Server(v1__loads=loads((2, 3))), budget=1.0)
    assert (result.in_flight, result.seconds, result.notable) == (5, 1.0, True)
    assert "5 requests were left when drain_timeout (1 s) was over" in result.message


def test_nobody_is_asked_without_a_budget():
    server = Server()
    result = run(server, budget=0)
    assert (result.asked, server.asked, result.notable) == (False, [], False)


def test_one_that_does_not_listen_is_not_waited_for():
    result = run(Server(v1__loads=Refused("nothing listens on x")))
    assert (result.seconds, result.in_flight, result.notable) == (0.0, None, False)
    assert "nothing listens" in result.message


def test_one_that_does_not_tell_is_not_waited_for():
    result = run(Server(v1__loads=401, get_load=401, metrics=404))
    assert result.notable and "/v1/loads answers 401" in result.message and "/metrics answers 404" in result.message
    result = run(Server(v1__loads=TimedOut("no answer"), get_load=TimedOut("no answer"), metrics=TimedOut("none")))
    assert result.seconds == 0.0 and "no answer" in result.message


def test_late_answers_of_a_busy_server_are_tolerated():
    late = TimedOut("late")
    server = Server(v1__loads=[loads((1, 0)), late, late, late, loads((0, 0)), loads((0, 0))])
    assert run(server).in_flight == 0
    server = Server(v1__loads=[loads((1, 0)), late])
    result = run(server)
    assert result.in_flight is None and "late" in result.message and result.seconds < 2


def test_the_end_of_the_main_process_ends_it():
    lives = [True, True, False]
    result = run(Server(v1__loads=loads((1, 0))), alive=lambda: lives.pop(0))
    assert result.message == "the server ended meanwhile" and result.in_flight is None
