# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""sglang_router through its real main(), on routers of both dialects."""

from __future__ import annotations

import contextlib
import json
import stat

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers import moving
from ansible_collections.inferops.sglang.plugins.modules import sglang_router
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.sglang.routers.fake_router import (
    SGLANG_ROUTER,
    SMG,
    Registry,
    served,
)

OURS, OTHER, THIRD = "http://10.0.0.5:30000", "http://10.0.0.6:30000", "http://10.0.0.7:30000"
KEY, WORKER_KEY = "router-key-77a1", "worker-key-93c2"


class Scene:
    """Two routers that have our worker and two others, and the host of the worker."""

    def __init__(self, root, run_module, dialect, stack):
        self.root = root
        self._run_module = run_module
        self.registries = [Registry(dialect).have(OURS, OTHER, THIRD) for _number in range(2)]
        for registry in self.registries:
            registry.removing, registry.healthy = 0.0, 0.05
        self.urls = [stack.enter_context(served(registry, api_key=KEY)) for registry in self.registries]

    @property
    def file(self):
        return self.root / "lib" / "main" / "routers.json"

    @property
    def events(self):
        return [event for registry in self.registries for event in registry.events]

    def run(self, state, check=False, **options):
        """Run the module: its result, of which failed says how it ended."""
        args = {
            "url": self.urls,
            "worker_url": "10.0.0.5:30000",
            "state": state,
            "state_dir": str(self.root / "lib"),
            "api_key": KEY,
            "settle": 0,
            "ready_timeout": 1,
            **options,
        }
        given = {name: value for name, value in args.items() if value is not None}
        status, result = self._run_module(sglang_router, given, check=check, diff=True)
        assert bool(status) == bool(result.get("failed"))
        for secret in (KEY, WORKER_KEY):
            assert secret not in json.dumps({name: value for name, value in result.items() if name != "invocation"})
        return result

    def release(self, **more):
        """Let the host have a current release."""
        release = Release("r1", "2026-01-02T03:04:05Z", "main", "systemd", ["python3"], **more)
        folder = self.root / "lib" / "main" / "releases" / "r1"
        folder.mkdir(parents=True)
        (folder / "release.json").write_text(release.to_json())
        (folder.parents[1] / "current").symlink_to("releases/r1")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Look more often than the real routers need it."""
    monkeypatch.setattr(moving, "_INTERVAL", 0.02)


@pytest.fixture(params=[SGLANG_ROUTER, SMG])
def scene(request, tmp_path, run_module):
    with contextlib.ExitStack() as stack:
        yield Scene(tmp_path, run_module, request.param, stack)


def kept(result):
    return sorted(result["record"])


def test_out_and_in(scene):
    before = scene.run("inspected")
    assert [(item["registered"], item["healthy_others"]) for item in before["routers"]] == [(True, 2)] * 2
    assert (before["changed"], before["worker_url"], before["record"]) == (False, OURS, {})
    left = scene.run("absent")
    assert left["changed"] and kept(left) == sorted(scene.urls)
    assert left["actions"] == ["took %s out of %s" % (OURS, url) for url in scene.urls]
    assert left["diff"] == {"before": dict.fromkeys(scene.urls, "in"), "after": dict.fromkeys(scene.urls, "out")}
    assert stat.S_IMODE(scene.file.stat().st_mode) == 0o600
    assert not scene.run("absent")["changed"]
    joined = scene.run("present")
    assert joined["changed"] and joined["record"] == {} and not scene.file.exists()
    assert [item["healthy"] for item in joined["routers"]] == [True, True]
    again = scene.run("present")
    assert (again["changed"], again["actions"]) == (False, [])


def test_check_mode_says_what_would_be_done(scene):
    left = scene.run("absent", check=True)
    assert left["changed"] and left["actions"] == ["would take %s out of %s" % (OURS, url) for url in scene.urls]
    assert left["diff"]["after"] == dict.fromkeys(scene.urls, "out")
    assert scene.events == [] and not scene.file.exists()
    assert not scene.run("present", check=True)["changed"]
    scene.run("absent")
    joined = scene.run("present", check=True)
    assert joined["changed"] and joined["actions"] == ["would put %s into %s" % (OURS, url) for url in scene.urls]
    assert joined["diff"]["after"] == dict.fromkeys(scene.urls, "in")
    assert [what for what, _which in scene.events] == ["delete", "delete"]


def test_what_is_known_is_kept_before_anything_is_taken_out(scene):
    scene.registries[1].denied = 0
    delete = scene.registries[0].delete

    def killed_here(worker_id):
        assert json.loads(scene.file.read_text())["routers"].keys() == set(scene.urls)
        return delete(worker_id)

    scene.registries[0].delete = killed_here
    assert scene.run("absent")["changed"]


def test_a_run_that_was_killed_is_finished_by_the_next_one(scene):
    # As after a kill between the two routers, or after both and any time before they have it back.
    scene.registries[0].rows[0]["priority"] = 9
    scene.run("absent")
    scene.registries[1].have(OURS)
    again = scene.run("absent")
    assert again["changed"] and kept(again) == sorted(scene.urls)
    scene.run("present")
    assert [new["priority"] for what, new in scene.registries[0].events if what == "post"] == [9]


def test_one_router_goes_down_in_between(scene):
    scene.run("absent")
    scene.registries[1].denied = 503
    failed = scene.run("present", ready_timeout=0.3)
    assert failed["failed"] and failed["reason"] == "not_in_router"
    assert "answers 503" in failed["msg"] and scene.urls[1] in failed["msg"] and scene.urls[0] not in failed["msg"]
    scene.registries[1].denied = 0
    assert [OURS in registry.urls() for registry in scene.registries] == [True, False]
    # Nothing is lost: the same again puts it into the other one.
    joined = scene.run("present")
    assert joined["actions"] == ["put %s into %s" % (OURS, scene.urls[1])] and joined["record"] == {}


def test_a_router_that_goes_down_right_after_it_is_no_failure(scene):
    registry = scene.registries[1]
    delete, rows_now = registry.delete, registry.list

    def last_word():
        rows = list(rows_now())
        registry.denied = 503 if OURS not in [item["url"] for item in rows] else 0
        return rows

    def leave(worker_id):
        done = delete(worker_id)
        registry.list = last_word
        return done

    registry.delete = leave
    left = scene.run("absent")
    assert registry.denied and left["changed"]
    assert [item["registered"] for item in left["routers"]] == [False, False]


def test_the_one_that_works_is_not_asked_again(scene):
    scene.run("absent")
    scene.registries[1].failed_job = "no route to host"
    failed = scene.run("present")
    assert failed["reason"] == "not_added" and failed["changed"] is True
    assert kept(scene.run("inspected")) == [scene.urls[1]]
    scene.registries[1].failed_job = ""
    assert scene.run("present")["actions"] == ["put %s into %s" % (OURS, scene.urls[1])]


@pytest.mark.parametrize(
    ("options", "reason", "words"),
    [
        ({"min_healthy": "3"}, "too_few_workers", "2 healthy workers of llama left"),
        ({"worker_url": "10.0.0.9:30000"}, "unknown_worker", "does not know the worker http://10.0.0.9:30000"),
        ({"api_key": "wrong"}, "router_unauthorized", "sglang_router_api_key"),
    ],
)
def test_what_is_refused(scene, options, reason, words):
    for check in (True, False):
        refused = scene.run("absent", check=check, **options)
        assert (refused["failed"], refused["reason"], words in refused["msg"]) == (True, reason, True), refused
    assert scene.events == [] and not scene.file.exists()


def test_a_router_that_refuses_leaves_nothing_behind(scene):
    scene.registries[1].stuck = "No workers found"
    failed = scene.run("absent")
    assert failed["reason"] == "not_removed" and "has the worker back, as all others" in failed["msg"]
    assert [OURS in registry.urls() for registry in scene.registries] == [True, True]
    assert not scene.file.exists()


def test_a_broken_record_is_refused(scene):
    scene.file.parent.mkdir(parents=True)
    scene.file.write_text("{")
    for state in ("absent", "present"):
        assert scene.run(state)["reason"] == "broken_record"
    assert scene.events == []


def test_the_key_and_the_scheme_are_those_of_the_current_release(scene):
    scene.release(secret_args={"api-key": WORKER_KEY}, effective={"ssl_certfile": "/etc/tls/server.pem"})
    scene.run("absent")
    joined = scene.run("present")
    assert joined["worker_url"] == "https://10.0.0.5:30000"
    posts = [new for what, new in scene.events if what == "post"]
    assert [(new["url"], new["api_key"]) for new in posts] == [("https://10.0.0.5:30000", WORKER_KEY)] * 2


def test_a_release_that_cannot_be_read_is_told(scene):
    scene.release()
    (scene.root / "lib" / "main" / "releases" / "r1" / "release.json").write_text("{")
    (warning,) = scene.run("inspected")["warnings"]
    assert "key and certificate is not known" in str(warning)


def test_register_and_attributes(scene):
    refused = scene.run("present", worker_url="http://10.0.0.9:30000")
    assert refused["reason"] == "unknown_worker" and "sglang_router_register" in refused["msg"]
    new = {"register": True, "attributes": {"priority": 3, "labels": {"tier": "new"}}}
    assert not scene.run("absent", worker_url="http://10.0.0.9:30000", register=True)["changed"]
    joined = scene.run("present", worker_url="http://10.0.0.9:30000", worker_api_key=WORKER_KEY, **new)
    assert joined["changed"]
    posts = [made for what, made in scene.events if what == "post"]
    assert (
        posts == [{"url": "http://10.0.0.9:30000", "priority": 3, "labels": {"tier": "new"}, "api_key": WORKER_KEY}] * 2
    )


# -- routers that are asked from another host


def test_the_record_is_kept_where_the_server_is(scene):
    away = {"remember": False}
    seen = scene.run("inspected", **away)
    assert kept(seen) == sorted(scene.urls)
    refused = scene.run("absent", **away)
    assert refused["failed"] and "record: it says nothing of" in refused["msg"]
    assert scene.events == []
    here = scene.run("remembered", url=None, record=seen["record"])
    assert here["changed"] and here["record"] == seen["record"] and scene.file.exists()
    assert not scene.run("remembered", url=None, record=seen["record"])["changed"]
    assert scene.run("absent", record=here["record"], **away)["changed"]
    # The next run, or this one, finds it there.
    here = scene.run("remembered", url=None)
    assert not here["changed"] and here["worker_url"] == OURS
    assert scene.run("present", record=here["record"], **away)["changed"]
    assert scene.run("forgotten", url=None, worker_url=None, check=True)["changed"] and scene.file.exists()
    assert scene.run("forgotten", url=None, worker_url=None)["changed"] and not scene.file.exists()
    assert not scene.run("forgotten", url=None, worker_url=None)["changed"]


def test_a_key_that_is_not_the_servers_is_not_handed_on(scene):
    scene.release(secret_args={"api-key": WORKER_KEY})
    refused = scene.run("remembered", url=None)
    assert refused["failed"] and "another key than worker_api_key" in refused["msg"]
    assert scene.run("remembered", url=None, worker_api_key=WORKER_KEY).get("failed") is None
    # To keep something, the key plays no role.
    seen = scene.run("inspected", remember=False)
    assert scene.run("remembered", url=None, record=seen["record"]).get("failed") is None


# -- options


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"url": []}, "url: an empty list"),
        ({"url": ["http://a:1", "HTTP://A:1/"]}, "url: http://a:1 is there twice"),
        ({"url": ["nowhere"]}, "url: 'nowhere' has no port"),
        ({"url": ["grpc://a:1"]}, "url: 'grpc://a:1' is not that of a router"),
        ({"url": ["http://a:1@0"]}, "is not that of a router"),
        ({"worker_url": "http://a b"}, "worker_url: 'http://a b' is no URL"),
        ({"min_healthy": "most"}, "min_healthy: 'most' is neither a number nor"),
        ({"min_healthy": "100%"}, "min_healthy: '100%' leaves no worker"),
        ({"removal_timeout": 0}, "removal_timeout: 0.0 is not a positive number"),
        ({"ready_timeout": "inf"}, "ready_timeout: inf is not a positive number"),
        ({"request_timeout": -1}, "request_timeout: -1.0 is not a positive number"),
        ({"settle": -1}, "settle: -1.0 is not a number of seconds"),
        ({"api_key": "a\nb"}, "api_key: it holds characters"),
        ({"worker_api_key": "schl\u00fcssel"}, "worker_api_key: it holds characters"),
        ({"attributes": {"url": "http://x:1"}}, "attributes: url is not one of them"),
        ({"attributes": {"labels": ["gold"]}}, "attributes: labels is no dict"),
        ({"instance": "Main"}, "instance: 'Main' is not a name"),
        ({"state_dir": "lib"}, "state_dir"),
        ({"remember": False, "record": {"http://a:1": 5}}, "record: what it says of http://a:1"),
    ],
)
def test_options_that_cannot_be(tmp_path, run_module, options, words):
    args = {"url": ["http://127.0.0.1:1"], "worker_url": OURS, "state": "inspected", "state_dir": str(tmp_path)}
    with contextlib.ExitStack() as stack:
        if "record" in options:
            args["url"] = [stack.enter_context(served(Registry().have(OURS)))]
            args["state"] = "present"
        status, result = run_module(sglang_router, {**args, **options})
    assert status == 1
    if "state_dir" not in options:
        assert words in result["msg"], result
        assert "reason" not in result


@pytest.mark.parametrize("state", ["inspected", "absent", "present", "remembered"])
def test_what_is_required(run_module, state):
    status, result = run_module(sglang_router, {"state": state})
    assert status == 1 and "worker_url" in result["msg"]


def test_a_folder_that_cannot_be_written(scene):
    scene.file.parent.parent.write_text("no folder")
    failed = scene.run("absent")
    assert failed["failed"] and "choose another state_dir" in failed["msg"], failed
    assert scene.events == []
