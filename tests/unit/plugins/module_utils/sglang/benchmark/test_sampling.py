# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import threading

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.sampling import take_sample
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import Answer, BadAnswer, TimedOut


class Client:
    """Answers each request so, and counts how many are there at a time."""

    def __init__(self, answer, together=1):
        self.answer = answer
        self.asked = []
        self.barrier = threading.Barrier(together, timeout=10)

    def post(self, path, payload, timeout):
        self.asked.append((path, payload, timeout))
        self.barrier.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        status, body = self.answer
        return Answer(path, status, json.dumps(body).encode(), 0.1)


GOOD = (200, {"meta_info": {"completion_tokens": 32, "spec_verify_ct": 11}})
TEXTS = ["Tell me number %d" % number for number in range(20)]


@pytest.mark.parametrize(("concurrency", "sent"), [(1, 8), (8, 8), (10, 10), (20, 20), (400, 20)])
def test_so_many_at_a_time(concurrency, sent):
    client = Client(GOOD, together=min(concurrency, sent))
    sample = take_sample(client, TEXTS, concurrency, 32, 5.0)
    assert sorted(payload["text"] for _path, payload, _timeout in client.asked) == sorted(TEXTS[:sent])
    assert (sample.answered, sample.tokens, sample.steps, sample.accept_length) == (sent, 32 * sent, 11 * sent, 2.9091)
    path, payload, timeout = client.asked[0]
    assert (path, timeout) == ("/generate", 5.0)
    assert payload["sampling_params"] == {"max_new_tokens": 32, "temperature": 0.0, "ignore_eos": True}


@pytest.mark.parametrize(
    ("answer", "answered"),
    [
        (TimedOut("late"), 0),
        (BadAnswer("no JSON"), 0),
        ((503, {"meta_info": {"completion_tokens": 32, "spec_verify_ct": 11}}), 0),
        ((200, {}), 0),
        ((200, {"meta_info": 3}), 0),
        ((200, []), 0),
        ((200, {"meta_info": {}}), 8),
        ((200, {"meta_info": {"completion_tokens": "x", "spec_verify_ct": -1}}), 8),
    ],
)
def test_answers_that_tell_nothing(answer, answered):
    sample = take_sample(Client(answer), TEXTS, 1, 32, 5.0)
    assert sample.answered == answered and sample.accept_length is None
