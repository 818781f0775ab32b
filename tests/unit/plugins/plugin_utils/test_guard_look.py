# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is taken out of what sglang_info returned, and which profile a server runs."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.guard_look import read_look
from ansible_collections.inferops.sglang.plugins.plugin_utils.guard_profile import fitting, in_words
from ansible_collections.inferops.sglang.plugins.plugin_utils.spec_profile import named_profile

EAGLE3 = {
    "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
    "speculative_adaptive": False,
    "max_running_requests": 64,
}
PLAIN = {"speculative_algorithm": None, "speculative_adaptive": False, "max_running_requests": 64}
OWN = {
    "three": {"algorithm": "eagle3", "num_steps": "3", "eagle_topk": 1, "num_draft_tokens": 8},
    "five": {"algorithm": "EAGLE3", "num_steps": 5, "eagle_topk": 1, "num_draft_tokens": 6},
    "adaptive": {"algorithm": "EAGLE3", "num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4, "adaptive": "true"},
    "small": {"algorithm": "EAGLE3", "max_running_requests": 16},
}


def server(**more):
    window = {"average": 4.0, "peak": 9, "samples": 10, "unanswered": 0, "complete": True}
    return {
        "instance": "main",
        "state": "serving",
        "message": "",
        "load": {"running": 3, "waiting": 2},
        "load_window": window,
        "uptime": 77.5,
        "node_rank": 0,
        "effective": EAGLE3,
        **more,
    }


def look(*servers, statistic="average", **result):
    return read_look("a", {"servers": list(servers), **result}, "main", statistic)


@pytest.mark.parametrize(
    ("changes", "statistic", "load", "complete"),
    [
        ({}, "average", 4.0, True),
        ({}, "peak", 9.0, True),
        ({"load_window": None}, "average", 5.0, True),
        ({"load_window": None, "load": {"running": 3, "waiting": None}}, "average", 3.0, False),
        ({"load_window": None, "load": {"running": None, "waiting": None}}, "average", None, False),
        ({"load_window": None, "load": {"running": True, "waiting": 0}}, "average", None, False),
        ({"load_window": {"average": 8.0, "samples": 5, "unanswered": 5, "complete": False}}, "average", 4.0, False),
        ({"load_window": {"average": None, "samples": 0, "unanswered": 5, "complete": False}}, "average", None, False),
        ({"load_window": {"average": "many", "complete": True}}, "average", None, False),
        ({"load_window": {"average": float("inf"), "complete": True}}, "average", None, False),
        ({"load_window": {"average": -4.0, "complete": True}}, "average", None, False),
        ({"load_window": {"average": 4.0, "complete": "yes"}}, "average", 0.0, False),
    ],
)
def test_the_load_is_believed_as_far_as_it_makes_sense(changes, statistic, load, complete):
    found = look(server(**changes), statistic=statistic)
    assert (found.load, found.complete) == (load, complete)


def test_the_rest_of_a_server():
    found = look(server(instance="other"), server(node_rank=1))
    assert (found.state, found.why, found.uptime, found.node_rank) == ("serving", "", 77.5, 1)
    assert found.effective["speculative_num_steps"] == 3
    found = look(server(state="failed", message="It died.\x1b[2J"))
    assert (found.state, found.why) == ("failed", "It died.\\x1b[2J")
    assert look(server(state="splendid")).state == "unknown"
    assert look(server(state="unknown", reason="rank_unprovable", node_rank=1)).state == "follows"
    assert look(server(state="unknown", reason="rank_unprovable", node_rank=0)).state == "unknown"
    assert look(server(state="unknown", reason="health_timeout", node_rank=1)).state == "unknown"
    assert look(server(uptime=None)).uptime is None and look(server(uptime=-1)).uptime is None


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (None, "could not be asked"),
        ("text", "could not be asked"),
        ({"unreachable": True, "msg": "no route"}, "cannot be reached: no route"),
        ({"failed": True, "msg": "no root", "servers": []}, "could not be asked: no root"),
        ({"servers": 5}, "could not be asked"),
        ({"servers": [server(instance="other"), 7]}, "its host knows no instance main"),
    ],
)
def test_who_cannot_be_asked_is_unknown(result, words):
    found = read_look("a", result, "main", "average")
    assert found.state == "unknown" and words in found.why and found.load is None


# ---- profiles


def names(effective, *chosen):
    return fitting(effective, {name: named_profile(name, OWN)[0] for name in chosen or (*OWN, "baseline", "eagle3")})


@pytest.mark.parametrize(
    ("effective", "found"),
    [
        (EAGLE3, ["three", "eagle3"]),
        ({**EAGLE3, "speculative_num_steps": 5, "speculative_num_draft_tokens": 6}, ["five", "eagle3"]),
        ({**EAGLE3, "speculative_adaptive": True}, ["adaptive"]),
        ({**EAGLE3, "max_running_requests": 16}, ["three", "small", "eagle3"]),
        (PLAIN, ["baseline"]),
        ({**EAGLE3, "speculative_algorithm": "NGRAM"}, []),
        ({}, []),
        ({"speculative_num_steps": 3}, []),
    ],
)
def test_which_profile_a_server_may_be_running(effective, found):
    assert names(effective) == found


@pytest.mark.parametrize(
    ("effective", "words"),
    [
        (EAGLE3, "EAGLE3 3/1/4"),
        ({**EAGLE3, "speculative_adaptive": True}, "EAGLE3 3/1/4 adaptive"),
        (PLAIN, "no speculation"),
        ({"speculative_algorithm": "NGRAM"}, "NGRAM -/-/-"),
        ({}, "what it does not tell"),
    ],
)
def test_what_has_no_name_is_described(effective, words):
    assert in_words(effective) == words
