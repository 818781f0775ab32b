# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The HTTP client against servers that encrypt, that encrypt badly, and that do not."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import Broken, HttpClient, TimedOut
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.tls import Tls
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.sglang.certificates import make_certificate
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.sglang.raw_server import RawServer

ANSWER = b'HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n{"ok": true}'


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A certificate that is good for no address that is asked here."""
    return make_certificate(tmp_path_factory.mktemp("pair"), "llm.example.org")


def ask(server, tls=None, timeout=10, **more):
    return HttpClient("127.0.0.1", server.port, tls=tls or Tls(), **more).get("/server_info", timeout)


def test_the_name_in_the_certificate_does_not_matter_on_this_host(pair):
    with RawServer(lambda own, _done: own.sendall(ANSWER), pair=pair) as server:
        answer = ask(server, api_key="k-1")
    assert (answer.status, answer.json_object()) == (200, {"ok": True})
    assert b"Authorization: Bearer k-1\r\n" in server.request


def test_an_answer_that_ends_with_the_connection(pair):
    with RawServer(lambda own, _done: own.sendall(b"HTTP/1.0 200 OK\r\n\r\nrest"), pair=pair) as server:
        assert ask(server).body == b"rest"


def test_an_answer_that_breaks_off(pair):
    with RawServer(lambda own, _done: own.sendall(ANSWER[:-3]), pair=pair) as server:
        with pytest.raises(Broken):
            ask(server)


def test_the_deadline_holds_for_a_server_that_dribbles(pair):
    def dribble(own, _done):
        own.sendall(ANSWER[:-12])
        for number in range(12):
            time.sleep(0.1)
            own.sendall(ANSWER[number - 12 :][:1])

    with RawServer(dribble, pair=pair) as server:
        began = time.monotonic()
        with pytest.raises(TimedOut):
            ask(server, timeout=0.4)
        assert time.monotonic() - began < 1


def test_the_deadline_holds_for_a_server_that_never_shakes_hands():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with pytest.raises(TimedOut):
            HttpClient("127.0.0.1", listener.getsockname()[1], tls=Tls()).get("/health", 0.3)


def test_a_server_that_does_not_encrypt_is_broken_and_not_ready():
    def serve(listener):
        connection, _peer = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        with pytest.raises(Broken, match="SSL"):
            HttpClient("127.0.0.1", listener.getsockname()[1], tls=Tls()).get("/health", 10)
        thread.join(10)


def test_plain_http_gets_nothing_from_a_server_that_encrypts(pair):
    with RawServer(lambda own, _done: own.sendall(ANSWER), pair=pair) as server:
        with pytest.raises(Broken):
            HttpClient("127.0.0.1", server.port).get("/health", 5)


def test_a_chain_is_checked_where_authorities_are_given(tmp_path):
    authority = make_certificate(tmp_path, stem="authority")
    other = make_certificate(tmp_path, stem="other")
    ours = make_certificate(tmp_path, "rank0.example.org", issuer=authority)
    with RawServer(lambda own, _done: own.sendall(ANSWER), pair=ours) as server:
        assert ask(server, Tls(str(authority.certificate))).status == 200
    with RawServer(lambda own, _done: own.sendall(ANSWER), pair=ours) as server:
        with pytest.raises(Broken, match="certificate verify failed"):
            ask(server, Tls(str(other.certificate)))
    assert server.request == b""


def test_authorities_that_cannot_be_read_are_a_failure(tmp_path, pair):
    with RawServer(lambda own, _done: own.sendall(ANSWER), pair=pair) as server:
        with pytest.raises(Broken, match="No such file"):
            ask(server, Tls(str(tmp_path / "none.crt")))
