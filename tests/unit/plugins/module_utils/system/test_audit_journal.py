# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import socket

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.system import audit_journal
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import FakeJournal, parse_journal


@pytest.fixture
def journal(tmp_path):
    with FakeJournal(tmp_path / "socket") as journal:
        yield journal


def test_fields_arrive(journal):
    audit_journal.send({"MESSAGE": "stopped", "PRIORITY": "5"}, journal.path)
    assert journal.entry() == [("MESSAGE", "stopped"), ("PRIORITY", "5")]


@pytest.mark.parametrize("value", ["x\nPRIORITY=0\nMESSAGE=forged", "\n", "a=b", "", "\udcff\nx", "\x1b[31m"])
def test_no_value_can_begin_a_field_of_its_own(value):
    fields = parse_journal(audit_journal.encode({"MESSAGE": value, "PRIORITY": "5"}))
    assert [name for name, _value in fields] == ["MESSAGE", "PRIORITY"]
    assert fields[0][1] == value.replace("\udcff", "\\udcff")


@pytest.mark.parametrize(
    ("outcome", "priority"),
    [("begun", 6), ("stopped", 5), ("killed", 5), ("done", 5), ("survived", 4), ("in_use", 4)],
)
def test_priorities(outcome, priority):
    assert audit_journal.priority_of(outcome) == priority


def test_no_journal_is_an_error_at_once(tmp_path):
    with pytest.raises(FileNotFoundError):
        audit_journal.send({"MESSAGE": "x"}, str(tmp_path / "socket"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(str(tmp_path / "socket"))
    with pytest.raises(ConnectionRefusedError):
        audit_journal.send({"MESSAGE": "x"}, str(tmp_path / "socket"))


def test_a_journal_that_reads_nothing_is_not_waited_for(journal):
    with pytest.raises(BlockingIOError):
        for _datagram in range(10000):
            audit_journal.send({"MESSAGE": "x" * 1000}, journal.path)


def test_what_is_too_large_goes_without_its_large_fields(monkeypatch):
    sent = []

    class Small(socket.socket):
        def sendto(self, data, path):
            if len(data) > 2000:
                raise OSError(errno.EMSGSIZE, "Message too long")
            sent.append(parse_journal(data))

    monkeypatch.setattr(audit_journal.socket, "socket", Small)
    audit_journal.send({"MESSAGE": "x", "INFEROPS_RECORD": "y" * 4000}, "/none")
    assert sent == [[("MESSAGE", "x")]]
