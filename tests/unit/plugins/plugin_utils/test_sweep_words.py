# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines of a sweep."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils import sweep_words

SWEEP = {
    "name": "llama",
    "concurrencies": [1, 8],
    "repeats": 3,
    "original": {
        "a": {"kind": "release", "release": "r1"},
        "b": {"kind": "release", "release": "r1", "instead_of": "r2"},
        "c": {"kind": "stopped"},
        "d": {"kind": "unmanaged"},
    },
}
EAGLE = {"algorithm": "EAGLE3", "num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4}
ROWS = [
    {"name": "baseline", "key": "1", "host": "a", "settings": {"algorithm": "none"}, "state": "proven"},
    {"name": "eagle3-steps3", "key": "2", "settings": EAGLE},
    {"name": "eagle3-steps3-nvls", "key": "3", "settings": EAGLE, "environment_name": "nvls"},
    {"name": "wide", "key": "4", "settings": {"algorithm": "EAGLE3"}},
    {"name": "words", "key": "5", "settings": {"algorithm": "NGRAM", "num_draft_tokens": 12}, "state": "failed"},
]


def test_the_plan():
    pending = {"2": [8], "3": [1, 8]}
    lines = sweep_words.plan_lines(SWEEP, ROWS, pending, {"4": "no draft"}, "It takes long.", True)
    assert lines == [
        "Sweep llama: 6 configurations, 3 points of 10, requests at a time 1, 8, 3 repeats each",
        "  baseline            no speculation, on a: measured",
        "  eagle3-steps3       EAGLE3 3/1/4: 1 point left",
        "  eagle3-steps3-nvls  EAGLE3 3/1/4, environment nvls: to be measured",
        "  wide                EAGLE3: refused: no draft",
        "  words               NGRAM ?/?/12: failed before: None",
        "  adaptive            computed from the points of the others",
        "Before: release r1 on a",
        "Before: release r1 on b, which was proven last; r2, which runs there, never was",
        "Before: nothing on c",
        "Before: a server on d that somebody started by hand",
        "It takes long.",
    ]


MEDIAN = {
    "output_throughput": 312.44,
    "median_tpot_ms": 22.51,
    "median_ttft_ms": 1250.0,
    "median_e2e_latency_ms": 2400.0,
    "accept_length": 2.614,
}


@pytest.mark.parametrize(
    ("point", "ratio", "expected"),
    [
        (
            {"state": "measured", "median": MEDIAN},
            1.123,
            "312.4 tok/s (1.12 of the baseline), TPOT 22.5 ms, TTFT 1.25 s, whole 2.40 s, 2.61 accepted; 3 left",
        ),
        (
            {"state": "measured", "median": {"output_throughput": 90.0}, "warnings": ["it waits", "more"]},
            None,
            "90.0 tok/s, ! it waits; 3 left",
        ),
        (
            {"state": "failed", "reason": "timeout", "message": "It took 1800 s."},
            None,
            "failed (timeout): It took 1800 s.; 3 left",
        ),
        ({"state": "measured", "median": {}}, 2.0, "no numbers; 3 left"),
    ],
)
def test_a_point(point, ratio, expected):
    row = {"name": "x", "host": "a"}
    line = sweep_words.point_line(row, {"concurrency": 8, **point}, ratio, "3 left")
    assert line == "x on a, 8 at a time: " + expected


def test_a_row():
    row = {"name": "x", "host": "a", "settings": EAGLE}
    proven = sweep_words.row_line({**row, "state": "proven", "ready_after": 411.7})
    assert proven == "x on a: proven, ready after 412 s (EAGLE3 3/1/4)"
    assert sweep_words.row_line({**row, "state": "proven", "ready_after": None}) == "x on a: proven (EAGLE3 3/1/4)"
    failed = sweep_words.row_line({**row, "state": "failed", "reason": "out_of_memory", "message": "It died."})
    assert failed == "x on a: failed (out_of_memory): It died."


@pytest.mark.parametrize(
    ("points", "configurations", "seconds", "expected"),
    [
        (0, 0, None, "nothing left"),
        (1, 1, None, "1 point of 1 configuration left"),
        (12, 4, 45.4, "12 points of 4 configurations left, about 45 s"),
        (12, 4, 1500, "12 points of 4 configurations left, about 25 min"),
        (12, 4, 7500, "12 points of 4 configurations left, about 2 h 05 min"),
    ],
)
def test_what_is_left(points, configurations, seconds, expected):
    assert sweep_words.left_text(points, configurations, seconds) == expected
