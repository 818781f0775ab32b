# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The waiting, against a scripted server and a clock that only moves when somebody waits."""

from __future__ import annotations

import json
import threading
import time

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import (
    Answer,
    Broken,
    Refused,
    TimedOut,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness import readiness
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.readiness import (
    Limits,
    NotReady,
    ProcessStatus,
    StillWaiting,
    Waiter,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.soak import SoakCount, SoakPlan
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.start_progress import LogWatch

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

    def waiter(self, timeout=100.0, interval=0.5, request_timeout=30.0, return_after=0.0, lines=None, **more):
        if lines is not None:
            more["log"] = LogWatch(lambda: lines(self.now - 1000.0), self.clock)
        return Waiter(
            self,
            self.inspect,
            lambda: self.foreign,
            Limits(timeout, interval, request_timeout, return_after),
            self.clock,
            self.sleep,
            **more,
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
    generation = waiter.generate("hello", 128)
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
    assert waiter.warnings() == []


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
    error = failure(world.waiter().wait_for_health)
    assert error.reason == "unexpected_answer" and "going down" in str(error) and error.in_log


def test_one_that_goes_down_slowly_is_told_by_why_it_died(world):
    """Eight GPUs are given back by a process that lives for seconds after its socket was closed."""
    world.health = [503, REFUSED]
    world.process = lambda now: ALIVE if now < 20 else ProcessStatus(None, dead=True, detail="it ended", exit_status=1)
    assert failure(world.waiter().wait_for_health).reason == "died"
    with pytest.raises(NotReady) as raised:
        world.now = 1000.0
        in_parts(world, lambda waiter: waiter.wait_for_health(), return_after=5)
    assert raised.value.reason == "died"


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


def test_an_old_restart_of_a_server_that_answers_503_once_is_no_crash_loop(world):
    world.health = [503, 200]
    world.process = lambda now: ProcessStatus(100, restarts=1)
    world.waiter().wait_for_health()


def test_an_old_restart_of_a_server_that_is_up_is_a_warning(world):
    world.health = [200]
    world.process = lambda now: ProcessStatus(100, restarts=1)
    waiter = world.waiter()
    waiter.wait_for_health()
    assert "1 times" in waiter.warnings()[0]


# -- generating


def ready(world, up_before=False, **limits):
    world.health = [200] if up_before else [503, 200]
    waiter = world.waiter(**limits)
    waiter.wait_for_health()
    return waiter


@pytest.mark.parametrize("stumble", [(503, b"busy"), (500, b"oops"), SLOW, BROKEN, (429, b""), (408, b"")])
def test_a_single_stumble_is_bridged(world, stumble):
    waiter = ready(world, timeout=1000)
    for _again in range(2):  # and forgotten
        world.generate = [*[stumble] * readiness.TOLERATED, world.tokens()]
        assert waiter.generate("a", 128).completion_tokens == 128


def test_a_server_whose_queue_is_full_gets_some_seconds(world):
    waiter = ready(world)
    began = world.now
    world.generate = [*[(503, b"The request queue is full.")] * readiness.TOLERATED, world.tokens()]
    waiter.generate("a", 128)
    assert world.now - began >= 7


def test_a_busy_server_that_was_up_before_gets_more_time_for_each_request(world):
    """Asked again after the same time, one would stand at the end of its queue for ever."""
    waiter = ready(world, up_before=True, timeout=1000)
    world.generate, world.timeouts = [SLOW, SLOW, SLOW, world.tokens()], []
    waiter.generate("a", 128)
    assert world.timeouts == [30.0, 60.0, 120.0, 240.0]
    began = world.now
    world.generate = [*[(503, b"The request queue is full.")] * readiness.TOLERATED, world.tokens()]
    waiter.generate("a", 128)
    assert world.now - began >= 28


def test_a_server_that_was_just_started_serves_nobody_else(world):
    waiter = ready(world, timeout=1000)
    world.generate, world.timeouts = [SLOW, SLOW, SLOW, world.tokens()], []
    waiter.generate("a", 128)
    assert world.timeouts == [30.0] * 4


@pytest.mark.parametrize(
    ("answer", "reason"),
    [((503, b"busy"), "generation_failed"), (SLOW, "generation_timeout"), (BROKEN, "generation_failed")],
)
def test_a_server_that_is_healthy_but_never_generates(world, answer, reason):
    world.generate = [answer]
    error = failure(lambda: ready(world, timeout=500).generate("a", 128))
    assert error.reason == reason and error.in_log
    assert world.asked.count("/generate") == readiness.TOLERATED + 1


def test_a_generation_that_hangs_ends_at_the_deadline(world):
    world.generate = [SLOW]
    error = failure(lambda: ready(world, timeout=40).generate("a", 128))
    assert error.reason == "timeout" and "phase generating" in str(error)


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("path", ["/generate", "/server_info"])
def test_a_key_is_wanted(world, path, status):
    world.generate = world.info = [(status, b'{"error":"Unauthorized"}')]
    waiter = ready(world)
    call = waiter.server_info if path == "/server_info" else lambda: waiter.generate("a", 128)
    error = failure(call)
    assert error.reason == "unauthorized" and "api_key" in str(error) and world.asked.count(path) == 1


def test_a_request_that_the_server_refuses_is_not_repeated(world):
    world.generate = [(400, b'{"error":{"message":"not a generating model"}}')]
    error = failure(lambda: ready(world).generate("a", 128))
    assert error.reason == "unexpected_answer" and "not a generating model" in str(error)
    assert world.asked.count("/generate") == 1


def test_dies_while_it_generates(world):
    world.generate = [SLOW]
    world.process = lambda now: ALIVE if now < 5 else ProcessStatus(None, dead=True, detail="it ended")
    error = failure(lambda: ready(world).generate("a", 128))
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
    assert failure(lambda: ready(world).generate("a", 128)).reason == reason


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


# -- the log of a server that loads


def loading(now):
    """A log that goes on until the fortieth second."""
    done = min(int(now), 40)
    return [
        "[2026-01-02 03:04:05] Load weight begin.",
        "Loading safetensors checkpoint shards: %d%% Completed | x" % done,
    ]


def test_a_timeout_names_the_phase_that_the_log_tells_and_its_last_line(world):
    world.health = [REFUSED]
    error = failure(world.waiter(timeout=200, lines=loading).wait_for_health)
    assert error.reason == "timeout"
    assert "phase loading_weights (40 %)" in str(error) and "shards: 40% Completed" in str(error)
    assert "the log has not moved for 1" in str(error)


def test_a_log_that_moves_is_not_called_silent(world):
    world.health = [REFUSED]
    error = failure(world.waiter(timeout=30, lines=loading).wait_for_health)
    assert "(30 %)" in str(error) and "not moved" not in str(error)


def test_the_phases_come_from_the_log_until_somebody_listens(world):
    world.health = [REFUSED] * 40 + [503] * 40 + [200]
    waiter = world.waiter(lines=loading)
    waiter.wait_for_health()
    phases = waiter.journal.phases()
    assert [phase["name"] for phase in phases] == ["starting", "loading_weights", "warming_up", "ready"]
    assert phases[0]["seconds"] == 5.0 and phases[1]["seconds"] == 15.0


def test_a_death_names_the_phase_although_the_log_was_not_due(world):
    world.health = [REFUSED]
    world.process = lambda now: ALIVE if now < 3 else ProcessStatus(None, dead=True, detail="it ended")
    assert "phase loading_weights (3 %)" in str(failure(world.waiter(lines=loading).wait_for_health))


# -- workers


class Workers:
    def __init__(self, world, since):
        self.world = world
        self.since = since

    def look(self, listening=False):
        return "sglang::scheduler (PID 7)" if self.world.now >= 1000 + self.since else ""


def test_a_worker_that_is_gone_while_nothing_is_served(world):
    world.health = [503]
    error = failure(world.waiter(timeout=500, workers=Workers(world, 20)).wait_for_health)
    assert error.reason == "worker_died" and "scheduler (PID 7)" in str(error) and "warming_up" in str(error)
    assert error.in_log and world.now == 1020.0


def test_a_worker_that_is_gone_while_all_is_served_is_a_warning(world):
    world.health = [200]
    world.generate = [world.tokens()]
    waiter = world.waiter(workers=Workers(world, 0.0))
    waiter.wait_for_health()
    waiter.generate("a", 128)
    assert "although the server answers" in waiter.warnings()[0]


# -- in parts


def in_parts(world, step, **limits):
    """Do a step in as many parts as it takes; the parts' waiters."""
    waiters = [world.waiter(**limits)]
    while True:
        try:
            step(waiters[-1])
            return waiters
        except StillWaiting:
            world.now += 2.0  # between two parts
            waiters.append(world.waiter(kept=waiters[-1].kept(), **limits))
            assert len(waiters) < 100


def test_parts_are_one_wait(world):
    world.health = [REFUSED] * 40 + [503] * 40 + [200]
    waiters = in_parts(world, lambda waiter: waiter.wait_for_health(), return_after=10)
    assert 3 < len(waiters) < 7
    journal = waiters[-1].journal
    assert [phase["name"] for phase in journal.phases()] == ["starting", "warming_up", "ready"]
    assert journal.elapsed == world.now - 1000.0
    assert journal.answers == ["starting: nothing listens on 127.0.0.1:30000", *journal.answers[1:]]
    assert not waiters[-1].was_up


def test_a_new_part_does_not_fall_back_to_the_first_phase(world):
    world.health = [REFUSED] * 120 + [200]
    waiters = in_parts(world, lambda waiter: waiter.wait_for_health(), timeout=500, return_after=10, lines=loading)
    assert len(waiters) > 4
    phases = [phase["name"] for phase in waiters[-1].journal.phases()]
    assert phases == ["starting", "loading_weights", "warming_up", "ready"]


def test_the_deadline_is_that_of_the_whole_wait(world):
    world.health = [REFUSED]
    error = failure(lambda: in_parts(world, lambda waiter: waiter.wait_for_health(), timeout=60, return_after=10))
    assert error.reason == "timeout" and 1060 <= world.now <= 1062


def test_a_part_returns_at_once_when_it_is_ready(world):
    world.health = [REFUSED, REFUSED, 200]
    waiters = in_parts(world, lambda waiter: waiter.wait_for_health(), return_after=10)
    assert len(waiters) == 1 and world.now == 1001.0


def test_a_new_phase_ends_a_part_sooner(world):
    world.health = [REFUSED, 503]
    with pytest.raises(StillWaiting):
        world.waiter(return_after=10).wait_for_health()
    assert world.now == 1005.0


def test_another_process_between_two_parts_is_noticed(world):
    world.health = [REFUSED]
    world.process = lambda now: ALIVE if now < 11 else ProcessStatus(101)
    error = failure(lambda: in_parts(world, lambda waiter: waiter.wait_for_health(), return_after=10))
    assert error.reason == "restarted"


def test_a_crash_loop_that_began_between_two_parts_is_noticed(world):
    world.health = [REFUSED]
    world.process = lambda now: ALIVE if now < 11 else ProcessStatus(100, restarts=1)
    error = failure(lambda: in_parts(world, lambda waiter: waiter.wait_for_health(), return_after=10))
    assert error.reason == "restarted"


def test_failures_in_a_row_are_counted_over_all_parts(world):
    world.health, world.generate = [200], [SLOW]

    def step(waiter):
        if waiter.journal.phase == "starting":
            waiter.wait_for_health()
        waiter.generate("a", 128)

    error = failure(lambda: in_parts(world, step, timeout=1000, return_after=10))
    assert error.reason == "generation_timeout"
    assert world.asked.count("/generate") == readiness.TOLERATED + 1


# -- under load


@pytest.fixture
def loaded(world):
    """A world whose clock goes on by itself: threads wait in real time."""
    world.health = [200]
    world.lock = threading.Lock()
    world.answered = 0

    def post(path, payload, timeout):
        time.sleep(0.01)  # threads that need no time run ahead of who counts
        with world.lock:
            number, world.answered = world.answered, world.answered + 1
            world.timeouts.append(timeout)
            world.texts = [*getattr(world, "texts", []), payload["text"]]
        step = world.script(number)
        if isinstance(step, Exception):
            raise step
        status, body = step
        return Answer(path, status, body, 0.01)

    world.post = post
    world.script = lambda number: world.tokens(32, spec_verify_ct=10)
    return world


def soak(world, requests=40, concurrency=4, **limits):
    count = SoakCount()
    waiter = world.waiter(interval=0.02, **limits)
    waiter.wait_for_health()
    waiter.soak(SoakPlan(requests, concurrency, 32), count, "n")
    return count


def test_all_requests_are_answered_and_all_are_different(loaded):
    count = soak(loaded)
    assert (count.requests, count.failed, loaded.answered) == (40, 0, 40)
    assert count.result()["accept_length"] == 3.2
    assert len(set(loaded.texts)) == 40 and len({text.split()[0] for text in loaded.texts}) == 40


@pytest.mark.parametrize(("health", "seconds"), [([200], 120.0), ([503, 200], 30.0)])
def test_a_server_that_may_serve_others_gets_more_time_under_load(loaded, health, seconds):
    loaded.health = health
    soak(loaded, requests=4, timeout=1000)
    assert loaded.timeouts[-4:] == [seconds] * 4


@pytest.mark.parametrize("stumble", [(503, b""), SLOW, BROKEN])
def test_one_in_twenty_may_fail_under_load(loaded, stumble):
    loaded.script = lambda number: stumble if number in (7, 22) else loaded.tokens(32)
    assert soak(loaded).failed == 2


@pytest.mark.parametrize(("stumble", "reason"), [(SLOW, "hangs_under_load"), ((503, b"busy"), "generation_failed")])
def test_more_may_not(loaded, stumble, reason):
    loaded.script = lambda number: stumble if number >= 12 else loaded.tokens(32)
    error = failure(lambda: soak(loaded))
    assert error.reason == reason and "4 requests at a time" in str(error) and error.in_log
    if reason == "hangs_under_load":
        assert "of 40 requests it has answered 12" in str(error)
    # It does not go on until all have failed.
    assert loaded.answered < 30


def test_a_death_under_load_is_noticed_although_requests_hang(loaded):
    asked = threading.Event()

    def hang(_number):
        asked.set()
        time.sleep(5)
        return SLOW

    loaded.script = hang
    loaded.process = lambda now: ProcessStatus(None, dead=True, detail="it ended") if asked.is_set() else ALIVE
    began = time.monotonic()
    error = failure(lambda: soak(loaded))
    assert error.reason == "died" and "phase soaking" in str(error)
    assert time.monotonic() - began < 4


def test_the_load_ends_at_the_deadline(loaded):
    def slow(_number):
        loaded.now += 10
        return loaded.tokens(32)

    loaded.script = slow
    error = failure(lambda: soak(loaded, timeout=100))
    assert error.reason == "timeout" and "of 40 requests were answered" in str(error)


def test_the_load_goes_on_in_the_next_part(loaded):
    def slow(_number):
        with loaded.lock:
            loaded.now += 1
        return loaded.tokens(32)

    loaded.script = slow
    count, parts = SoakCount(), 1
    waiter = loaded.waiter(interval=0.02, timeout=500, return_after=10)
    waiter.wait_for_health()
    while True:
        try:
            waiter.soak(SoakPlan(40, 4, 32), count, "n")
            break
        except StillWaiting:
            parts += 1
            waiter = loaded.waiter(interval=0.02, timeout=500, return_after=10, kept=waiter.kept())
    assert parts >= 3 and (count.requests, loaded.answered) == (40, 40)
    assert len(set(loaded.texts)) == 40
    assert count.seconds == pytest.approx(40)
