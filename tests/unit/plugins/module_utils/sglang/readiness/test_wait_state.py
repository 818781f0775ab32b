# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What travels between two parts of a wait."""

from __future__ import annotations

import copy
import json

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.readiness import Generation, Kept
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.soak import SoakCount
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.start_progress import Seen
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.wait_state import (
    StateError,
    WaitState,
    state_from,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.workers import Worker
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity

STATE = WaitState(
    boot="b",
    release="r1",
    kept=Kept(10.0, [{"name": "starting", "at": 10.0}, {"name": "ready", "at": 20.5}], ["x"], 2, True, False, 7, 1),
    identity=ProcessIdentity(7, 900),
    seen=Seen("the end", 19.0),
    workers=[Worker(ProcessIdentity(8, 901), "sglang::scheduler", 18.0), Worker(ProcessIdentity(9, 902), "sglang::d")],
    missing_since=19.5,
    samples=[[Generation(128, {"spec_verify_ct": 40}, 1.5)], []],
    judged=1,
    soak=SoakCount(10, 1, 1, 4.5, 320, 100, "late"),
    nonce="abc",
    ready_after=12.5,
)


def test_there_and_back():
    assert state_from(json.loads(json.dumps(STATE.to_dict()))) == STATE


def test_nothing_is_handed_on_of_a_wait_that_has_not_begun():
    with pytest.raises(StateError):
        WaitState("b", "r1").to_dict()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["format"], 2),
        (["kept"], None),
        (["kept", "entered"], []),
        (["kept", "entered"], [["dancing", 1.0]]),
        (["kept", "entered"], [["ready"]]),
        (["kept", "began"], "x"),
        (["identity"], [1, 2, 3]),
        (["seen"], ["end"]),
        (["workers"], [[1]]),
        (["samples"], [[]]),
        (["samples"], [[["x", 1, 1]], []]),
        (["soak"], {}),
        (["judged"], None),
    ],
)
def test_what_no_earlier_part_has_returned(path, value):
    data = copy.deepcopy(STATE.to_dict())
    place = data
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises(StateError, match=r"^resume: .*leave it out"):
        state_from(data)


@pytest.mark.parametrize("name", sorted(STATE.to_dict()))
def test_nothing_of_it_may_be_missing(name):
    data = STATE.to_dict()
    del data[name]
    with pytest.raises(StateError):
        state_from(data)
