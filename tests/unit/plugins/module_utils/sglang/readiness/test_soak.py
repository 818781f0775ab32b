# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counting, and keeping requests under way."""

from __future__ import annotations

import threading
import time

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.soak import (
    Load,
    SoakCount,
    SoakOutcome,
    SoakPlan,
    soak_prompt,
)


@pytest.mark.parametrize(("requests", "tolerated"), [(1, 1), (19, 1), (40, 2), (128, 6), (1000, 50)])
def test_how_many_may_fail(requests, tolerated):
    assert SoakPlan(requests, 8, 32).tolerated == tolerated


def test_counting():
    count = SoakCount()
    for outcome in (
        SoakOutcome(32, 10),
        SoakOutcome(32, 12),
        SoakOutcome(problem="503"),
        SoakOutcome(0, 0, "late", True),
    ):
        count.add(outcome)
    assert (count.requests, count.answered, count.failed, count.timed_out) == (4, 2, 2, 1)
    assert count.last_problem == "late" and count.result()["accept_length"] == 2.9091
    assert SoakCount(requests=3, tokens=96).result()["accept_length"] is None


def test_no_two_prompts_begin_alike():
    prompts = [soak_prompt(number, nonce) for nonce in ("a1", "b2") for number in range(200)]
    assert len({prompt.split()[0] for prompt in prompts}) == 400


def collect(load):
    found = []
    while not load.finished:
        outcome = load.outcome(0.05)
        if outcome is not None:
            found.append(outcome)
    return found


def test_so_many_at_a_time_and_no_more():
    lock, running, most, numbers = threading.Lock(), [0], [0], []

    def ask(number):
        with lock:
            numbers.append(number)
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.01)
        with lock:
            running[0] -= 1
        return SoakOutcome(1, 1)

    load = Load(10, SoakPlan(40, 5, 32), ask)
    load.start()
    assert len(collect(load)) == 30
    assert sorted(numbers) == list(range(10, 40)) and most[0] == 5


def test_what_is_under_way_is_still_counted_after_a_stop():
    go = threading.Event()

    def ask(_number):
        go.wait(5)
        return SoakOutcome(1, 1)

    load = Load(0, SoakPlan(100, 4, 32), ask)
    load.start()
    load.stop()
    go.set()
    assert len(collect(load)) <= 4


def test_nothing_left_to_do():
    load = Load(40, SoakPlan(40, 5, 32), lambda number: SoakOutcome())
    load.start()
    assert load.finished
