# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guard on traces of load: a small fleet that really switches, with clocks, failures and controllers that die."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.inferops.sglang.plugins.plugin_utils import guard_decision as guard
from ansible_collections.inferops.sglang.plugins.plugin_utils.guard_decision import Memory, Settings, decide
from ansible_collections.inferops.sglang.plugins.plugin_utils.guard_look import Look, load_of
from ansible_collections.inferops.sglang.plugins.plugin_utils.guard_rules import Load, Rule
from ansible_collections.inferops.sglang.plugins.plugin_utils.guard_words import line

RULES = (Rule(0, 0, "eagle3"), Rule(16, 12, "baseline"))
SETTINGS = Settings(RULES, samples=3, min_interval=1800.0, forget=7200.0)
NOW = 1_800_000_000.0
LONG = 10_000.0
NOTHING = Memory()


def look(host="a", state="serving", **more):
    return Look(host, state, **{"load": 5.0, "complete": True, "uptime": LONG, "why": "", **more})


def once(looks=None, running=None, memory=NOTHING, now=NOW, load="of looks", settings=SETTINGS):
    looks = looks or [look()]
    running = running or {item.host: ["eagle3"] for item in looks}
    serving = [item for item in looks if item.state == "serving" and not item.node_rank]
    found = load_of(serving, "average") if load == "of looks" else load
    return decide(looks, running, found, settings, memory, now)


class Fleet:
    """Servers that run what they were switched to, and a guard that is run now and then."""

    def __init__(self, hosts=("a", "b"), settings=SETTINGS):
        self.settings = settings
        self.clock = 0.0  # what passes
        self.skew = NOW  # what the controller's clock shows beyond that
        self.started = dict.fromkeys(hosts, -LONG)
        self.profile = dict.fromkeys(hosts, "eagle3")
        self.memory = Memory()
        self.switches = []

    def looks(self, loads):
        return [
            look(
                host,
                load=loads.get(host),
                complete=loads.get(host) is not None,
                uptime=self.clock - self.started[host],
            )
            for host in self.profile
        ]

    def run(self, load, passes=60.0, dies=False, fails=(), memory=None):
        """One run at a load (a number for all, None for unknown, or by host), after some seconds."""
        self.clock += passes
        loads = load if isinstance(load, dict) else dict.fromkeys(self.profile, load)
        looks = self.looks(loads)
        running = {host: [profile] for host, profile in self.profile.items()}
        remembered = self.memory if memory is None else memory
        verdict = decide(looks, running, load_of(looks, "average"), self.settings, remembered, self.skew + self.clock)
        if memory is None:
            self.memory = verdict.memory
        if verdict.switches:
            self.switches.append((self.clock, verdict.wanted))
            for number, host in enumerate(verdict.hosts):
                if dies and number:
                    break
                if self.profile[host] != verdict.wanted or host in fails:
                    self.started[host] = self.clock
                if host not in fails:
                    self.profile[host] = verdict.wanted
        return verdict


# ---- single decisions


def test_a_step_of_load_switches_after_so_many_runs_and_once():
    fleet = Fleet()
    assert [fleet.run(4).reason for _run in range(3)] == ["as_wanted"] * 3
    assert [fleet.run(40).reason for _run in range(3)] == ["not_yet", "not_yet", "switch"]
    assert set(fleet.profile.values()) == {"baseline"}
    assert [fleet.run(40).reason for _run in range(60)] == ["as_wanted"] * 60
    assert len(fleet.switches) == 1


def test_it_comes_back_after_the_interval_and_below_the_margin_only():
    fleet = Fleet()
    for _run in range(3):
        fleet.run(40)
    assert {fleet.run(13).reason for _run in range(60)} == {"as_wanted"}
    assert [fleet.run(3, 10.0).reason for _run in range(2)] == ["not_yet", "not_yet"]
    fleet.run(3, 10.0)
    assert fleet.switches[-1][1] == "eagle3"


def test_the_interval_counts_from_the_last_start():
    fleet = Fleet()
    for _run in range(3):
        fleet.run(40)
    reasons = [fleet.run(3).reason for _run in range(31)]
    assert reasons[:2] == ["not_yet"] * 2 and set(reasons[2:29]) == {"too_soon"} and reasons[29] == "switch"


def test_a_run_that_disagrees_begins_the_count_anew():
    fleet = Fleet()
    assert [fleet.run(load).reason for load in (40, 40, 4, 40, 40)] == [
        *["not_yet"] * 2,
        "as_wanted",
        *["not_yet"] * 2,
    ]
    assert fleet.run(40).reason == "switch"


def test_runs_that_are_close_together_count_as_one_and_far_apart_not_together():
    fleet = Fleet()
    fleet.run(40)
    assert [fleet.run(40, 1.0).missing for _run in range(5)] == [2] * 5
    assert fleet.run(40, 3600.0).missing == 1
    assert fleet.run(40, 7300.0).missing == 2


@pytest.mark.parametrize(
    ("looks", "reason", "words"),
    [
        ([look(), look("b", "unknown", why="it cannot be reached: no route")], "not_serving", "b is unknown"),
        ([look(), look("b", "starting", why="It loads.")], "not_serving", "b is starting (It loads)"),
        ([look(), look("b", "failed", why="died")], "not_serving", "b is failed"),
        ([look(), look("b", "draining")], "not_serving", "b is draining"),
        ([look("a", "stopped"), look("b", "stopped")], "nothing_serves", ""),
        ([look(load=None, complete=False)], "unknown_load", ""),
        ([look(load=40.0), look("b", load=None)], "unknown_load", ""),
    ],
)
def test_what_is_unknown_switches_nothing_and_forgets_the_count(looks, reason, words):
    verdict = once(looks, memory=Memory("baseline", 2, NOW - 60))
    assert verdict.reason == reason and words in verdict.detail and verdict.hosts == ()
    assert verdict.memory.agreed == 0


def test_a_stopped_server_counts_for_nothing_and_is_not_started():
    looks = [look(load=40.0), look("b", "stopped", load=None)]
    verdict = once(looks, {"a": ["eagle3"]}, Memory("baseline", 2, NOW - 60))
    assert verdict.switches and verdict.hosts == ("a",)


def test_a_node_of_a_higher_rank_goes_along_and_is_asked_nothing():
    higher = [look("b", load=None, uptime=None, node_rank=1), look("c", "follows", load=None, node_rank=2)]
    looks = [look(load=40.0), *higher]
    verdict = once(looks, {"a": ["eagle3"]}, Memory("baseline", 2, NOW - 60))
    assert verdict.switches and verdict.hosts == ("a", "b", "c")
    assert once(higher, {}).reason == "nothing_serves"


@pytest.mark.parametrize(
    ("running", "target", "reason", "words"),
    [
        ({"a": []}, "", "unknown_profile", "a runs none of the profiles"),
        ({"a": ["eagle3", "baseline"]}, "", "unknown_profile", "a may run eagle3 or baseline"),
        ({"a": ["eagle3", "baseline"]}, "baseline", "as_wanted", ""),
    ],
)
def test_what_runs_must_be_known(running, target, reason, words):
    verdict = once([look(load=40.0)], running, Memory(target=target))
    assert verdict.reason == reason and words in verdict.detail


def test_different_profiles_that_the_guard_did_not_make_are_left_alone():
    looks = [look(), look("b")]
    verdict = once(looks, {"a": ["eagle3"], "b": ["baseline"]})
    assert verdict.reason == "mixed" and verdict.detail == "eagle3: a; baseline: b"


def test_an_age_that_is_not_known_is_not_old_enough():
    verdict = once([look(load=40.0, uptime=None)], memory=Memory("baseline", 2, NOW - 60))
    assert verdict.reason == "unknown_age" and verdict.detail == "a"


def test_an_incomplete_load_switches_up_and_never_down():
    up = once([look(load=40.0, complete=False)], memory=Memory("baseline", 2, NOW - 60))
    assert up.switches
    down = once([look(load=0.0, complete=False)], {"a": ["baseline"]}, Memory("eagle3", 2, NOW - 60))
    assert down.reason == "as_wanted"


# ---- what goes wrong in between


def test_a_controller_that_dies_in_the_middle_leaves_a_switch_that_is_finished_later():
    fleet = Fleet(("a", "b", "c"))
    for _run in range(2):
        fleet.run(40)
    assert fleet.run(40, dies=True).switches
    assert sorted(fleet.profile.values()) == ["baseline", "eagle3", "eagle3"]
    reasons = [fleet.run(40).reason for _run in range(31)]
    assert reasons[0] == "too_soon" and reasons[-2] == "switch" and reasons[-1] == "as_wanted"
    assert set(fleet.profile.values()) == {"baseline"}


def test_a_controller_that_dies_after_it_decided_has_switched_nothing():
    fleet = Fleet()
    for _run in range(2):
        fleet.run(40)
    before = dict(fleet.profile)
    fleet.run(40)
    fleet.profile, fleet.started = before, dict.fromkeys(before, -LONG)
    reasons = [fleet.run(40).reason for _run in range(31)]
    # Not at once again: what was tried last may be what ended it.
    assert reasons.index("switch") == 29


def test_a_switch_that_fails_is_not_tried_again_at_once():
    fleet = Fleet()
    reasons = [fleet.run(40, fails=("a", "b")).reason for _run in range(120)]
    assert reasons.count("switch") == 120 * 60 // 1800


def test_memory_that_is_lost_makes_no_second_switch():
    fleet = Fleet()
    for _run in range(3):
        fleet.run(40)
    fleet.memory = Memory()
    assert {fleet.run(40).reason for _run in range(60)} == {"as_wanted"}
    fleet.memory = Memory()
    assert [fleet.run(3, 5.0).reason for _run in range(1)] == ["not_yet"]


@pytest.mark.parametrize("jump", [-1e6, -3600.0, 3600.0, 1e6])
def test_a_clock_that_jumps_neither_hastens_a_switch_nor_prevents_it_for_ever(jump):
    fleet = Fleet()
    for _run in range(3):
        fleet.run(40)
    fleet.skew += jump
    reasons = [fleet.run(3).reason for _run in range(40)]
    at = reasons.index("switch")
    # The servers know how long they run.
    assert at >= 29 and at <= 34
    assert len(fleet.switches) == 2


def test_two_controllers_do_not_fight():
    fleet = Fleet()
    one, other = Memory(), Memory()
    for number in range(400):
        load = 40 if (number // 100) % 2 == 0 else 2
        one = fleet.run(load, 30.0, memory=one).memory
        other = fleet.run(load, 30.0, memory=other).memory
    assert [profile for _time, profile in fleet.switches] == ["baseline", "eagle3", "baseline", "eagle3"]


# ---- properties

LOADS = st.one_of(st.none(), st.floats(0, 200))
RUN = st.tuples(LOADS, st.floats(1, 4000), st.sampled_from([False, False, False, True]), st.floats(-1e5, 1e5))


@settings(max_examples=60, deadline=None)
@given(trace=st.lists(RUN, min_size=1, max_size=60), jumps=st.booleans())
def test_two_switches_are_never_closer_than_the_interval(trace, jumps):
    fleet = Fleet()
    for load, passes, dies, jump in trace:
        fleet.skew += jump if jumps else 0.0
        fleet.run(load, passes, dies=dies)
    times = [time for time, _profile in fleet.switches]
    assert all(later - earlier >= 1800.0 for earlier, later in zip(times, times[1:]))


@settings(max_examples=60, deadline=None)
@given(trace=st.lists(st.floats(12, 200), min_size=1, max_size=80))
def test_noise_that_never_comes_back_below_the_margin_switches_once_at_most(trace):
    fleet = Fleet()
    for load in trace:
        fleet.run(load)
    assert len(fleet.switches) <= 1


@settings(max_examples=60, deadline=None)
@given(trace=st.lists(st.one_of(st.none(), st.floats(0, 15.9)), max_size=60))
def test_a_load_that_is_low_or_unknown_never_switches_speculation_off(trace):
    fleet = Fleet()
    for load in trace:
        fleet.run(load)
    assert fleet.switches == []


@settings(max_examples=60, deadline=None)
@given(trace=st.lists(st.one_of(st.none(), st.floats(12, 200)), max_size=60))
def test_what_is_unknown_never_switches_speculation_on(trace):
    fleet = Fleet()
    fleet.profile = dict.fromkeys(fleet.profile, "baseline")
    for load in trace:
        fleet.run(load)
    assert fleet.switches == []


# ---- words


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (
            once([look(load=40.0)]),
            "load 40.0 requests a server, runs eagle3, wants baseline: no switch: 1 of 3 runs agree "
            "(sglang_guard_samples).",
        ),
        (once([look()]), "load 5.0 requests a server, runs eagle3, wants eagle3: nothing to do."),
        (
            once([look(load=40.0, complete=False)], memory=Memory("baseline", 2, NOW - 60)),
            "load at least 40.0 requests a server, runs eagle3, wants baseline: switch to baseline.",
        ),
        (once([look(load=None)]), "load not known, runs eagle3: no switch: an unknown load is not a low one."),
        (
            once([look(load=40.0, uptime=60.0)], memory=Memory("baseline", 2, NOW - 60)),
            "load 40.0 requests a server, runs eagle3, wants baseline: no switch: the last start or switch is too "
            "recent, 29 min to go (sglang_guard_min_interval).",
        ),
    ],
)
def test_a_line_says_load_profiles_decision_and_why_not(verdict, text):
    assert line("chat", verdict, SETTINGS) == "Group chat: " + text


def test_every_reason_has_words():
    verdict = once([look()])
    reasons = [value for name, value in vars(guard).items() if name.isupper() and isinstance(value, str)]
    told = {
        line("g", replace(verdict, reason=reason), SETTINGS)
        for reason in reasons
        if reason not in (guard.FOLLOWS, guard.SERVING, guard.STOPPED)
    }
    assert len(told) == len(set(reasons)) - 3


def test_the_load_of_a_group():
    looks = [look(load=4.0), look("b", load=8.0, complete=False)]
    assert load_of(looks, "average") == Load(6.0, False) and load_of(looks, "peak") == Load(8.0, False)
    assert load_of([], "average") is None
