# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.state import (
    BenchmarkState,
    StateError,
    state_from,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity

EMPTY = BenchmarkState("boot", "r1", "0" * 16)
FULL = BenchmarkState(
    boot="boot",
    release="r1",
    nonce="0123456789abcdef",
    identity=ProcessIdentity(7, 99),
    speculates=True,
    adaptive=True,
    max_running_requests=48,
    model="/m",
    tokenizer="/t",
    facts={"pid": 7},
    points=[{"concurrency": 1, "state": "measured"}],
    began=12.5,
    warnings=["w"],
    client={"module": "sglang.benchmark.serving"},
)


@pytest.mark.parametrize("state", [EMPTY, FULL], ids=["empty", "full"])
def test_it_travels_as_json(state):
    assert state_from(json.loads(json.dumps(state.to_dict()))) == state


@pytest.mark.parametrize(
    "changed",
    [
        {"format": 2},
        {"nonce": "../../etc"},
        {"nonce": None},
        {"identity": [7]},
        {"identity": "x"},
        {"points": [3]},
        {"points": None},
        {"began": "x"},
        {"facts": 3},
        {"client": [1]},
        {"max_running_requests": "x"},
    ],
)
def test_anything_else_is_refused(changed):
    with pytest.raises(StateError, match=r"^resume: .*leave it out"):
        state_from({**FULL.to_dict(), **changed})


@pytest.mark.parametrize("name", list(FULL.to_dict()))
def test_a_missing_part_is_refused(name):
    data = FULL.to_dict()
    del data[name]
    with pytest.raises(StateError, match=name):
        state_from(data)
