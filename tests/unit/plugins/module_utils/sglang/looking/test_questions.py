# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a server is asked, and what is made of answers that are none."""

from __future__ import annotations

import json

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import (
    Answer,
    Broken,
    Refused,
    TimedOut,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.looking.questions import ask_info, ask_state

META = {"completion_tokens": 16, "spec_verify_ct": 6, "spec_accept_length": 2.6667}


class Server:
    """Answers by path: a status, an exception, JSON, or bytes as they are."""

    def __init__(self, **paths):
        self.paths = {"/" + name: answer for name, answer in paths.items()}
        self.asked = []

    def get(self, path, timeout):
        return self._answer(path)

    def post(self, path, payload, timeout):
        return self._answer(path)

    def _answer(self, path):
        self.asked.append(path)
        answer = self.paths.get(path, 404)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int):
            return Answer(path, answer, b"", 0.5)
        return Answer(path, 200, answer if isinstance(answer, bytes) else json.dumps(answer).encode(), 0.5)


def test_the_load_is_asked_for_before_anything_makes_one():
    server = Server(health=200, metrics=b"sglang:num_running_reqs 3\n", generate={"meta_info": META})
    told = ask_state(server, 5.0, with_load=True, generate=True)
    assert server.asked == ["/v1/loads", "/get_load", "/metrics", "/health", "/generate"]
    assert told.health.status == 200 and told.load.running == 3 and told.problems == []
    assert told.generated.to_dict() == {"tokens": 16, "seconds": 0.5, "spec_verify_ct": 6, "accept_length": 2.667}


def test_nothing_is_generated_unless_it_is_asked_for_and_the_server_is_healthy():
    for server, generate in (
        (Server(health=200), False),
        (Server(health=503), True),
        (Server(health=Refused("x")), True),
    ):
        assert ask_state(server, 5.0, False, generate).generated is None
        assert "/generate" not in server.asked


def test_a_load_that_is_not_told_is_a_problem_unless_nobody_listens():
    told = ask_state(Server(health=200), 5.0, True, False)
    assert told.problems == ["/v1/loads answers 404; /get_load answers 404; /metrics answers 404"]
    silent = Server(health=Refused("no"), **{"v1/loads": Refused("no")})
    assert ask_state(silent, 5.0, True, False).problems == []


@pytest.mark.parametrize(
    ("answer", "problem", "late"),
    [
        (500, "/generate answers 500", False),
        (TimedOut("it was late"), "it was late", True),
        (Broken("it broke"), "it broke", False),
        ({"x": 1}, "without a token", False),
        ({"meta_info": {"completion_tokens": 0}}, "without a token", False),
        ({"meta_info": {"completion_tokens": True}}, "without a token", False),
        (b"[" * 10**5, "nested too deeply", False),
        (b"<html>", "not JSON", False),
    ],
)
def test_a_generation_that_is_none(answer, problem, late):
    generated = ask_state(Server(health=200, generate=answer), 5.0, False, True).generated
    assert problem in generated.problem and generated.timed_out is late and generated.tokens == 0


def test_a_generation_without_speculation_has_no_acceptance():
    meta = {"completion_tokens": 16, "spec_accept_length": 3.0}
    generated = ask_state(Server(health=200, generate={"meta_info": meta}), 5.0, False, True).generated
    assert (generated.verified, generated.accept_length) == (0, None)


def test_the_configuration_comes_without_its_secrets():
    info = {"api_key": "k1-secret", "admin_api_key": None, "launch_command": "--api-key k1-secret", "tp_size": 2}
    info["internal_states"] = [{"api_key": "k1-secret", "avg_spec_accept_length": 2.0}]
    told = ask_info(Server(server_info=info), 5.0)
    assert told.info == {"admin_api_key": None, "tp_size": 2, "internal_states": [{"avg_spec_accept_length": 2.0}]}
    assert told.problems == []


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (401, "/server_info answers 401"),
        (TimedOut("late"), "late"),
        (b"[]", "not an object"),
        (b'{"a":' * 10**5, "nested too deeply"),
        (b'{"a":' * 600 + b"1" + b"}" * 600, "nested more than"),
        (b'{"a": ' + b"1" * 2000 + b"}", "2000 digits"),
    ],
)
def test_a_configuration_that_is_not_told(answer, problem):
    told = ask_info(Server(server_info=answer), 5.0)
    assert told.info == {} and problem in told.problems[0]


@pytest.mark.parametrize(
    ("info", "metrics", "steps"),
    [
        ({"speculative_adaptive": True, "enable_metrics": True}, b"sglang:spec_num_steps 3\n", 3),
        ({"speculative_adaptive": True, "enable_metrics": True}, b"", None),
        ({"speculative_adaptive": True, "enable_metrics": True}, 404, None),
        ({"speculative_adaptive": True, "enable_metrics": True}, TimedOut("late"), None),
        ({"speculative_adaptive": True, "enable_metrics": False}, b"sglang:spec_num_steps 3\n", None),
        ({"speculative_adaptive": False, "enable_metrics": True}, b"sglang:spec_num_steps 3\n", None),
    ],
)
def test_the_active_tier_is_told_where_the_server_adapts_and_has_metrics(info, metrics, steps):
    server = Server(server_info=info, metrics=metrics)
    told = ask_info(server, 5.0)
    assert (told.tier.num_steps if told.tier else None) == steps and told.problems == []
    assert ("/metrics" in server.asked) == all(info.values())


def test_the_load_of_a_while_is_seen_before_anything_makes_one():
    server = Server(health=200, **{"v1/loads": {"loads": [{"num_running_reqs": 2, "num_waiting_reqs": 0}]}})
    told = ask_state(server, 5.0, True, False, load_window=0.01)
    assert server.asked == ["/v1/loads", "/v1/loads", "/health"]
    assert told.load.running == 2 and told.window.average == 2.0


def test_nobody_listens_is_no_problem_of_the_configuration():
    assert ask_info(Server(server_info=Refused("no")), 5.0).problems == []
