# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What may be done to this host's worker, by what a router says."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.errors import RouterError
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.floor import parse_floor
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.looking import (
    View,
    below_floor,
    check_known,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.places import parse_place
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.records import Record
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.workers import parse_worker
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.sglang.routers.fake_router import SMG, row

ROUTER = "http://router:8080"
OURS = "http://10.0.0.5:30000"
RECORD = Record(OURS, {})


def url(number):
    return "http://10.0.0.%d:30000" % number


def view(*rows):
    return View(ROUTER, [parse_worker(item) for item in rows], parse_place(OURS))


def three(**more):
    """Ours and two others."""
    return view(row(OURS, 1, **more), row(url(6), 2), row(url(7), 3))


def test_ours_are_told_from_others():
    seen = view(row("HTTP://10.0.0.5:30000/", 1), row(url(6), 2), row("http://10.0.0.5:30001", 3))
    assert [worker.id for worker in seen.ours] == [row("", 1)["id"]]
    assert (seen.serving, seen.draining) == (True, False)


def test_what_the_module_returns():
    assert three(priority=7).to_dict() == {
        "url": ROUTER,
        "registered": True,
        "healthy": True,
        "draining": False,
        "ids": [row("", 1)["id"]],
        "model": "llama",
        "worker_type": "regular",
        "attributes": {"priority": 7, "cost": 1.0, "worker_type": "regular", "disable_health_check": False},
        "workers": 3,
        "healthy_others": 2,
    }
    gone = view(row(url(6), 2)).to_dict()
    assert (gone["registered"], gone["ids"], gone["model"], gone["attributes"]) == (False, [], "", {})


# -- does the router know it?


@pytest.mark.parametrize(
    ("rows", "records", "register", "reason"),
    [
        ([row(OURS, 1)], {}, False, ""),
        ([], {}, True, ""),
        ([], {ROUTER: RECORD}, False, ""),
        ([], {"http://another:1": RECORD}, False, "unknown_worker"),
        ([row(url(6), 1)], {}, False, "unknown_worker"),
        ([row(OURS + "@0", 1, SMG), row(OURS + "@1", 2, SMG)], {}, False, ""),
        ([row(OURS + "@0", 1), row(OURS + "@1", 2)], {}, False, "unremovable_worker"),
        ([row(OURS, 1), row(OURS, 2)], {}, False, "ambiguous_worker"),
        ([row(OURS, 1), row(OURS + "/", 2, model="qwen")], {}, True, "ambiguous_worker"),
        ([row(OURS + "@0", 1, SMG), row(OURS + "@1", 2, SMG, model="qwen")], {}, False, "ambiguous_worker"),
        ([row(OURS + "@0", 1, SMG), row(OURS, 2, SMG)], {}, False, ""),
    ],
)
def test_whether_it_can_be_put_back(rows, records, register, reason):
    if not reason:
        check_known([view(*rows)], records, register)
        return
    with pytest.raises(RouterError) as caught:
        check_known([view(*rows)], records, register)
    assert caught.value.reason == reason
    assert ROUTER in str(caught.value)
    assert OURS in str(caught.value)


def test_who_does_not_know_it_says_whom_it_knows():
    with pytest.raises(RouterError, match=r"It has http://10.0.0.10:30000, .* and 3 more. Give") as caught:
        check_known([view(*(row(url(number), number) for number in range(10, 21)))], {}, False)
    assert "sglang_router_worker_url" in str(caught.value)
    assert "sglang_router_register" in str(caught.value)
    with pytest.raises(RouterError, match="It has no worker at all"):
        check_known([view()], {}, False)


# -- are enough left?


@pytest.mark.parametrize(
    ("rows", "floor", "allowed"),
    [
        ([row(OURS, 1), row(url(6), 2), row(url(7), 3)], "2", True),
        ([row(OURS, 1), row(url(6), 2), row(url(7), 3)], "3", False),
        ([row(OURS, 1), row(url(6), 2), row(url(7), 3)], "67%", False),
        ([row(OURS, 1), row(url(6), 2), row(url(7), 3)], "66%", True),
        ([row(OURS, 1), row(url(6), 2, healthy=False)], "1", False),
        # The last one may go where that was asked for.
        ([row(OURS, 1)], "1", False),
        ([row(OURS, 1)], "0", True),
        # Others of other models and kinds do not stand in for it.
        ([row(OURS, 1), row(url(6), 2, model="qwen")], "1", False),
        ([row(OURS, 1), row(url(6), 2, worker_type="decode")], "1", False),
        ([row(OURS, 1, worker_type="prefill"), row(url(6), 2, worker_type="prefill")], "1", True),
        # It takes nothing away where it gets no requests anyway.
        ([row(OURS, 1, healthy=False), row(url(6), 2)], "2", True),
        ([row(url(6), 2)], "5", True),
        # The ranks of a worker are one, and count when all of them serve.
        ([row(OURS, 1), row(url(6) + "@0", 2), row(url(6) + "@1", 3)], "2", False),
        ([row(OURS, 1), row(url(6) + "@0", 2), row(url(6) + "@1", 3, healthy=False)], "1", False),
        ([row(OURS + "@0", 1), row(OURS + "@1", 2), row(url(6) + "@0", 3)], "1", True),
    ],
)
def test_whether_it_may_leave(rows, floor, allowed):
    assert (below_floor(view(*rows), parse_floor(floor)) is None) is allowed


def test_why_it_may_not():
    problem = below_floor(three(), parse_floor("80%"))
    assert problem.startswith(
        "Without http://10.0.0.5:30000 the router http://router:8080 would have 2 healthy workers of llama left, and "
        "min_healthy (sglang_router_min_healthy) is 80%, here 3."
    )


def test_others_may_have_left_meanwhile():
    after = view(row(url(6), 2, healthy=False), row(url(7), 3))
    assert below_floor(three(), parse_floor("1"), after) is None
    assert "would have 1 healthy" in below_floor(three(), parse_floor("2"), after)
