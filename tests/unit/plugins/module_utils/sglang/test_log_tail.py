# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The end of a log: bounded, cleaned, without secrets."""

from __future__ import annotations

import os

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang import log_tail


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m and \x1b[1;4mbold\x1b[m", "red and bold"),
        ("\x1b]0;a title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b[2J\x1b[Hcleared", "cleared"),
        ("a\x00b\x08c\x7f", "abc"),
        ("tabs\tstay", "tabs\tstay"),
        ("  0%|    |\r 50%|##  |\r100%|####|", "100%|####|"),
        ("done\r", "done"),
        ("\u202egnp.exe", "gnp.exe"),
        ("\x9b31mred", "red"),
        ("", ""),
    ],
)
def test_a_line_is_shown_as_a_terminal_leaves_it(raw, shown):
    assert log_tail.clean_line(raw) == shown


def test_empty_lines_and_secrets_go():
    text = "one\n\n  \nkey sk-verysecret!\nserver_args=ServerArgs(api_key='abcdef')\nsk-very\x1b[0msecret!"
    lines = log_tail.clean(text, ["sk-verysecret!"])
    assert lines == ["one", "key ********", "server_args=ServerArgs(api_key='********')", "********"]


def test_long_lines_are_cut_and_say_so():
    assert log_tail.shorten("x" * 20, 20) == "x" * 20
    assert log_tail.shorten("x" * 25, 20) == "x" * 20 + " ... (5 more characters)"


def test_the_tail_is_bounded():
    lines = ["line %d" % number for number in range(100)]
    assert log_tail.tail(lines) == lines[40:]
    assert log_tail.tail(lines, 2) == ["line 98", "line 99"]
    assert log_tail.tail([]) == []


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(100, "aaa\nbbb\nccc\n"), (12, "aaa\nbbb\nccc\n"), (8, "bbb\nccc\n"), (7, "ccc\n"), (4, "ccc\n"), (3, "")],
)
def test_only_whole_lines_of_the_end_are_read(tmp_path, limit, expected):
    path = tmp_path / "log"
    path.write_text("aaa\nbbb\nccc\n")
    # Where no line fits at all, nothing is better than a part that may be half of a secret.
    assert log_tail.read_end(str(path), limit) == expected


def test_the_start(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"first\n\xff\n")
    assert log_tail.read_start(str(path), 5) == "first"
    assert log_tail.read_start(str(path)) == "first\n\ufffd\n"
    assert log_tail.read_start(str(tmp_path / "missing")) == ""


def test_a_log_that_is_not_there_is_empty(tmp_path):
    assert log_tail.read_lines(str(tmp_path / "missing")) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_log_that_may_not_be_read(tmp_path):
    path = tmp_path / "log"
    path.write_text("x")
    path.chmod(0)
    assert "cannot be read" in log_tail.read_lines(str(path))[0]


def test_a_log_that_is_a_folder_says_so(tmp_path):
    (line,) = log_tail.read_lines(str(tmp_path))
    assert "cannot be read" in line
