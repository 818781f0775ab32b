# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A benchmark whose server and client answer by a script."""

from __future__ import annotations

import copy
import json

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark import task as task_module
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.client_process import ClientError
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.sampling import Sample
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.subject import Refused
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.task import BenchmarkTask, StillMeasuring
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.looking.load import Load
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import FakeClock

ME = ProcessIdentity(71, 100)
KEY = "kq-2f5d81aa"
RELEASE = Release("r1", "2026-01-02T03:04:05Z", "main", "process", ["python3"], secret_args={"api-key": KEY})
PARAMS = {
    "instance": "main",
    "run_dir": "/run/sglang",
    "concurrencies": [4],
    "dataset": "custom",
    "input_len": 512,
    "output_len": 32,
    "num_prompts": 0,
    "prompts_per_stream": 1,
    "num_prompts_min": 4,
    "repeats": 2,
    "warmup_requests": 0,
    "chat_template": "auto",
    "seed": 42,
    "timeout": 60.0,
    "idle_timeout": 1.0,
    "request_timeout": 5.0,
    "interval": 1.0,
    "allow_other_load": False,
    "python": None,
    "api_key": None,
    "return_after": 0.0,
    "resume": None,
}


def repeat(number, result=None, **heard):
    """The event of a repeat of four requests."""
    line = {
        "completed": 4,
        "duration": 2.0,
        "output_throughput": 64.0,
        "request_throughput": 2.0,
        "concurrency": 3.9,
        "accept_length": 2.9,
    }
    told = {"listened": True, "requests": 4, "heard": 4, "verify_steps": 44, "verified_tokens": 128, "flush": 200}
    return {"event": "repeat", "number": number, "result": {**line, **(result or {})}, "requests": {**told, **heard}}


BEGUN = {"event": "client", "module": "sglang.benchmark.serving", "version": "0.5.17", "chat_template": True}
GOOD = [BEGUN, repeat(1), repeat(2), {"event": "done"}]


class Subject:
    """In place of the server."""

    def __init__(self, params, run):
        self.release = RELEASE
        self.procfs = self
        self.process = self
        self.identity = ME
        self.api_key = params["api_key"] or KEY
        self.secrets = {KEY}
        self.client = None
        self.load = Load(0, 0)
        self.trouble = []
        self.model_path = self.tokenizer_path = "/m"
        self.speculates, self.adaptive, self.max_running_requests = True, False, 48

    def boot_id(self):
        return "boot"

    def check(self):
        pass

    def facts(self):
        return {"pid": 71}

    def wait_until_idle(self, patience):
        return self.load

    def check_same(self, identity):
        if self.trouble and self.trouble.pop(0):
            raise Refused("server_died", "The server ended while it was measured: %s." % KEY)

    def shown(self, text):
        return text.replace(KEY, "****")


class Client:
    """In place of the client, which has said `events` when `seconds` are over."""

    status = 0

    def __init__(self, folder, procfs, nonce):
        self.folder, self.nonce = folder, nonce
        self.script, self.seconds, self.said = GOOD, 5.0, []
        self.ended = self.removed = self.attached = 0
        self.busy = False
        self.tasks = []
        self.clock = None

    def refuse_other(self):
        if self.busy:
            raise ClientError("busy", "Another run measures this server now.")

    def attach(self):
        self.attached += 1

    def start(self, launch, task):
        self.tasks.append(task)
        self.until = self.clock() + self.seconds

    def touch(self):
        pass

    def running(self):
        return self.clock() < self.until

    def events(self):
        return [] if self.running() else copy.deepcopy(self.script)

    def log(self, secrets):
        return ["the end"]

    def end(self):
        self.ended += 1
        self.until = 0.0

    def remove(self):
        self.removed += 1


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.setattr(task_module, "Subject", Subject)
    monkeypatch.setattr(task_module, "ClientProcess", Client)
    prompts = tmp_path / "p.jsonl"
    prompts.write_text("".join('"Tell me number %d"\n' % number for number in range(6)))

    def run(**params):
        clock = FakeClock()
        made = BenchmarkTask({**PARAMS, "prompts": str(prompts), **params}, None, clock=clock, sleep=clock.sleep)
        made.client.clock, made.client.until = clock, 0.0
        return made

    return run


def only(task):
    """Its only point, once it is run."""
    task.run()
    (point,) = task.results()["points"]
    assert KEY not in json.dumps(task.results())
    return point


def test_a_point(make):
    task = make()
    point = only(task)
    assert (point["state"], point["num_prompts"], point["warnings"]) == ("measured", 4, [])
    assert point["median"]["output_throughput"] == 64 and point["median"]["accept_length"] == 2.9091
    assert task.results()["benchmark"]["chat_template"] is True and task.results()["sglang"] == {"pid": 71}
    (given,) = task.client.tasks
    assert len(given["prompts"]) == 4 and given["api_key"] == KEY
    assert "--max-concurrency" in given["words"] and task.client.ended == 0


@pytest.mark.parametrize(
    ("script", "reason", "words", "left"),
    [
        ([BEGUN], "client_failed", "ended with status 0 before it was done", 0),
        ([], "client_failed", "ended", 0),
        ([BEGUN, repeat(1)], "client_failed", "before it was done", 1),
        (
            [BEGUN, repeat(1), {"event": "failed", "reason": "client_failed", "message": "no key %s" % KEY}],
            *("client_failed", "no key ****", 1),
        ),
        ([{"event": "failed", "reason": "open_files", "message": "too few"}], "open_files", "too few", 0),
        ([BEGUN, {"event": "failed"}], "client_failed", "it does not say why", 0),
        ([BEGUN, repeat(1), repeat(2, {"completed": 3}, errors=["503"])], "requests_failed", "1 of 4", 1),
        ([BEGUN, repeat(1, requests=3)], "prompts_dropped", "3 of 4", 0),
        ([BEGUN, repeat(1, flush=400), repeat(2)], "not_flushed", "answered 400", 2),
        ([BEGUN, {"event": "repeat", "number": 1}], "no_result", "no result", 0),
    ],
)
def test_points_that_fail(make, script, reason, words, left):
    task = make()
    task.client.script = script
    point = only(task)
    assert (point["state"], point["reason"], point["log_tail"]) == ("failed", reason, ["the end"])
    assert words in point["message"] and len(point["repeats"]) == left and point["median"] == {}


def test_a_limit(make):
    task = make(timeout=3.0)
    point = only(task)
    assert point["reason"] == "timeout" and "timeout 3 s" in point["message"] and "repeat 0 of 2" in point["message"]
    assert task.client.ended == 1


@pytest.mark.parametrize("looks", [[True], [False, True], [False, False, True]])
def test_a_server_that_dies(make, looks):
    task = make(concurrencies=[4])
    task.subject.trouble = looks
    assert only(task)["reason"] == "server_died"


def test_the_reason_is_the_servers_where_its_end_took_the_requests_along(make):
    task = make()
    task.client.script, task.client.seconds = [BEGUN, repeat(1, {"completed": 0})], 0.0
    task.subject.trouble = [False, True]
    assert only(task)["reason"] == "server_died"


def test_the_points_after_a_failed_one(make):
    task = make(concurrencies=[1, 4])
    task.subject.trouble = [True]
    task.run()
    assert [point["state"] for point in task.results()["points"]] == ["failed", "measured"]


@pytest.mark.parametrize(
    ("params", "most", "result", "heard", "words"),
    [
        ({"concurrencies": [4]}, 3, {}, {}, "4 requests at a time are more than the 3"),
        ({"dataset": "random-ids"}, 48, {}, {}, "random tokens"),
        ({"num_prompts": 7}, 48, {"completed": 7}, {"requests": 7, "heard": 7}, "7 requests come from 6 prompts"),
        ({}, 48, {"concurrency": 3.1}, {}, "only 3.1 requests were under way at a time, of 4"),
        ({}, 48, {}, {"flush": None}, "could not be seen whether"),
        ({}, 48, {"accept_length": None}, {"verify_steps": 0}, "no verification in them"),
        ({"allow_other_load": True}, 48, {}, {"flush": 400}, "not flushed"),
    ],
)
def test_warnings(make, params, most, result, heard, words):
    task = make(**params)
    task.subject.max_running_requests = most
    task.client.script = [BEGUN, repeat(1, result, **heard), repeat(2, result, **heard), {"event": "done"}]
    point = only(task)
    assert point["state"] == "measured", point
    (warning,) = point["warnings"]
    assert words in warning


def test_adaptive_speculation_may_be_off(make):
    task = make()
    task.subject.adaptive = True
    task.client.script = [
        BEGUN,
        *[repeat(n, {"accept_length": None}, verify_steps=0) for n in (1, 2)],
        {"event": "done"},
    ]
    assert only(task)["warnings"] == []


@pytest.mark.parametrize(
    ("load", "allowed", "state", "words"),
    [
        (Load(2, 1), False, "failed", "3 requests of others"),
        (Load(2, None), True, "measured", "had 2 requests of others"),
        (Load(problem="nobody tells it"), False, "measured", "nobody tells it"),
    ],
)
def test_requests_of_others(make, load, allowed, state, words):
    task = make(allow_other_load=allowed)
    task.subject.load = load
    point = only(task)
    assert point["state"] == state and words in (point["message"] or point["warnings"][0])
    assert point["reason"] == ("other_load" if state == "failed" else "")


@pytest.mark.parametrize(
    ("sample", "found"),
    [
        (Sample(8, 256, 100), (2.56, "sample", 100)),
        (Sample(8, 256, 0), (2.9, "server", None)),
        (Sample(), (2.9, "server", None)),
    ],
)
def test_acceptance_where_nobody_could_listen(make, monkeypatch, sample, found):
    asked = []
    monkeypatch.setattr(task_module, "take_sample", lambda *args: asked.append(args) or sample)
    task = make()
    task.client.script = [BEGUN, *[repeat(n, listened=False, requests=0, heard=0) for n in (1, 2)], {"event": "done"}]
    for repeated in only(task)["repeats"]:
        assert (repeated["accept_length"], repeated["accept_length_source"], repeated["verify_steps"]) == found
    ((_client, texts, concurrency, output_len, _timeout),) = asked
    assert (len(texts), concurrency, output_len) == (4, 4, 32)


# -- in parts


def through_parts(make, **params):
    """All parts of a benchmark, each with what the one before has returned as JSON."""
    task = make(return_after=2.0, **params)
    parts = []
    while True:
        try:
            task.run()
            return parts, task.results()
        except StillMeasuring:
            parts.append(json.loads(json.dumps(task.part())))
            before, now = task.client, task._clock.now
            task = make(return_after=2.0, **params, resume=parts[-1]["resume"])
            task._clock.now = task._part_began = now
            task.client.until, task.client.script = before.until, before.script


def test_parts(make):
    parts, found = through_parts(make, concurrencies=[1, 4])
    assert [point["state"] for point in found["points"]] == ["measured"] * 2
    assert [part["progress"]["point"] for part in parts] == [1, 1, 2, 2]
    assert [len(part["points"]) for part in parts] == [0, 0, 1, 1]
    assert all(KEY not in json.dumps(part) for part in parts)
    assert [part["progress"]["elapsed"] for part in parts] == [2.0, 4.0, 1.0, 3.0]


def test_a_short_key_allows_no_parts(make):
    task = make(api_key="short", return_after=1.0)
    task.run()
    assert task.results()["points"][0]["state"] == "measured"


@pytest.mark.parametrize(("name", "value"), [("boot", "another"), ("release", "r0")])
def test_going_on_where_everything_is_another(make, name, value):
    task = make(return_after=1.0)
    with pytest.raises(StillMeasuring):
        task.run()
    resume = {**task.part()["resume"], name: value}
    with pytest.raises(Refused) as error:
        make(resume=resume).run()
    assert error.value.reason == "server_restarted"


def test_progress(make):
    task = make()
    assert task.progress()["repeat"] == 0
    task.state.began, task.client.until = 0.0, 0.0
    task.client.script = [
        BEGUN,
        {"event": "repeat_begins", "number": 1},
        repeat(1),
        {"event": "repeat_begins", "number": 2},
    ]
    task.state.speculates = True
    told = task.progress()
    assert (told["repeat"], told["requests"], told["of"], told["output_throughput"]) == (2, 0, 4, 64.0)
    task.client.script += [{"event": "progress", "done": 3}]
    assert task.progress()["requests"] == 3


def test_somebody_else_measures_it(make):
    task = make()
    task.client.busy = True
    with pytest.raises(Refused) as error:
        task.run()
    assert error.value.reason == "busy"
    task.give_up()
    # The other one's client is left alone.
    assert task.client.ended == task.client.removed == 0


def test_giving_up_ends_the_client(make):
    task = make(return_after=1.0)
    with pytest.raises(StillMeasuring):
        task.run()
    removed = task.client.removed
    task.give_up()
    assert task.client.ended == 1 and task.client.removed == removed + 1


def test_what_is_planned(make):
    assert make(concurrencies=[1, 8]).planned() == [
        {"concurrency": 1, "num_prompts": 4},
        {"concurrency": 8, "num_prompts": 8},
    ]
