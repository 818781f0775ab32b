# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import (
    visible,
    visible_lines,
    visible_value,
    without_hidden,
)

# Letters, marks, numbers, punctuation, symbols and the plain space: everything else acts or does not show.
SEEN = frozenset("LMNPS")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("python3", "python3"),
        ("größe 模型 ✓", "größe 模型 ✓"),
        ("\x1b[2J\x1b]0;owned\x07", "\\x1b[2J\\x1b]0;owned\\x07"),
        ("\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\", "\\x1b]8;;http://evil\\x1b\\click\\x1b]8;;\\x1b\\"),
        ("\x1b]52;c;cm0gLXJm\x07", "\\x1b]52;c;cm0gLXJm\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("free\rbusy", "free\\rbusy"),
        ("a\nok: [gpu-b]", "a\\nok: [gpu-b]"),
        ("a\tb\0c", "a\\tb\\x00c"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\u2066a\u2069", "\\u2066a\\u2069"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("\u3164", "\\u3164"),
        ("x\ufe0f", "x\\ufe0f"),
        ("caf\udce9", "caf\\xe9"),
        ("line\u2028break", "line\\u2028break"),
        ("no\u00a0break", "no\\xa0break"),
        ("e\u0301", "e\u0301"),
        ("z" + "\u0335" * 4, "z\u0335\u0335\\u0335\\u0335"),
        ("{{ lookup('pipe', 'id') }}", "{{ lookup('pipe', 'id') }}"),
        ("", ""),
    ],
)
def test_everything_shows(text, shown):
    assert visible(text) == shown


def test_names_that_differ_look_different():
    assert len({visible(name) for name in ("vllm", "vl\u200blm", "vllm\u00ad", "vllm\ufe00")}) == 4


def test_what_is_long_is_cut_before_it_is_looked_at():
    assert visible("x" * 80) == "x" * 80
    assert visible("x" * 81) == "x" * 77 + "..."
    assert visible("\x1b" * (4 << 20)) == "\\x1b" * 19 + "\\..."
    assert visible("\x1b" * 30, 80).endswith("...")


def test_line_breaks_that_are_meant():
    assert visible_lines("one\ntwo\x1b\r") == "one\ntwo\\x1b\\r"


def test_a_value_of_json_at_any_depth():
    value = {"a\x1b": ["\x1b", {"b": ("\r", 1, None, True, 1.5)}], "long": "y" * 9000}
    shown = visible_value(value)
    assert shown["a\\x1b"] == ["\\x1b", {"b": ["\\r", 1, None, True, 1.5]}]
    assert len(shown["long"]) == 4000
    deep = []
    for _layer in range(500):
        deep = [deep]
    assert "..." in str(visible_value(deep)) and len(str(visible_value(deep))) < 100


@given(st.text(max_size=200), st.integers(0, 120))
def test_nothing_that_acts_or_hides_is_left(text, longest):
    shown = visible(text, longest)
    assert len(shown) <= max(longest, 3)
    assert all(unicodedata.category(char)[0] in SEEN or char == " " for char in shown)
    shown.encode()  # no half of a character
    assert all(char == "\n" or char in visible(char) for char in visible_lines(text))


@given(st.text(max_size=200))
def test_a_log_loses_what_does_not_show_and_nothing_else(text):
    kept = without_hidden(text)
    assert all(char in "\t\n " or unicodedata.category(char)[0] in SEEN for char in kept)
    assert [char for char in text if visible(char) == char and char != " "] == [c for c in kept if c not in "\t\n "]
