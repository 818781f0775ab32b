# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The waiting, against a scripted server and a clock that only moves when somebody waits."""

from __future__ import annotations

import json

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang import readiness
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import (
    Answer,
    Broken,
    Refused,
    TimedOut,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness import (
    Limits,
    NotReady,
    ProcessStatus,
    Waiter,
)

ALIVE = ProcessStatus(100)


class World:
    """A clock, a server that answers by a script, and the state of its process."""

    address = "127.0.0.1:30000"

    def __init__(self):
        self.now = 1000.0
        self.asked = []
        self.timeouts = []
        self.health = []  # one entry for each request; the last one stays
        self.generate = []
        self.info = [self.ok({"version": "0.5.17"})]
        self.process = lambda now: ALIVE
        self.foreign = ""

    # -- what the waiter sees

    def clock(self):
        return self.now

    def sleep(self, seconds):
        assert seconds > 0
        self.now += seconds

    def get(self, path, timeout):
        return self._reply(path, timeout, self.health if path == "/health" else self.info)

    def post(self, path, payload, timeout):
        self.payload = payload
        return self._reply(path, timeout, self.generate)

    def inspect(self):
        return self.process(self.now - 1000.0)

    # -- the script

    def _reply(self, path, timeout, script):
        self.asked.append(path)
        self.timeouts.append(timeout)
        step = script.pop(0) if len(script) > 1 else script[0]
        if isinstance(step, TimedOut):
            self.now += timeout
        if isinstance(step, Exception):
            raise step
        status, body = step if isinstance(step, tuple) else (step, b"")
        return Answer(path, status, body, 0.01)

    @staticmethod
    def ok(body):
        return 200, json.dumps(body).encode()

    def tokens(self, count=128, **meta):
        return self.ok({"text": "x", "meta_info": {"completion_tokens": count, **meta}})

    def waiter(self, timeout=100.0, interval=0.5, request_timeout=30.0):
        return Waiter(
            self, self.inspect, lambda: self.foreign, Limits(timeout, interval, request_timeout), self.clock, self.sleep
        )


REFUSED = Refused("nothing listens on 127.0.0.1:30000")
SLOW = TimedOut("no answer")
BROKEN = Broken("connection reset")


@pytest.fixture
def world():
    return World()


def failure(call):
    with pytest.raises(NotReady) as raised:
        call()
    return raised.value


# -- until /health


def test_refused_then_503_then_200(world):
    world.health = [REFUSED] * 4 + [503] * 2 + [200]
    waiter = world.waiter()
    waiter.wait_for_health()
    world.generate = [world.tokens(spec_verify_ct=40)]
    (generation,) = waiter.generate(["hello"], 128)
    assert (generation.completion_tokens, generation.meta_info["spec_verify_ct"]) == (128, 40)
    assert waiter.server_info() == {"version": "0.5.17"}
    waiter.check_still_there()
    assert world.payload == {
        "text": "hello",
        "sampling_params": {"temperature": 0, "max_new_tokens": 128, "ignore_eos": True},
        "stream": False,
    }
    # Nothing but /health decides about readiness.
    assert world.asked == ["/health"] * 7 + ["/generate", "/server_info"]
    phases = waiter.journal.phases()
    assert [phase["name"] for phase in phases] == ["starting", "warming_up", "ready", "generating", "proving"]
    assert [phase["seconds"] for phase in phases[:2]] == [2.0, 1.0]
    assert waiter.warnings == []


def test_a_server_that_is_up_already(world):
    world.health = [200]
    waiter = world.waiter()
    waiter.wait_for_health()
    assert waiter.journal.phase == "ready" and world.now == 1000.0


def test_dies_while_it_loads(world):
    world.health = [REFUSED]
    world.process = lambda now: ALIVE if now < 3 else ProcessStatus(None, dead=True, detail="it ended", exit_status=1)
    error = failure(world.waiter().wait_for_health)
    assert (error.reason, error.in_log, error.status.exit_status) == ("died", True, 1)
    assert "phase starting: it ended" in str(error)
    assert world.now == 1003.0


def test_dies_in_its_warm_up(world):
    world.health = [REFUSED] * 3 + [503] * 3 + [REFUSED]
    world.process = lambda now: ALIVE if now < 3 else ProcessStatus(None, dead=True, detail="it ended")
    error = failure(world.waiter().wait_for_health)
    assert error.reason == "died" and "phase warming_up" in str(error)


def test_is_not_running_at_all(world):
    world.process = lambda now: ProcessStatus(None, dead=True, detail="there is no PID file")
    assert failure(world.waiter().wait_for_health).reason == "died"
    assert world.asked == []


def test_never_listens(world):
    world.health = [REFUSED]
    error = failure(world.waiter(timeout=20).wait_for_health)
    assert error.reason == "timeout" and error.in_log
    assert "within 20 s" in str(error) and "phase starting" in str(error) and "nothing listens" in str(error)
    assert world.now == pytest.approx(1020.0)


def test_never_leaves_its_warm_up(world):
    world.health = [503]
    error = failure(world.waiter(timeout=20).wait_for_health)
    assert error.reason == "timeout" and "phase warming_up" in str(error) and "503" in str(error)


def test_a_health_that_hangs_is_waited_for_until_the_deadline_and_no_longer(world):
    world.health = [SLOW]
    error = failure(world.waiter(timeout=70).wait_for_health)
    assert error.reason == "timeout" and "no answer" in str(error)
    assert world.now <= 1070.5
    assert max(world.timeouts) == 30.0 and min(world.timeouts) < 30.0


def test_flapping_between_503_and_silence_is_no_failure(world):
    world.health = [503, SLOW, 503, BROKEN, 503, SLOW, REFUSED, 503, 200]
    world.waiter(timeout=500).wait_for_health()


@pytest.mark.parametrize("answer", [404, 401, 500, BROKEN])
def test_something_else_answers(world, answer):
    world.health = [answer]
    error = failure(world.waiter().wait_for_health)
    assert error.reason == "unexpected_answer" and "Check host and port" in str(error)
    assert len(world.asked) == readiness.TOLERATED + 1


def test_it_stops_listening_after_its_warm_up_began(world):
    world.health = [503, REFUSED]
    assert failure(world.waiter().wait_for_health).reason == "unexpected_answer"


def test_an_older_server_answers_for_the_one_that_loads(world):
    world.health = [200]
    world.foreign = "PID 7 (python3 of root) listens on port 30000"
    error = failure(world.waiter().wait_for_health)
    assert error.reason == "foreign_listener" and "PID 7" in str(error) and len(world.asked) == 1


def test_the_port_changes_hands_in_the_end(world):
    world.health = [200]
    waiter = world.waiter()
    waiter.wait_for_health()
    world.foreign = "PID 7"
    assert failure(waiter.check_still_there).reason == "foreign_listener"


# -- restarts


@pytest.mark.parametrize(
    "later",
    [
        ProcessStatus(101),
        ProcessStatus(100, restarts=1),
        ProcessStatus(101, replaced=True, detail="another start"),
        ProcessStatus(None, replaced=True),
    ],
)
def test_a_restart_while_waiting_is_a_failure(world, later):
    world.health = [REFUSED]
    world.process = lambda now: ALIVE if now < 2 else later
    error = failure(world.waiter().wait_for_health)
    assert error.reason == "restarted" and error.in_log and error.status is later


def test_a_main_process_that_shows_late_is_no_restart(world):
    world.health = [REFUSED, REFUSED, REFUSED, 200]
    world.process = lambda now: ProcessStatus(None) if now < 1 else ALIVE
    world.waiter().wait_for_health()


def test_a_crash_loop_that_began_before_is_a_failure(world):
    world.health = [REFUSED]
    world.process = lambda now: ProcessStatus(100, restarts=3)
    error = failure(world.waiter().wait_for_health)
    assert error.reason == "restarted" and "3 times" in str(error) and len(world.asked) == 1


def test_an_old_restart_of_a_server_that_is_up_is_a_warning(world):
    world.health = [200]
    world.process = lambda now: ProcessStatus(100, restarts=1)
    waiter = world.waiter()
    waiter.wait_for_health()
    assert "1 times" in waiter.warnings[0]


# -- generating


def ready(world, **limits):
    world.health = [200]
    waiter = world.waiter(**limits)
    waiter.wait_for_health()
    return waiter


@pytest.mark.parametrize("stumble", [(503, b"busy"), (500, b"oops"), SLOW, BROKEN, (429, b""), (408, b"")])
def test_a_single_stumble_is_bridged(world, stumble):
    world.generate = [stumble, world.tokens()]
    assert len(ready(world).generate(["a"], 128)) == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [((503, b"busy"), "generation_failed"), (SLOW, "generation_timeout"), (BROKEN, "generation_failed")],
)
def test_a_server_that_is_healthy_but_never_generates(world, answer, reason):
    world.generate = [answer]
    error = failure(lambda: ready(world, timeout=500).generate(["a"], 128))
    assert error.reason == reason and error.in_log
    assert world.asked.count("/generate") == readiness.TOLERATED + 1


def test_a_generation_that_hangs_ends_at_the_deadline(world):
    world.generate = [SLOW]
    error = failure(lambda: ready(world, timeout=40).generate(["a"], 128))
    assert error.reason == "timeout" and "phase generating" in str(error)


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("path", ["/generate", "/server_info"])
def test_a_key_is_wanted(world, path, status):
    world.generate = world.info = [(status, b'{"error":"Unauthorized"}')]
    waiter = ready(world)
    call = waiter.server_info if path == "/server_info" else lambda: waiter.generate(["a"], 128)
    error = failure(call)
    assert error.reason == "unauthorized" and "api_key" in str(error) and world.asked.count(path) == 1


def test_a_request_that_the_server_refuses_is_not_repeated(world):
    world.generate = [(400, b'{"error":{"message":"not a generating model"}}')]
    error = failure(lambda: ready(world).generate(["a"], 128))
    assert error.reason == "unexpected_answer" and "not a generating model" in str(error)
    assert world.asked.count("/generate") == 1


def test_dies_while_it_generates(world):
    world.generate = [SLOW]
    world.process = lambda now: ALIVE if now < 5 else ProcessStatus(None, dead=True, detail="it ended")
    error = failure(lambda: ready(world).generate(["a"], 128))
    assert error.reason == "died" and "phase generating" in str(error)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"text": ""}, "unexpected_answer"),
        ([], "unexpected_answer"),
        ({"meta_info": {}}, "generation_failed"),
        ({"meta_info": {"completion_tokens": 0}}, "generation_failed"),
        (
            {"meta_info": {"completion_tokens": 3, "finish_reason": {"type": "abort", "message": "no room"}}},
            "generation_failed",
        ),
    ],
)
def test_an_answer_without_tokens_is_no_generation(world, body, reason):
    world.generate = [world.ok(body)]
    assert failure(lambda: ready(world).generate(["a"], 128)).reason == reason


@pytest.mark.parametrize("body", [b"<html>", b"[]"])
def test_a_server_info_that_is_none(world, body):
    world.info = [(200, body)]
    assert failure(ready(world).server_info).reason == "unexpected_answer"


def test_good_answers_are_not_kept_because_they_may_hold_secrets(world):
    world.info = [world.ok({"api_key": "sk-secret"})]
    waiter = ready(world)
    waiter.server_info()
    assert waiter.journal.answers[-1].strip() == "proving: /server_info answered 200"


def test_the_last_answers_are_few_and_differ(world):
    world.health = [REFUSED] * 30 + [503, 500] * 3 + [503] * 30 + [200]
    waiter = world.waiter()
    waiter.wait_for_health()
    assert len(waiter.journal.answers) == 5
    assert all(a != b for a, b in zip(waiter.journal.answers, waiter.journal.answers[1:]))
