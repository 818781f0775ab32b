# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import threading

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.looking.together import together


def test_results_come_in_the_order_of_the_jobs():
    # Each waits for all others: one after the other they would never end.
    barrier = threading.Barrier(3, timeout=10)
    jobs = [lambda n=n: (barrier.wait(), n)[1] for n in range(3)]
    assert together(jobs, 10.0, -1) == [0, 1, 2]


def test_a_job_that_takes_too_long_is_given_up():
    never = threading.Event()
    try:
        assert together([lambda: never.wait(30) and 1, lambda: 2], 0.05, -1) == [-1, 2]
    finally:
        never.set()


def test_many_jobs_go_in_batches():
    running, most, lock = [], [], threading.Lock()

    def job():
        with lock:
            running.append(1)
            most.append(len(running))
        with lock:
            running.pop()
        return 1

    assert together([job] * 10, 10.0, -1, at_a_time=3) == [1] * 10
    assert max(most) <= 3


def test_no_jobs():
    assert together([], 1.0, -1) == []


def test_an_error_of_a_job_is_not_lost():
    def job():
        raise KeyError("x")

    with pytest.raises(KeyError):
        together([job], 10.0, -1)
