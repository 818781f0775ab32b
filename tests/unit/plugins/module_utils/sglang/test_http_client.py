# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The HTTP client against raw sockets that answer well, badly, slowly, or not at all."""

from __future__ import annotations

import json
import socket

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import (
    Answer,
    BadAnswer,
    Broken,
    HttpClient,
    Refused,
    TimedOut,
    probe_host,
)
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.sglang.raw_server import RawServer, reply


def test_an_answer_comes_back_whole():
    with RawServer(reply(200, b'{"a": [1, 2]}')) as server:
        answer = HttpClient("127.0.0.1", server.port).get("/server_info", 5)
    assert (answer.status, answer.json_object(), answer.path) == (200, {"a": [1, 2]}, "/server_info")
    assert answer.seconds < 5
    assert server.request.startswith(b"GET /server_info HTTP/1.1\r\n")
    assert b"Authorization" not in server.request


def test_a_body_that_comes_later_than_its_head():
    def answer(connection, done):
        connection.sendall(b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n")
        done.wait(0.1)
        connection.sendall(b"{}")

    with RawServer(answer) as server:
        assert HttpClient("127.0.0.1", server.port).get("/server_info", 5).json_object() == {}


def test_post_sends_json_and_the_key():
    with RawServer(reply(401, b'{"error":"Unauthorized"}')) as server:
        answer = HttpClient("127.0.0.1", server.port, api_key="sk-1").post("/generate", {"text": "hé"}, 5)
        server._done.wait(0.01)
    assert answer.status == 401 and answer.text() == '{"error":"Unauthorized"}'
    head, _sep, body = server.request.partition(b"\r\n\r\n")
    assert b"Authorization: Bearer sk-1" in head and b"Content-Type: application/json" in head
    assert not body or json.loads(body) == {"text": "hé"}


def test_proxies_are_never_used(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with RawServer(reply(200, b"")) as server:
        assert HttpClient("127.0.0.1", server.port).get("/health", 5).status == 200


def test_ipv6():
    try:
        server = RawServer(reply(200, b""), socket.AF_INET6, "::1")
    except OSError:
        pytest.skip("no IPv6 here")
    with server:
        client = HttpClient("::", server.port)
        assert client.get("/health", 5).status == 200
    assert client.address == "[::1]:%d" % server.port


def test_nobody_listens():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with pytest.raises(Refused, match="nothing listens on 127.0.0.1:%d" % port):
            HttpClient("127.0.0.1", port).get("/health", 5)


def test_no_answer():
    with RawServer(lambda _connection, done: done.wait(5)) as server, pytest.raises(TimedOut, match=r"within 0\.1 s"):
        HttpClient("127.0.0.1", server.port).get("/health", 0.1)


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n"])
def test_bytes_that_trickle_do_not_prolong_the_deadline(start):
    def trickle(connection, done):
        connection.sendall(start)
        while not done.wait(0.02):
            connection.sendall(b"x")

    with RawServer(trickle) as server, pytest.raises(TimedOut):
        HttpClient("127.0.0.1", server.port).get("/health", 0.2)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab",
    ],
)
def test_what_is_no_http_or_ends_early_is_broken(data):
    with RawServer(lambda connection, _done: connection.sendall(data)) as server, pytest.raises(Broken):
        HttpClient("127.0.0.1", server.port).get("/health", 5)


def test_a_host_that_does_not_exist():
    with pytest.raises(Broken):
        HttpClient("no-such-host.invalid", 1).get("/health", 5)


@pytest.mark.parametrize("size", [100, 101])
def test_the_size_of_an_answer_is_limited(size):
    with RawServer(reply(200, b"x" * size)) as server:
        client = HttpClient("127.0.0.1", server.port, max_bytes=100)
        if size <= 100:
            assert len(client.get("/", 5).body) == size
        else:
            with pytest.raises(BadAnswer, match="more than 100 bytes"):
                client.get("/", 5)


@pytest.mark.parametrize(
    ("body", "message"),
    [(b"<html>", "not JSON"), (b"\xff\xfe", "not JSON"), (b"[1]", "not an object"), (b"", "not JSON")],
)
def test_what_is_not_the_json_that_was_expected(body, message):
    with pytest.raises(BadAnswer, match=message):
        Answer("/server_info", 200, body, 0.0).json_object()


@pytest.mark.parametrize(
    ("host", "probed"),
    [
        ("0.0.0.0", "127.0.0.1"),
        ("", "127.0.0.1"),
        ("::", "::1"),
        ("[::]", "::1"),
        ("::1", "::1"),
        ("10.0.0.7", "10.0.0.7"),
        (" localhost ", "localhost"),
    ],
)
def test_where_a_server_is_asked(host, probed):
    assert probe_host(host) == probed
