# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is left of a sweep, who does what next, and what comes back."""

from __future__ import annotations

import re

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils import sweep_progress
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_progress import choose, original_of, points_left


def point(concurrency, state="measured", throughput=None, took=None):
    return {"concurrency": concurrency, "state": state, "median": {"output_throughput": throughput}, "took": took}


def row(key, *points, state="proven", host="a", baseline=False, **more):
    return {"key": key, "points": list(points), "state": state, "host": host, "baseline": baseline, **more}


@pytest.mark.parametrize(
    ("rows", "retry", "expected"),
    [
        ([row("x", point(1), point(8))], False, {}),
        ([row("x", point(1))], False, {"x": [8]}),
        ([row("x", point(1, "failed"))], False, {"x": [8]}),
        ([row("x", point(1, "failed"))], True, {"x": [1, 8]}),
        ([row("x", state="failed")], False, {}),
        ([row("x", state="failed")], True, {"x": [1, 8]}),
        ([row("x", state="pending"), row("y", point(8))], False, {"x": [1, 8], "y": [1]}),
        # Of another list of concurrencies, kept in the folder.
        ([row("x", point(1), point(2), point(8))], False, {}),
    ],
)
def test_what_is_left(rows, retry, expected):
    assert points_left(rows, [1, 8], retry) == expected


BASE_A = row("base-a", state="pending", baseline=True)
BASE_B = row("base-b", state="pending", baseline=True, host="b")
ONE, TWO = row("one", state="pending", host=""), row("two", state="pending", host="")


@pytest.mark.parametrize(
    ("rows", "claims", "host", "expected"),
    [
        # Its own baseline first, never another host's.
        ([BASE_A, BASE_B, ONE], {}, "b", "base-b"),
        ([BASE_A, ONE], {}, "b", "one"),
        # What another host has is left to it.
        ([ONE, TWO], {"one": {"host": "a"}}, "b", "two"),
        ([ONE], {"one": {"host": "a"}}, "b", None),
        # Its own again, as after a point that was not stored.
        ([ONE, TWO], {"one": {"host": "b"}}, "b", "one"),
        # What it has begun comes before its baseline: the server may still run.
        ([BASE_B, row("one", point(1), host="b")], {}, "b", "one"),
        # Points of one configuration are of one host, unless that host is gone.
        ([row("one", point(1), host="a")], {}, "b", None),
        ([row("one", point(1), host="gone")], {}, "b", "one"),
        ([ONE], {"one": {"host": "gone"}}, "b", "one"),
        ([row("base-x", state="pending", baseline=True, host="gone")], {}, "b", None),
        ([], {}, "b", None),
    ],
)
def test_who_measures_what(rows, claims, host, expected):
    left = points_left(rows, [1, 8])
    found = choose(rows, left, claims, host, ["a", "b"])
    assert (found and found["key"]) == expected


def test_two_hosts_share_all_of_it_without_measuring_anything_twice():
    rows = [BASE_A, BASE_B, *(row(f"c{number}", state="pending", host="") for number in range(5))]
    done, claims = {"a": [], "b": []}, {}
    left = points_left(rows, [1])
    for host in "abbabababab":
        mine = choose(rows, left, claims, host, ["a", "b"])
        if mine:
            claims[mine["key"]] = {"host": host}
            del left[mine["key"]]
            done[host].append(mine["key"])
    assert left == {}
    assert done["a"][0] == "base-a" and done["b"][0] == "base-b"
    assert sorted(done["a"] + done["b"]) == ["base-a", "base-b", "c0", "c1", "c2", "c3", "c4"]
    assert len(done["a"]) > 1 and len(done["b"]) > 1


def test_how_long_the_rest_takes():
    rows = [
        row("x", point(1, took=10), point(8, took=20), took=100),
        row("y", point(1, took=14), took=200),
        row("z", state="pending"),
    ]
    left = points_left(rows, [1, 8])
    # y lacks the point of 20 s; z its start of 150 s on average, 12 s and 20 s.
    assert sweep_progress.seconds_left(rows, left, 1) == 20 + 150 + 12 + 20
    assert sweep_progress.seconds_left(rows, left, 2) == 101
    assert sweep_progress.seconds_left([row("z", state="pending")], {"z": [1]}, 1) is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((3, 6, 480.0), r"Loading alone takes about 24 min \(3 times 480 s\)"),
        ((3, 6, None), "How long it takes shows"),
        ((0, 0, 480.0), "^$"),
    ],
)
def test_what_can_be_said_of_the_time_before(arguments, words):
    assert re.search(words, sweep_progress.first_estimate(*arguments))


def test_the_ratio_is_to_the_baseline_of_the_same_host():
    rows = [
        row("ba", point(8, throughput=100.0), baseline=True, host="a"),
        row("bb", point(8, throughput=50.0), baseline=True, host="b"),
    ]
    mine = row("x", host="b")
    assert sweep_progress.ratio_to_baseline(rows, mine, point(8, throughput=75.0)) == 1.5
    assert sweep_progress.ratio_to_baseline(rows, mine, point(1, throughput=75.0)) is None
    assert sweep_progress.ratio_to_baseline(rows, mine, point(8, "failed", 75.0)) is None
    assert sweep_progress.ratio_to_baseline(rows, rows[0], point(8, throughput=75.0)) is None
    # Without one of its own: the only one there is, or none.
    assert sweep_progress.ratio_to_baseline(rows[:1], mine, point(8, throughput=75.0)) == 0.75
    assert sweep_progress.ratio_to_baseline(rows, row("x", host="c"), point(8, throughput=75.0)) is None


def release(name, **flags):
    return {"id": name, "proven": False, "last_good": False, "origin": "", **flags}


PROVEN = release("r1", proven=True, last_good=True)


@pytest.mark.parametrize(
    ("found", "known", "expected"),
    [
        ({"running": True, "release": "r1", "releases": [PROVEN]}, None, {"kind": "release", "release": "r1"}),
        ({"running": False, "release": "", "releases": [PROVEN]}, None, {"kind": "stopped", "release": ""}),
        (
            {"running": False, "releases": [release("r2", current=True), PROVEN]},
            None,
            {"kind": "stopped", "release": "r2"},
        ),
        ({"running": False, "unmanaged": True}, None, {"kind": "unmanaged"}),
        # One that was never proven is not what comes back, if there is one that was.
        (
            {"running": True, "release": "r2", "releases": [release("r2"), PROVEN]},
            None,
            {"kind": "release", "release": "r1", "instead_of": "r2"},
        ),
        ({"running": True, "release": "r2", "releases": [release("r2")]}, None, {"kind": "release", "release": "r2"}),
        # A run of the same sweep died: what it found counts, whatever runs or not.
        (
            {"running": True, "release": "r9", "releases": [release("r9"), PROVEN]},
            {"kind": "stopped"},
            {"kind": "stopped"},
        ),
        (
            {"running": False, "release": "", "releases": [release("r9"), PROVEN]},
            {"kind": "release", "release": "r1"},
            {"kind": "release", "release": "r1"},
        ),
        # Unless somebody has deployed something since.
        (
            {"running": True, "release": "r5", "releases": [release("r5", proven=True, last_good=True), PROVEN]},
            {"kind": "release", "release": "r1"},
            {"kind": "release", "release": "r5"},
        ),
        # It died between taking a server over and writing that down.
        (
            {"running": False, "releases": [release("r3"), release("r2", proven=True, origin="adopted")]},
            {"kind": "unmanaged"},
            {"kind": "release", "release": "r2"},
        ),
        ({"running": False, "unmanaged": True}, {"kind": "unmanaged"}, {"kind": "unmanaged"}),
        ({"running": False, "releases": []}, {"kind": "unmanaged"}, {"kind": "stopped", "release": ""}),
    ],
)
def test_what_comes_back(found, known, expected):
    assert original_of(found, known) == expected


def test_how_long_the_last_start_took():
    assert sweep_progress.last_start({"releases": [{"ready_after": None}, {"ready_after": 412.0}]}) == 412.0
    assert sweep_progress.last_start({}) is None
