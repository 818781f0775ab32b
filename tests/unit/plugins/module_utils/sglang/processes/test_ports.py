# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import socket
from types import SimpleNamespace

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import FAILED, OK
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.ports import check_port, conflict
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import Listener, ProcFs


def process(pid):
    return SimpleNamespace(pid=pid, name="vllm", user="alice", unit="vllm.service")


def check(port, listeners=(), ours=(), host="127.0.0.1"):
    (found,) = check_port(
        host, port, lambda _port: listeners, lambda pid: process(pid) if pid != 404 else None, lambda p: p.pid in ours
    )
    return found.status, found.message


@pytest.mark.parametrize("port", [0, -1, 65536, 80, 1023])
def test_refuses_ports_that_a_server_cannot_have(port):
    status, message = check(port)
    assert status == FAILED and f"port {port}" in message


def test_a_free_port():
    assert check(30000)[0] == OK


def test_names_who_has_the_port():
    status, message = check(30000, [Listener("0.0.0.0", 30000, 7)])
    assert status == FAILED
    assert "PID 7 (vllm of alice in vllm.service)" in message


def test_the_instance_itself_may_have_it():
    assert check(30000, [Listener("127.0.0.1", 30000, 7)], ours=[7])[0] == OK


def test_the_instance_beside_a_stranger_is_not_enough():
    listeners = [Listener("127.0.0.1", 30000, 7), Listener("0.0.0.0", 30000, 8)]
    assert check(30000, listeners, ours=[7])[0] == FAILED


@pytest.mark.parametrize("pid", [None, 404])
def test_a_listener_that_may_not_be_seen_is_not_taken_for_ours(pid):
    status, message = check(30000, [Listener("0.0.0.0", 30000, pid)])
    assert status == FAILED and "run as root" in message


@pytest.mark.parametrize(
    ("host", "address", "expected"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "0.0.0.0", True),
        ("0.0.0.0", "192.0.2.1", True),
        ("127.0.0.1", "192.0.2.1", False),
        ("127.0.0.1", "::", True),
        ("127.0.0.1", "::1", False),
        ("::", "127.0.0.1", True),
        ("[::1]", "::1", True),
        ("127.0.0.1", "::ffff:127.0.0.1", True),
        ("localhost", "192.0.2.1", True),
    ],
)
def test_which_addresses_are_in_each_others_way(host, address, expected):
    assert conflict(host, address) is expected


def test_a_listener_is_found_and_a_closed_one_is_not():
    procfs = ProcFs()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            server.accept()[0].close()  # the server closes first: its side goes to TIME_WAIT
        (busy,) = check_port("127.0.0.1", port, procfs.listeners, procfs.read, lambda _p: False)
    (free,) = check_port("127.0.0.1", port, procfs.listeners, procfs.read, lambda _p: False)
    assert busy.status == FAILED and f"PID {os.getpid()}" in busy.message
    assert free.status == OK
