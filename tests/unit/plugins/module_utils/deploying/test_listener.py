# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether anybody still waits for the answer of a process."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.deploying import listener

# Says on its standard error what it sees, each time that it reads a line.
CHILD = """
import sys
from ansible_collections.inferops.sglang.plugins.module_utils.deploying.listener import somebody_listens
for _line in sys.stdin:
    print(somebody_listens(), file=sys.stderr, flush=True)
"""


class Child:
    """A process that is asked what it sees."""

    def __init__(self, stdout):
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD],
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            text=True,
        )

    def sees(self):
        self.process.stdin.write("?\n")
        self.process.stdin.flush()
        return self.process.stderr.readline().strip()

    def end(self):
        self.process.stdin.close()
        self.process.stderr.close()
        self.process.wait(10)


@pytest.fixture
def child():
    children = []

    def start(stdout):
        children.append(Child(stdout))
        return children[-1]

    yield start
    for one in children:
        one.end()


def test_a_pipe_whose_reader_goes_away(child):
    reader, writer = os.pipe()
    asked = child(writer)
    os.close(writer)
    assert [asked.sees(), asked.sees()] == ["True", "True"]
    os.close(reader)
    assert [asked.sees(), asked.sees()] == ["False", "False"]


def test_a_socket_whose_reader_goes_away(child):
    """sshd may use a pair of sockets instead of pipes."""
    ours, theirs = socket.socketpair()
    asked = child(theirs.fileno())
    theirs.close()
    assert asked.sees() == "True"
    ours.close()
    assert asked.sees() == "False"


def test_a_terminal_that_goes_away(child):
    ours, theirs = os.openpty()
    asked = child(theirs)
    os.close(theirs)
    assert asked.sees() == "True"
    os.close(ours)
    assert asked.sees() == "False"


def test_a_pipe_that_is_full_has_a_reader(child):
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(writer, b"x" * 65536)
    asked = child(writer)
    os.close(writer)
    assert asked.sees() == "True"
    os.close(reader)


@pytest.mark.parametrize("name", ["/dev/null", "a file"])
def test_what_nobody_reads_from_does_not_go_away(child, tmp_path, name):
    with open(name if name.startswith("/") else str(tmp_path / name), "w") as stream:
        asked = child(stream)
    assert asked.sees() == "True"


@pytest.mark.parametrize("stdout", [None, io.StringIO()], ids=["none", "no descriptor"])
def test_where_there_is_nothing_to_ask_about(monkeypatch, stdout):
    monkeypatch.setattr(sys, "__stdout__", stdout)
    assert listener.somebody_listens() is True


def test_a_standard_output_that_is_closed(monkeypatch):
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr(sys, "__stdout__", stream)
    assert listener.somebody_listens() is True
