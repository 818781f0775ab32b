# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Servers are restarted one after the other behind both routers at a time, while clients ask: no request fails."""

from __future__ import annotations

import pytest
import waiting

# smg keeps a worker for five seconds that leaves; this is for tests that are about something else.
AT_ONCE = {"health": {"drain_settle_secs": 0}}
LONG = 325  # tokens: 13 seconds, and leaving both routers takes six


def test_no_request_fails_while_the_servers_are_restarted(scene):
    workers = [scene.worker() for _number in range(3)]
    for worker in workers:
        worker.wait()
    # The third one is registered by the module, with attributes of its own.
    routers = [scene.router(kind, workers[:2]) for kind in ("sglang-router", "smg")]
    for router in routers:
        router.wait(2)
    own = {"priority": 70, "cost": 2.5, "labels": {"tier": "gold"}}
    added = workers[2].router(routers, "present", register=True, attributes=own)
    assert [router["healthy"] for router in added["routers"]] == [True, True]

    load = scene.load(*(router.url for router in routers))
    # Each router hands them out in turn, one to each worker.
    for router in routers:
        for _worker in workers:
            load.long(router.url, LONG)
    waiting.until(lambda: [worker.running() for worker in workers] == [2, 2, 2])
    load.start()
    for number, worker in enumerate(workers):
        before = worker.process("inspected")["process"]["pid"]
        rehearsed = worker.router(routers, "absent", check=True, min_healthy="60%")
        assert rehearsed["changed"] and len(rehearsed["actions"]) == 2
        assert worker.url in routers[0].workers()

        left = worker.router(routers, "absent", min_healthy="2")
        assert left["changed"] and not any(router["registered"] for router in left["routers"]), left
        assert sorted(left["record"]) == sorted(router.url for router in routers)
        if number == 0:
            # Long answers are still under way, and nobody but the worker itself knows.
            assert worker.running() > 0
        stopped = worker.stop()
        assert not stopped.get("failed") and stopped["drain"]["in_flight"] == 0, stopped
        assert [item["action"] for item in stopped["ended"] if item["role"] == "main"] == ["terminated"]
        # Another one must not go meanwhile.
        other = workers[(number + 1) % 3]
        refused = other.router(routers, "absent", min_healthy="2")
        assert refused["failed"] and refused["reason"] == "too_few_workers", refused

        assert worker.start() != before
        worker.wait()
        joined = worker.router(routers, "present")
        assert joined["changed"] and all(router["healthy"] for router in joined["routers"]), joined
        assert joined["record"] == {}
        assert worker.router(routers, "present")["changed"] is False
    load.wait_for_long()
    load.stop()
    assert load.failures == []
    assert min(load.answered.values()) > 50, load.answered
    # The first ones have got requests again since.
    assert all(worker.answered() > 0 for worker in workers[:2])
    for router in routers:
        rows = router.workers()
        third = rows[workers[2].url]
        labels = third.get("labels") or third["metadata"]
        assert (third["priority"], third["cost"], labels["tier"]) == (70, 2.5, "gold")
        assert (rows[workers[0].url]["priority"], len(rows)) == (50, 3)


@pytest.mark.parametrize("kind", ["sglang-router", "smg"])
def test_a_router_that_tells_ranks_apart(scene, kind):
    worker = scene.worker("--dp-size", "2")
    worker.wait()
    router = scene.router(kind, [], "--dp-aware")
    router.wait(0)
    assert worker.router([router], "present", register=True, attributes=AT_ONCE)["changed"]
    before = sorted(router.workers())
    assert before == [worker.url + "@0", worker.url + "@1"]
    left = worker.router([router], "absent", min_healthy="0", settle=0)
    if kind == "sglang-router":
        # It would take the request to remove a rank, and then fail.
        assert left["failed"] and left["reason"] == "unremovable_worker", left
        assert sorted(router.workers()) == before
        return
    assert left["changed"] and router.workers() == {}, left
    joined = worker.router([router], "present")
    assert joined["changed"] and sorted(router.workers()) == before, joined


def test_a_server_that_is_not_there_is_not_called_healthy(scene):
    worker = scene.worker()
    worker.wait()
    routers = [scene.router(kind, []) for kind in ("sglang-router", "smg")]
    for router in routers:
        router.wait(0)
    assert worker.router(routers, "present", register=True, attributes=AT_ONCE)["changed"]
    assert worker.router(routers, "absent", min_healthy="0", settle=0)["changed"]
    worker.stop()
    failed = worker.router(routers, "present", ready_timeout=2)
    assert failed["failed"] and failed["reason"] in ("not_in_router", "not_added"), failed
    assert all(router.url in failed["msg"] for router in routers)
    # What it was is still known, for the same again once it serves.
    assert len(worker.router(routers, "inspected")["record"]) == 2
