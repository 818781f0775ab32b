# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counting, and keeping requests under way."""

from __future__ import annotations

import json
import threading
import time

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.soak import (
    Load,
    SoakCount,
    SoakOutcome,
    SoakPlan,
    count_from,
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


def test_every_figure_of_a_count():
    count = SoakCount(seconds=1.23456)
    for outcome in (SoakOutcome(30, 10), SoakOutcome(problem="503"), SoakOutcome(problem="late", timed_out=True)):
        count.add(outcome)
    count.add(SoakOutcome(31, 11))
    assert count == SoakCount(4, 2, 1, 1.23456, 61, 21, "late")
    assert count.result() == {"requests": 4, "failed": 2, "seconds": 1.235, "accept_length": 2.9048}


def test_a_count_goes_on_in_the_next_part_of_the_wait():
    count = SoakCount(4, 2, 1, 1.5, 61, 21, "late")
    assert count_from(json.loads(json.dumps(count.to_dict()))) == count


@pytest.mark.parametrize(
    ("changes", "error"),
    [({"requests": "x"}, ValueError), ({"failed": None}, TypeError), ({"seconds": []}, TypeError)],
)
def test_a_count_that_is_none_is_refused(changes, error):
    with pytest.raises(error):
        count_from({**SoakCount().to_dict(), **changes})


@pytest.mark.parametrize("name", ["requests", "failed", "timed_out", "tokens", "verified", "seconds", "last_problem"])
def test_a_count_needs_all_its_parts(name):
    data = SoakCount().to_dict()
    del data[name]
    with pytest.raises(KeyError):
        count_from(data)


def test_a_prompt_says_which_it_is_and_the_texts_take_turns():
    assert soak_prompt(7, "a1") == "a1-7. Write an SQL query that counts the orders of each customer."
    assert len({soak_prompt(number, "x").partition(". ")[2] for number in range(8)}) == 8
    assert soak_prompt(8, "x").partition(". ")[2] == soak_prompt(0, "x").partition(". ")[2]


def test_requests_begin_in_order_and_end_with_the_last():
    numbers = []

    def ask(number):
        numbers.append(number)
        return SoakOutcome(number, 1)

    load = Load(3, SoakPlan(6, 1, 32), ask)
    load.start()
    assert [outcome.tokens for outcome in collect(load)] == [3, 4, 5] and numbers == [3, 4, 5]


def test_there_are_no_more_threads_than_requests():
    before = set(threading.enumerate())
    go = threading.Event()
    load = Load(4, SoakPlan(6, 50, 32), lambda number: (go.wait(5), SoakOutcome(1, 1))[1])
    load.start()
    # One that hangs must not keep the program from ending.
    assert [thread.daemon for thread in set(threading.enumerate()) - before] == [True, True]
    go.set()
    assert len(collect(load)) == 2


def test_no_outcome_within_the_patience_is_none():
    go = threading.Event()
    load = Load(0, SoakPlan(1, 1, 32), lambda number: (go.wait(5), SoakOutcome(9, 1))[1])
    load.start()
    began = time.monotonic()
    assert load.outcome(0.02) is None and 0.02 <= time.monotonic() - began < 4
    assert not load.finished
    go.set()
    assert load.outcome(5).tokens == 9


def test_an_outcome_that_nobody_fetched_is_not_finished():
    load = Load(0, SoakPlan(1, 1, 32), lambda number: SoakOutcome(9, 1))
    load.start()
    deadline = time.monotonic() + 5
    while any(thread.name.endswith("(_work)") for thread in threading.enumerate()) and time.monotonic() < deadline:
        time.sleep(0.005)
    assert not load.finished
    assert load.outcome(5).tokens == 9
    assert load.finished


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_stop_begins_nothing_more():
    go, begun = threading.Event(), []

    def ask(number):
        begun.append(number)
        go.wait(5)
        return SoakOutcome(1, 1)

    load = Load(0, SoakPlan(100, 2, 32), ask)
    load.start()
    deadline = time.monotonic() + 5
    while len(begun) < 2 and time.monotonic() < deadline:
        time.sleep(0.005)
    load.stop()
    go.set()
    assert len(collect(load)) == 2 and sorted(begun) == [0, 1]


def test_each_request_that_was_too_late_counts():
    count = SoakCount()
    for _number in range(2):
        count.add(SoakOutcome(problem="late", timed_out=True))
    assert count.timed_out == 2


@pytest.mark.parametrize(("first", "requests", "threads"), [(4, 6, 2), (0, 100, 3), (6, 6, 0)])
def test_how_many_threads_are_made(monkeypatch, first, requests, threads):
    made = []
    monkeypatch.setattr(threading, "Thread", lambda **_told: made.append(1))
    Load(first, SoakPlan(requests, 3, 32), lambda number: SoakOutcome())
    assert len(made) == threads
