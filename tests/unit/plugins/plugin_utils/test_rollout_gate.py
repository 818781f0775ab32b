# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a wave may begin, and what is said about it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_gate import (
    Answer,
    Demand,
    decide,
    demands,
    read_answer,
    spread,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_words import (
    going_on_line,
    left_line,
    plan_lines,
    refusal,
    stop_line,
    waiting_line,
)

SERVES = Answer("serving")
STOPPED = Answer("stopped", "", "It is stopped.")
UNKNOWN = Answer("unknown", "health_timeout", "It does not answer.")


def unit(name, fate="replace", wave=1):
    return {"hosts": [name], "fate": fate, "wave": wave, "ask": {"instance": "main", "state_dir": "/s"}}


def plan(floor, *units, name="chat"):
    return {"groups": {name: {"floor": floor, "units": list(units)}}}


def test_what_a_wave_needs():
    (demand,) = demands(
        plan(
            1,
            unit("a"),
            unit("lost", wave=2),
            unit("later", "vacant", wave=2),
            unit("done", "vacant", wave=1),
            unit("kept", "keep", 0),
            unit("out", "outside", 0),
        ),
        wave=1,
        unlikely=["lost"],
    )
    assert (demand.group, demand.floor, demand.total, demand.taken_down) == ("chat", 1, 6, ("a",))
    # A vacant one of this very wave does not serve yet either. Who is likely to comes first.
    assert demand.others == ("kept", "out", "later", "done", "lost")


@pytest.mark.parametrize(
    "units",
    [(unit("a", "vacant"), unit("b", wave=2)), (unit("a", "keep", 0),), (unit("a", wave=2),)],
    ids=["nothing runs", "nothing to do", "another wave"],
)
def test_a_wave_that_takes_nothing_down_needs_nobody(units):
    assert demands(plan(1, *units), 1) == []


def test_a_floor_of_none_asks_nobody():
    assert demands(plan(0, unit("a"), unit("b", wave=2)), 1) == []


DEMAND = Demand("chat", 2, 5, ("a",), ("b", "c", "d", "e"))


@pytest.mark.parametrize(
    ("answers", "ask", "is_open"),
    [
        ({}, ("b", "c"), False),
        ({"b": SERVES, "c": SERVES}, (), True),
        ({"b": SERVES, "c": UNKNOWN}, ("d", "e"), False),
        ({"b": STOPPED, "c": UNKNOWN, "d": SERVES, "e": SERVES}, (), True),
        ({"b": STOPPED, "c": UNKNOWN, "d": SERVES, "e": UNKNOWN}, ("a",), False),
        ({"b": STOPPED, "c": UNKNOWN, "d": SERVES, "e": UNKNOWN, "a": SERVES}, (), False),
        # What serves nobody is no loss; what may serve somebody is.
        ({"b": STOPPED, "c": UNKNOWN, "d": UNKNOWN, "e": UNKNOWN, "a": STOPPED}, (), True),
        ({"b": STOPPED, "c": UNKNOWN, "d": UNKNOWN, "e": UNKNOWN, "a": Answer("failed", "died")}, (), True),
        ({"b": STOPPED, "c": UNKNOWN, "d": UNKNOWN, "e": UNKNOWN, "a": Answer("starting")}, (), False),
        ({"b": STOPPED, "c": UNKNOWN, "d": UNKNOWN, "e": UNKNOWN, "a": Answer("stopped", "not_deployed")}, (), False),
    ],
)
def test_a_decision(answers, ask, is_open):
    decision = decide([DEMAND], answers)
    assert (decision.ask, decision.is_open) == (ask, is_open)
    assert bool(decision.shut) == (not ask and not is_open)


def test_every_group_of_a_wave_counts():
    other = Demand("code", 1, 2, ("x",), ("y",))
    assert decide([DEMAND, other], {}).ask == ("b", "c", "y")
    known = {"b": SERVES, "c": SERVES, "y": UNKNOWN, "x": SERVES}
    assert decide([DEMAND, other], known).shut == (other,)
    assert decide([], {}).is_open


NAMES = st.lists(st.sampled_from("bcdefgh"), unique=True)


@given(
    NAMES, st.integers(1, 4), st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from([SERVES, STOPPED, UNKNOWN]))
)
def test_asking_ends_and_only_real_answers_open(others, floor, truth):
    demand = Demand("g", floor, len(others) + 1, ("a",), tuple(others))
    answers = {}
    for _round in range(len(others) + 2):
        decision = decide([demand], answers)
        if not decision.ask:
            break
        assert not answers.keys() & set(decision.ask)
        answers.update({name: truth.get(name, UNKNOWN) for name in decision.ask})
    serving = sum(1 for name in others if truth.get(name) == SERVES)
    assert decision.is_open == (serving >= floor or truth.get("a") == STOPPED)
    assert not decision.ask


def test_questions_are_divided_among_the_wave():
    assert spread(["c", "d", "e"], ["a", "b"]) == {"a": ["c", "e"], "b": ["d"]}
    assert spread(["b", "c"], ["a", "b"]) == {"b": ["b"], "a": ["c"]}
    assert spread([], ["a"]) == {}


@pytest.mark.parametrize(
    ("result", "state", "words"),
    [
        ({"servers": [{"instance": "x", "state": "stopped"}, {"instance": "main", "state": "serving"}]}, "serving", ""),
        (
            {"servers": [{"instance": "main", "state": "failed", "message": "It\x1b[2J died."}]},
            "failed",
            "It\\x1b[2J died.",
        ),
        ({"servers": []}, "unknown", "its host knows no instance main"),
        ({"servers": "x"}, "unknown", "it could not be asked: it gave no reason"),
        ({"failed": True, "servers": [{"instance": "main", "state": "serving"}]}, "unknown", "could not be asked"),
        ({"rc": 127, "msg": "no python\nat all"}, "unknown", "it could not be asked: no python"),
        ({"unreachable": True, "msg": "no route"}, "unknown", "it cannot be reached: no route"),
        ({"servers": [{"instance": "main"}]}, "", ""),
        ({"servers": [{"instance": "main", "state": "unknown", "message": "x" * 9000}]}, "unknown", "x" * 200),
    ],
)
def test_reading_an_answer(result, state, words):
    answer = read_answer(result, "main")
    assert answer.state == state and words in answer.message and len(answer.message) <= 300


def test_a_refusal_names_everything():
    text = refusal(2, [DEMAND], {"b": SERVES, "c": UNKNOWN, "d": STOPPED, "e": Answer("starting", "loading")}, 60.2)
    assert text == (
        "Nothing of wave 2 was touched, after 60 s of waiting. At least 2 of the 5 replicas of the group chat must "
        "serve (sglang_min_serving). Without a only b would; c does not: It does not answer; d does not: It is "
        "stopped; e does not: starting loading. Look at c, d, e. Restart first what does not serve, by itself: "
        "--limit c. Then run the same again."
    )
    alone = refusal(1, [Demand("g", 1, 1, ("a",), ())], {"a": SERVES}, 0)
    assert "1 replica of the group g must serve (sglang_min_serving). Without a none would; it has no others." in alone


def test_many_that_do_not_serve_are_counted():
    names = ["h%d" % index for index in range(20)]
    line = waiting_line(3, [Demand("g", 9, 21, ("a",), tuple(names))], dict.fromkeys(names, STOPPED), 12.3)
    assert line.startswith("Wave 3 waits, 12 s at most: 0 of 9 serve in the group g; h0 does not: It is stopped; h1")
    assert line.endswith("; 15 more do not")


def test_a_plan_in_words():
    facts = plan(2, unit("a"), unit("b", "vacant", 2), unit("c", "keep", 0), unit("d", "outside", 0))
    facts["groups"]["chat"]["units"].append({**unit("e0", wave=2), "hosts": ["e0", "e1"]})
    assert plan_lines(facts) == [
        "Group chat, 5 replicas, 1 of them not in this run, 1 as wanted already, at least 2 serve all the time",
        "Wave 1: a",
        "Wave 2: b (nothing runs there), e0 + e1",
    ]


def test_how_a_wave_ended():
    assert stop_line(["a"], [], 0) == "a is not proven: no further wave begins."
    assert stop_line(["a", "b"], ["c"], 2) == (
        "a, b are not proven and c cannot be reached, which is more than sglang_max_failed=2 allows: "
        "no further wave begins."
    )
    assert going_on_line(["a"], ["b"], 2) == "The run goes on without a, b: sglang_max_failed=2 allows it."
    assert left_line([]) == ""
    assert left_line(["a"]) == "Mend what failed and run the same again: 1 host is left (a)."


def test_a_server_of_several_hosts_is_one_that_is_restarted_as_a_whole():
    big = {**unit("b", wave=2), "hosts": ["b", "c"]}
    (demand,) = demands(plan(1, unit("a"), big, unit("d", wave=2)), wave=1, unlikely=["c"])
    # A rank that was lost takes its server with it.
    assert demand.others == ("d", "b") and demand.total == 3 and demand.hosts == {"b": ("b", "c")}
    text = refusal(1, [demand], {"b": STOPPED, "d": UNKNOWN}, 0)
    assert "Restart first what does not serve, by itself: --limit d." in text
    (demand,) = demands(plan(1, unit("a"), big), wave=1)
    assert "--limit b,c." in refusal(1, [demand], {"b": STOPPED}, 0)
    assert "Wave 2: b + c" in plan_lines(plan(1, unit("a"), big))
