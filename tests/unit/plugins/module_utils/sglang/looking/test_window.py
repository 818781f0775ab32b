# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The load of a server over some seconds, with a clock that only the test moves."""

from __future__ import annotations

import json

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import Answer, Refused, TimedOut
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.looking.window import watch_load


class Server:
    """Has the given loads one after the other: (running, waiting), or what is raised; the last one stays."""

    def __init__(self, *loads):
        self.loads = list(loads)
        self.now = 0.0

    def get(self, path, timeout):
        if path != "/v1/loads":
            return Answer(path, 404, b"", 0.0)
        load = self.loads.pop(0) if len(self.loads) > 1 else self.loads[0]
        if isinstance(load, Exception):
            raise load
        row = {"num_running_reqs": load[0], "num_waiting_reqs": load[1]}
        return Answer(path, 200, json.dumps({"loads": [row]}).encode(), 0.0)

    def watch(self, seconds):
        return watch_load(self, 5.0, seconds, lambda: self.now, self.sleep)

    def sleep(self, seconds):
        self.now += seconds


def test_the_mean_and_the_peak_of_what_runs_and_waits():
    load, window = Server((4, 0), (10, 6), (2, 0)).watch(2.0)
    assert (load.running, load.waiting) == (2, 0)
    assert window.to_dict() == {
        "seconds": 2.0,
        "samples": 3,
        "unanswered": 0,
        "average": 7.33,
        "peak": 16,
        "complete": True,
    }


def test_one_answer_that_is_missing_makes_it_incomplete():
    load, window = Server((4, 0), TimedOut("late"), (8, 0)).watch(2.0)
    assert (window.samples, window.unanswered, window.average, window.complete) == (2, 1, 6.0, False)
    assert load.running == 8


@pytest.mark.parametrize("problem", [Refused("nobody listens"), TimedOut("late")])
def test_a_server_that_tells_nothing_is_given_up(problem):
    server = Server(problem)
    load, window = server.watch(60.0)
    assert server.now == 1.0 and load.running is None and load.problem
    assert (window.samples, window.average, window.peak, window.complete) == (0, None, None, False)


def test_a_fraction_of_a_second_is_two_looks():
    _load, window = Server((1, 0)).watch(0.4)
    assert window.samples == 2 and window.seconds == pytest.approx(0.4)
