# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of a server that means harm: bounded in time and memory, told in one line, never a traceback."""

from __future__ import annotations

import gzip
import itertools
import time
import tracemalloc

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import (
    MAX_BYTES,
    Answer,
    BadAnswer,
    HttpClient,
    HttpError,
    TimedOut,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.drain import (
    LoadReader,
    count_get_load,
    count_loads,
    count_metrics,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness import proof, readiness
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import redact_info
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.sglang.raw_server import RawServer, reply

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
PIECE = b"x" * 65536


def sends(*parts):
    """A server that sends these, one after the other, as long as somebody reads."""

    def answer(connection, done):
        for part in parts[0] if len(parts) == 1 and not isinstance(parts[0], bytes) else parts:
            if done.is_set():
                return
            connection.sendall(part)

    return answer


def forever(part, before=b""):
    return sends(itertools.chain([before], itertools.repeat(part)))


def drip(connection, done):
    connection.sendall(OK + b"content-length: 1000\r\n\r\n")
    while not done.wait(0.02):
        connection.sendall(b" ")


# What is sent, and what may be said about it.
ANSWERS = {
    "a body without end": (forever(PIECE, OK + b"\r\n"), "more than"),
    "chunks without end": (forever(b"10000\r\n%s\r\n" % PIECE, CHUNKED), "more than"),
    "a chunk of size -1": (forever(PIECE, CHUNKED + b"-1\r\n"), ""),
    "a chunk of size -5": (sends(CHUNKED + b"-5\r\nxxxxx\r\n0\r\n\r\n"), ""),
    "a chunk of a size that is none": (sends(CHUNKED + b"zz\r\n\r\n"), ""),
    "chunk sizes without end": (forever(b"0" * 65000, CHUNKED), ""),
    "a promised exabyte": (sends(OK + b"content-length: 1000000000000000000\r\n\r\n{}"), "ended in the middle"),
    "a negative length": (forever(PIECE, OK + b"content-length: -7\r\n\r\n"), "more than"),
    "a length of many digits": (forever(PIECE, OK + b"content-length: %s\r\n\r\n" % (b"9" * 5000)), "more than"),
    "less than promised": (sends(OK + b"content-length: 100\r\n\r\n{}"), "ended in the middle"),
    "two lengths": (sends(OK + b"content-length: 2\r\ncontent-length: 9\r\n\r\n{}xxxxxxx"), "two lengths"),
    "interim answers without end": (forever(b"HTTP/1.1 100 Continue\r\n\r\n"), "more than"),
    "a head without end": (forever(b"x-a: %s\r\n" % (b"a" * 60000), OK), ""),
    "a line without end": (forever(PIECE, b"HTTP/1.1 200 "), ""),
    "no HTTP, but commands for a terminal": (sends(b"\x1b]0;owned\x07\x1b[2J\r\n\r\n"), "\\x1b"),
    "an old protocol": (sends(b"HTTP/0.9 \x1b[2J\r\n\r\n"), ""),
    "nothing": (sends(b""), ""),
    "a slow drip": (drip, "gave no answer within 0.3 s"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer_that_means_harm_is_no_answer(case):
    answer, said = ANSWERS[case]
    tracemalloc.start()
    began = time.monotonic()
    try:
        with RawServer(answer) as server:
            client = HttpClient("127.0.0.1", server.port, max_bytes=1 << 20)
            with pytest.raises(HttpError) as caught:
                client.get("/server_info", 0.3 if answer is drip else 10).json_object()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    text = str(caught.value)
    assert said in text and text.isprintable() and len(text) < 600, text
    assert time.monotonic() - began < 8 and peak < 24 << 20
    assert isinstance(caught.value, TimedOut) == (answer is drip)


def test_nobody_is_followed_elsewhere():
    for target in ("http://169.254.169.254/latest", "file:///etc/shadow", "http://127.0.0.1:1/"):
        with RawServer(reply(302, b"", ["location: " + target])) as server:
            assert HttpClient("127.0.0.1", server.port, api_key="sk-secret").get("/server_info", 5).status == 302


def test_nothing_is_unpacked():
    bomb = gzip.compress(b"{" + b" " * (50 << 20) + b"}")
    with RawServer(reply(200, bomb, ["content-encoding: gzip"])) as server:
        answer = HttpClient("127.0.0.1", server.port).get("/server_info", 5)
    assert b"Accept-Encoding: identity" in server.request
    with pytest.raises(BadAnswer, match="not JSON"):
        answer.json()


@pytest.mark.parametrize("path", ["/health", "/health_generate", "/metrics"])
def test_what_answers_without_a_key_does_not_learn_it(path):
    with RawServer(reply(200, b"")) as server:
        HttpClient("127.0.0.1", server.port, api_key="sk-secret").get(path, 5)
    assert b"sk-secret" not in server.request and b"Authorization" not in server.request


BODIES = {
    "deep": b"[" * 90_000,
    "deep objects": b'{"a":' * 90_000,
    "not a number": b'{"accept_length": NaN}',
    "infinite": b'{"speculative_num_steps": Infinity}',
    "too large a number": b'{"speculative_num_steps": 1e400}',
    "a number of a million digits": b'{"a": ' + b"7" * 1_000_000 + b"}",
    "a field twice": b'{"speculative_algorithm": "EAGLE3", "speculative_algorithm": null}',
    "a list": b"[]",
    "a word": b'"EAGLE3"',
    "null": b"null",
    "nothing": b"",
    "bytes": b"\xff\xfe\x00",
    "a half": b'{"a": 1',
    "markup": b"<html>\x1b[2J</html>",
    "many small lists": b"[" + b"[]," * 1_000_000 + b"[]]",
}


@pytest.mark.parametrize("case", BODIES)
def test_a_body_that_is_no_object_of_json_proves_nothing(case):
    answer = Answer("/server_info", 200, BODIES[case], 0.1)
    began = time.process_time()
    with pytest.raises(BadAnswer) as caught:
        answer.json_object()
    assert str(caught.value).isprintable() and len(str(caught.value)) < 800
    assert time.process_time() - began < 2


GENERATIONS = {
    **BODIES,
    "no tokens": b'{"meta_info": {"completion_tokens": 0}}',
    "fewer than none": b'{"meta_info": {"completion_tokens": -5}}',
    "half a token": b'{"meta_info": {"completion_tokens": 1.5}}',
    "true tokens": b'{"meta_info": {"completion_tokens": "8"}}',
    "no facts": b'{"text": "x"}',
    "facts of a kind": b'{"meta_info": []}',
    "many tokens": b'{"meta_info": {"completion_tokens": "%s"}}' % (b"9" * 1_000_000),
    "given up with many words": b'{"meta_info": {"finish_reason": {"type": "abort", "message": "%s"}}}'
    % (b"x" * 1_000_000),
    "given up": b'{"meta_info": {"finish_reason": {"type": "abort", "message": ["\\u001b[2J"]}}}',
}


@pytest.mark.parametrize("case", GENERATIONS)
def test_a_generation_that_is_none_proves_nothing(case):
    with pytest.raises(readiness.NotReady) as caught:
        readiness._generation(Answer("/generate", 200, GENERATIONS[case], 0.1))
    assert caught.value.reason in ("unexpected_answer", "generation_failed")
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("count", [-1, 0, "5", 1.5, True, None, [], {}, 10**39])
def test_counts_of_verifications_that_are_none(count):
    made = readiness.Generation(8, {"spec_verify_ct": count}, 0.1)
    found = proof.judge_speculation("EAGLE3", [made], 1.2)
    assert found.problem == ("low_acceptance" if count == 10**39 else "no_speculation")


# -- values of the wrong kind, in fields that are looked at

WRONG = [None, True, -1, 0, 1.5, 10**30, "", "\x1b[2J", "x" * 100_000, [], [[]], ["\r"], {}, {"a": {"b": []}}]
FIELDS = (
    "version",
    "speculative_algorithm",
    "speculative_num_steps",
    "model_path",
    "max_running_requests",
    "internal_states",
    "disable_overlap_schedule",
    "dp_size",
    "env_vars",
    "api_key",
    "launch_command",
)
EXPECTED = {"speculative_algorithm": "EAGLE3", "speculative_num_steps": 3, "model_path": "/m", "dp_size": 1}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", WRONG, ids=lambda value: repr(value)[:20])
def test_a_field_of_the_wrong_kind_is_a_mismatch_and_no_traceback(field, value):
    info = {"model_path": "/m", "speculative_algorithm": "EAGLE3", "speculative_num_steps": 3, "dp_size": 1}
    info[field] = value
    shown = redact_info(info)
    found = proof.compare(EXPECTED, shown, list(EXPECTED))
    messages = [mismatch.message() for mismatch in found]
    assert all(message.isprintable() and len(message) < 1000 for message in messages), messages
    same = field not in EXPECTED or value == EXPECTED[field] or (value is True and EXPECTED[field] == 1)
    assert same or found
    proof.capacity_warnings(info)
    proof.worker_of(info)
    proof.algorithm_of(info)
    proof.adjusted_of(EXPECTED, shown)
    proof.judge_worker("v2", info)


@pytest.mark.parametrize("value", [*WRONG, float("nan"), float("inf"), 1e300], ids=lambda value: repr(value)[:20])
def test_loads_that_are_no_numbers_of_requests(value):
    counted = [
        count_loads({"loads": [{"num_running_reqs": value, "num_waiting_reqs": 0}]}),
        count_get_load([{"num_reqs": value}]),
    ]
    plausible = not isinstance(value, bool) and isinstance(value, (int, float)) and 0 <= value < 1e9
    assert counted == [int(value)] * 2 if plausible else counted == [None, None]
    assert count_loads(value) is None and count_loads({"loads": value}) is None


@pytest.mark.parametrize("value", ["NaN", "1e999", "-1", "9" * 400, "+-.e", "\x1b[2J"])
def test_metrics_that_are_no_numbers(value):
    assert count_metrics("sglang:num_running_reqs %s\n" % value) is None


def test_metrics_made_to_take_long_do_not():
    text = 'sglang:num_running_reqs{a="' * 150_000 + "\n" + "sglang:num_running_reqs{\n" * 150_000
    began = time.process_time()
    assert count_metrics(text) is None
    assert time.process_time() - began < 2


class Fixed:
    """A client that always gets the same body."""

    def __init__(self, body):
        self.body = body

    def get(self, path, timeout):
        return Answer(path, 200, self.body, 0.0)


@pytest.mark.parametrize("case", BODIES)
def test_a_load_that_cannot_be_read_is_unknown_and_not_zero(case):
    count, why = LoadReader(Fixed(BODIES[case])).read()
    assert count is None and why.isprintable() and len(why) < 3000


def test_the_bound_is_far_above_what_servers_say():
    assert MAX_BYTES >= 4 << 20
