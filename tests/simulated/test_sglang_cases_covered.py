# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every SGLang case from public bug reports, and every state of a server that has to be told apart, has its test.

Numbers are rows of the project's table of cases, words are states; `@pytest.mark.sglang_case(row)` names a test's.
"""

from __future__ import annotations

import pytest

from .case_marks import HERE, marked

CASES = {
    1: "healthy after a hard restart, and silent after a hundred requests",
    2: "schedulers without a parent that keep the GPU memory",
    3: "shared memory of a dead server that fails each start",
    5: "EAGLE3 without a draft model",
    7: "a draft that wants layers which the target does not have",
    8: "nothing of the draft is accepted",
    10: "the draft takes over the target's quantization",
    11: "adaptive speculation that ends the start",
    12: "adaptive speculation that is turned off without an error",
    14: "speculation limits the running requests to 48",
    15: "more running requests than the largest CUDA graph",
    16: "too little memory for the weights, the cache or the draft",
    17: "one GPU has less free memory than the others",
    18: "CUDA graphs cannot be captured",
    19: "capturing the draft's graphs takes a minute",
    20: "another node dies while the first one loads",
    21: "the first node says it is healthy without the second",
    24: "a proxy answers the server's request to itself",
    25: "the list of models is there before the server is ready",
    26: "somebody else has the port",
    28: "a server that kills itself when it is told to stop",
    29: "a signal to the whole group ends the workers in the drain",
    30: "the data-parallel controller dies and nobody notices",
    31: "the lock of a killed compiler",
    32: "keys in what the server says of itself",
    34: "the first GPU's number counts after the selection",
    36: "memory that comes back long after the end",
    37: "a unit that dies and is started again, over and over",
    38: "EAGLE3 is slower when many requests run",
}

STATES = (
    "dies before it listens",
    "dies in its warm-up",
    "never ready",
    "an older server still answers",
    "adjusted configuration",
    "no speculation and no word of it",
    "wants another key",
    "drains longer than it may",
    "single refusals under load",
    "orphans from the import window",
    "memory that never comes back",
    "a stranger on the GPU",
    "the health of another node",
)

ROWS = (*CASES, *STATES)

# The tests of test_sglang_modules.py.
ELSEWHERE = {
    "never ready": "test_a_server_that_never_gets_ready_fails_at_the_timeout",
    "a stranger on the GPU": "test_a_gpu_that_a_stranger_holds_fails_the_start_at_once",
}

# What nothing in the collection does yet: why.
LATER = {
    38: "comparing measured speeds at several concurrencies is the business of the benchmark roles",
}


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_case_has_its_test(row):
    if row in ELSEWHERE:
        assert "def %s(" % ELSEWHERE[row] in (HERE / "test_sglang_modules.py").read_text(encoding="utf-8")
    elif row not in LATER:
        assert marked("sglang_case").get(row), "case %s (%s) has no test" % (row, CASES.get(row, "a state"))


def test_marks_name_cases_of_the_table():
    assert set(marked("sglang_case")) <= set(ROWS).difference(ELSEWHERE, LATER)


def test_what_is_not_done_here_is_of_the_table_and_in_one_list():
    assert set(ELSEWHERE).union(LATER) <= set(ROWS)
    assert not set(ELSEWHERE).intersection(LATER)
