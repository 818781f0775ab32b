# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One router over HTTP: what it answers, and what that means."""

from __future__ import annotations

import socket

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.client import open_router
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.errors import RouterError
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.places import parse_place
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.sglang.certificates import make_certificate
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.sglang.raw_server import RawServer, reply
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.sglang.routers.fake_router import (
    SGLANG_ROUTER,
    SMG,
    Registry,
    served,
)

OURS, OTHER = "http://10.0.0.5:30000", "http://10.0.0.6:30000"


def router(url, key=None, **more):
    return open_router(parse_place(url), key, 5.0, **more)


@pytest.fixture(params=[SGLANG_ROUTER, SMG])
def registry(request):
    made = Registry(request.param).have(OURS, OTHER)
    made.healthy = made.removing = 0.0
    return made


def test_a_whole_visit(registry):
    with served(registry, api_key="k-1", prefix="/behind") as url:
        client = router(url, "k-1")
        assert client.url == url
        ours = client.workers()[0]
        assert (ours.url, ours.healthy) == (OURS, True)
        client.remove(ours)
        client.remove(ours)  # gone already
        assert [worker.url for worker in client.workers()] == [OTHER]
        made = client.add({"url": OURS, "priority": 3})
        assert [worker.url for worker in client.workers()] == [OTHER, OURS]
        assert client.job(made).status == "processing"
        registry.failed_job = "no\x1b[2J route"
        job = client.job(made)
        assert (job.failed, job.message) == (True, "no\\x1b[2J route")
        assert client.job("").failed is False


def test_smg_knows_a_url_only_once():
    with served(Registry(SMG).have(OURS)) as url:
        assert router(url).add({"url": OURS}) is None


def failure(url, key=None, **more):
    with pytest.raises(RouterError) as caught:
        router(url, key, **more).workers()
    assert url in str(caught.value)
    return caught.value.reason, str(caught.value)


def test_nobody_listens():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        reason, message = failure("http://127.0.0.1:%d" % taken.getsockname()[1])
    assert (reason, "nothing listens" in message) == ("router_unreachable", True)


@pytest.mark.parametrize("key", [None, "wrong"])
def test_the_key_is_missing_or_wrong(registry, key):
    with served(registry, api_key="k-1") as url:
        reason, message = failure(url, key)
    assert reason == "router_unauthorized"
    assert "answers 401 on /workers" in message
    assert "sglang_router_api_key" in message


@pytest.mark.parametrize(
    ("fault", "reason", "words"),
    [
        ({"denied": 403}, "router_unauthorized", "answers 403"),
        ({"denied": 503}, "router_refused", 'answers 503 to its workers: {"error": "no"}'),
        ({"denied": 307}, "router_refused", "answers 307"),
        ({"without_workers": True}, "unknown_router", "has no /workers. Use sglang-router 0.3 or smg"),
        ({"without_workers": True, "earlier": True}, "unknown_router", "It is a sglang-router before 0.3"),
        ({"answer": {"data": []}}, "unknown_router", "there is no list of workers"),
        ({"answer": []}, "unknown_router", "something else than a list of workers"),
        ({"answer": b"<html>"}, "unknown_router", "not JSON"),
        ({"answer": {"workers": [{"url": OURS}]}}, "unknown_router", "an entry has no id"),
    ],
)
def test_what_is_no_usable_answer(registry, fault, reason, words):
    for name, value in fault.items():
        setattr(registry, name, value)
    with served(registry) as url:
        found, message = failure(url)
    assert (found, words in message) == (reason, True), message


def test_a_refusal_to_change_anything(registry):
    with served(registry) as url:
        client = router(url)
        ours = client.workers()[0]
        registry.denied = 500
        with pytest.raises(RouterError, match=r"answers 500 to the removal of http://10.0.0.5:30000"):
            client.remove(ours)
        with pytest.raises(RouterError, match=r"answers 500 to the worker http://10.0.0.5:30000"):
            client.add({"url": OURS})
        assert client.job("x").failed is False


def test_certificates_are_checked_with_their_names(tmp_path):
    authority = make_certificate(tmp_path, stem="authority")
    right = make_certificate(tmp_path, "127.0.0.1", stem="right", issuer=authority)
    wrong = make_certificate(tmp_path, "router.example.org", stem="wrong", issuer=authority)
    answer = reply(200, b'{"workers": []}')

    def ask(pair, **more):
        with RawServer(answer, pair=pair) as server:
            return router("https://127.0.0.1:%d" % server.port, "k-1", **more).workers()

    assert ask(right, ca_path=str(authority.certificate)) == []
    assert ask(wrong, validate=False) == []
    for pair, more in ((right, {}), (wrong, {"ca_path": str(authority.certificate)})):
        with pytest.raises(RouterError, match="certificate verify failed"):
            ask(pair, **more)
    with pytest.raises(RouterError, match="No such file"):
        ask(right, ca_path=str(tmp_path / "none.pem"))
