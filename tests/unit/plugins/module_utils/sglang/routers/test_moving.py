# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Taking a worker out and putting it back, on routers of both dialects and a clock that only sleeping moves."""

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.client import Job
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.errors import RouterError
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.floor import parse_floor
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.moving import (
    Insertion,
    Removal,
    Time,
    Wish,
    look,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.places import parse_place
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.records import Record
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.workers import parse_worker
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.sglang.routers.fake_router import (
    SGLANG_ROUTER,
    SMG,
    Registry,
)
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import FakeClock

OURS, OTHER, THIRD = "http://10.0.0.5:30000", "http://10.0.0.6:30000", "http://10.0.0.7:30000"
DIALECTS = [SGLANG_ROUTER, SMG]


class Router:
    """A registry as the code under test sees a router."""

    def __init__(self, registry, url):
        self.registry = registry
        self.url = url

    def _up(self):
        if self.registry.down:
            raise RouterError("router_unreachable", "The router %s does not answer." % self.url)

    def workers(self):
        self._up()
        return [parse_worker(dict(item)) for item in self.registry.list()]

    def remove(self, worker):
        self._up()
        if self.registry.denied:
            raise RouterError("router_refused", "The router %s answers %d." % (self.url, self.registry.denied))
        self.registry.delete(worker.id)

    def add(self, new):
        self._up()
        return self.registry.post(dict(new))

    def job(self, worker_id):
        self._up()
        job = self.registry.job()
        return Job(job["status"], job["message"] or "")


class Scene:
    """Routers that have our worker and two others, and what has been kept."""

    def __init__(self, dialect, routers=1):
        self.clock = FakeClock()
        self.registries = [Registry(dialect, self.clock).have(OURS, OTHER, THIRD) for _number in range(routers)]
        self.routers = [Router(item, "http://router-%d:8080" % n) for n, item in enumerate(self.registries)]
        self.worker = parse_place(OURS)
        self.kept = {}
        self.time = Time(self.clock, self.clock.sleep, removal=30, settle=1, ready=30)
        self.returned = []

    @property
    def registry(self):
        return self.registries[0]

    def out(self, floor="1", **wish):
        removal = Removal(self.routers, self.worker, parse_floor(floor), Wish(**wish), self.time)
        self.kept.update(removal.plan(look(self.routers, self.worker), self.kept))
        return removal.run()

    def back(self, plan=True, **wish):
        insertion = Insertion(self.routers, self.worker, self.kept, Wish(**wish), self.time, self.returned.append)
        if plan:
            insertion.plan(look(self.routers, self.worker))
        return insertion.run()

    def serving(self):
        return [view.serving for view in look(self.routers, self.worker)]


@pytest.fixture(params=DIALECTS)
def scene(request):
    return Scene(request.param)


@pytest.fixture(params=DIALECTS)
def two(request):
    return Scene(request.param, routers=2)


# -- out and in


def test_out_and_back_again(scene):
    scene.registry.rows[0].update(priority=7, cost=2.5)
    labels = scene.registry.rows[0].get("labels") or scene.registry.rows[0]["metadata"]
    labels["tier"] = "gold"
    assert scene.out() == ["http://router-0:8080"]
    assert scene.registry.urls() == [OTHER, THIRD]
    # smg keeps it for five seconds; a request that was on its way has arrived a second later.
    assert scene.clock.now == pytest.approx(6 if scene.registry.dialect == SMG else 1)
    assert scene.back(api_key="k-1") == ["http://router-0:8080"]
    ((_what, new),) = [event for event in scene.registry.events if event[0] == "post"]
    assert (new["url"], new["priority"], new["cost"], new["api_key"]) == (OURS, 7, 2.5, "k-1")
    assert new["labels"] == {"tier": "gold"}
    assert scene.serving() == [True]
    assert scene.returned == ["http://router-0:8080"]


def test_what_is_out_or_in_stays_as_it_is(scene):
    assert scene.back() == []
    scene.out()
    scene.registry.events.clear()
    before = scene.clock.now
    assert scene.out() == []
    assert scene.clock.now == before
    scene.back()
    assert scene.back() == []
    assert [what for what, _which in scene.registry.events] == ["post"]


def test_all_routers_are_left_before_any_is_waited_for(two):
    assert len(two.out()) == 2
    assert two.clock.now == pytest.approx(6 if two.registry.dialect == SMG else 1)
    assert two.back() == ["http://router-0:8080", "http://router-1:8080"]
    assert two.clock.now < 9


def test_one_that_has_left_one_router_already_leaves_the_other(two):
    two.kept["http://router-1:8080"] = Record(OURS, {"priority": 9})
    two.registries[1].rows.pop(0)
    assert two.out() == ["http://router-0:8080"]
    assert sorted(two.kept) == ["http://router-0:8080", "http://router-1:8080"]
    assert len(two.back()) == 2
    assert two.registries[1].events == [("post", {"url": OURS, "priority": 9})]


def test_one_that_is_leaving_is_not_told_twice():
    scene = Scene(SMG)
    scene.registry.delete(scene.registry.rows[0]["id"])
    scene.registry.events.clear()
    assert scene.out() == ["http://router-0:8080"]
    assert scene.registry.events == []
    assert scene.registry.urls() == [OTHER, THIRD]


def test_one_that_is_still_leaving_comes_back():
    scene = Scene(SMG)
    scene.kept["http://router-0:8080"] = Record(OURS, {})
    scene.registry.delete(scene.registry.rows[0]["id"])
    assert scene.back() == ["http://router-0:8080"]
    assert scene.clock.now > 5
    assert scene.serving() == [True]


def test_all_ranks_leave_together_and_are_asked_for_once():
    scene = Scene(SMG)
    scene.registry.rows[0]["url"] = OURS + "@0"
    scene.registry.have(OURS + "@1")
    scene.out()
    assert scene.registry.urls() == [OTHER, THIRD]
    scene.back()
    assert [event[1]["url"] for event in scene.registry.events if event[0] == "post"] == [OURS]


@pytest.mark.parametrize(
    ("recorded", "now", "asked"),
    [
        ("http://10.0.0.5:30000", "https", "https://10.0.0.5:30000"),
        ("https://10.0.0.5:30000", "http", "http://10.0.0.5:30000"),
        ("http://10.0.0.5:30000/", "http", "http://10.0.0.5:30000/"),
        ("grpc://10.0.0.5:30000", "http", "grpc://10.0.0.5:30000"),
        ("10.0.0.5:30000", "https", "10.0.0.5:30000"),
    ],
)
def test_the_url_is_that_of_before_as_the_server_speaks_now(recorded, now, asked):
    scene = Scene(SGLANG_ROUTER)
    scene.registry.rows.pop(0)
    scene.worker = parse_place(OURS).speaking(now)
    scene.kept["http://router-0:8080"] = Record(recorded, {})
    scene.back()
    assert scene.registry.events == [("post", {"url": asked})]


# -- one that no router has had


def test_an_unknown_one_is_not_touched(scene):
    scene.registry.rows.pop(0)
    for attempt in (scene.out, scene.back, lambda: scene.back(plan=False)):
        with pytest.raises(RouterError, match="does not know the worker"):
            attempt()
    assert scene.registry.events == []


def test_an_unknown_one_is_added_where_that_was_asked_for(scene):
    scene.registry.rows.pop(0)
    assert scene.out(register=True) == []
    assert scene.back(register=True, attributes={"priority": 3, "labels": {"tier": "new"}}) == ["http://router-0:8080"]
    assert scene.registry.events == [("post", {"url": OURS, "priority": 3, "labels": {"tier": "new"}})]


# -- what goes wrong


def test_too_few_are_left(scene):
    with pytest.raises(RouterError, match="would have 2 healthy workers") as caught:
        scene.out("3")
    assert caught.value.reason == "too_few_workers"
    assert scene.registry.events == []


def test_two_hosts_that_leave_at_the_same_moment_both_come_back(scene):
    delete = scene.registry.delete

    def also_the_other(worker_id):
        for item in tuple(scene.registry.rows):
            if item["url"] in (OURS, OTHER):
                delete(item["id"])
        return True

    scene.registry.delete = also_the_other
    with pytest.raises(RouterError, match=r"at the same time.*would have 1 healthy.*worker back") as caught:
        scene.out("2")
    assert caught.value.reason == "too_few_workers"
    assert scene.serving() == [True]


def test_a_router_that_refuses_leaves_the_others_as_they_were(two):
    two.registries[1].denied = 500
    with pytest.raises(RouterError, match=r"router-1.* answers 500.*has the worker back, as all others"):
        two.out()
    assert two.serving() == [True, True]


def test_a_router_that_dies_in_between_is_named(two):
    deleted = two.registries[0].delete

    def last_word(worker_id):
        two.registries[1].down = True
        return deleted(worker_id)

    two.registries[0].delete = last_word
    with pytest.raises(RouterError, match=r"router-1.* does not answer.*not put back everywhere:.*router-1") as caught:
        two.out()
    assert caught.value.reason == "router_unreachable"
    two.registries[1].down = False
    assert two.serving() == [True, True]


def test_one_that_never_leaves_the_list(scene):
    scene.registry.removing = 1000
    with pytest.raises(RouterError, match=r"After 30 s .* is still in the list of http://router-0:8080") as caught:
        scene.out()
    assert caught.value.reason == "not_removed"


def test_a_removal_that_fails_is_not_waited_for(scene):
    scene.registry.stuck = "No workers found"
    with pytest.raises(RouterError, match=r"could not take http://10.0.0.5:30000 out: No workers found.*worker back"):
        scene.out()
    assert scene.clock.now == 0
    assert scene.serving() == [True]


def test_a_router_that_is_silent_for_a_moment_is_asked_again():
    scene = Scene(SMG)
    sleep = scene.clock.sleep

    def moment(seconds):
        scene.registry.down = 2 < scene.clock.now < 4
        sleep(seconds)

    scene.time = dataclasses.replace(scene.time, sleep=moment)
    assert scene.out() == ["http://router-0:8080"]
    assert scene.back() == ["http://router-0:8080"]


def test_a_router_that_starts_anew_is_asked_anew(scene):
    scene.out()
    scene.registry.adding = 5
    sleep = scene.clock.sleep
    began = scene.clock.now

    def restart(seconds):
        # What it was asked is forgotten with it.
        scene.registry.down = 1 < scene.clock.now - began < 2
        if scene.registry.down:
            scene.registry._coming.clear()
        sleep(seconds)

    scene.time = dataclasses.replace(scene.time, sleep=restart)
    scene.back()
    assert [what for what, _which in scene.registry.events].count("post") == 2
    assert scene.serving() == [True]


@pytest.mark.parametrize(
    ("fault", "reason", "words"),
    [
        ({"failed_job": "connection refused"}, "not_added", "could not add the worker .*: connection refused"),
        ({"adding": 100}, "not_in_router", "after 30 s: it was asked to add the worker"),
        ({"healthy": 100}, "not_in_router", "after 30 s: it has the worker, and does not find it healthy"),
        ({"down": True}, "not_in_router", "after 30 s: The router http://router-0:8080 does not answer"),
    ],
)
def test_one_that_does_not_come_back(scene, fault, reason, words):
    scene.out()
    for name, value in fault.items():
        setattr(scene.registry, name, value)
    with pytest.raises(RouterError, match=words) as caught:
        scene.back(plan=False)
    assert caught.value.reason == reason
    assert "run the same again" in str(caught.value)
    assert scene.returned == []


def test_of_two_the_one_that_works_has_it_back(two):
    two.out()
    two.registries[0].failed_job = "no route to host"
    with pytest.raises(RouterError, match=r"router-0.* no route to host") as caught:
        two.back()
    assert "router-1" not in str(caught.value)
    assert two.serving() == [False, True]
    assert two.returned == ["http://router-1:8080"]


def test_one_that_is_there_and_not_healthy_is_waited_for(scene):
    scene.registry.rows[0]["is_healthy"] = False
    with pytest.raises(RouterError, match="does not find it healthy"):
        scene.back()
    assert scene.registry.events == []
