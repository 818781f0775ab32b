# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values that anybody may have written: by type, bounded, with nothing in them that a terminal would obey."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils import status_values as values


class Marked(str):
    """As Ansible marks what comes from a task."""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ""),
        ("plain", "plain"),
        ("Größe ✓", "Größe ✓"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\tc\0", "a\\nb\\tc\\x00"),
        ("\u202eevil", "\\u202eevil"),
        ("\x9b31m", "\\x9b31m"),
        ("\U000e0041", "\\U000e0041"),
        ("{{ 1 + 1 }}", "{{ 1 + 1 }}"),
        (7, "7"),
        (10**40, "(too large a number)"),
        (2.5, "2.5"),
        (True, "True"),
        ({"a": 1}, ""),
        (["a"], ""),
    ],
)
def test_a_text(value, expected):
    assert values.text(value) == expected


def test_a_text_is_bounded_and_carries_no_mark():
    assert values.text("x" * 10**7) == "x" * 117 + "..."
    # Escaped it would be four times as long.
    assert len(values.text("\x1b" * 10**6)) == values.MOST_TEXT
    assert type(values.text(Marked("x"))) is str and type(values.text(Marked("x" * 999))) is str


def test_a_message_is_one_line():
    assert values.message("two\n  lines \x1b[1m") == "two lines \\x1b[1m"
    assert len(values.message("word " * 10**5)) == values.MOST_MESSAGE
    assert values.message({"a": 1}) == ""


@pytest.mark.parametrize(
    ("read", "value", "expected"),
    [
        (values.whole, 3, 3),
        (values.whole, 0, 0),
        (values.whole, -1, None),
        (values.whole, True, None),
        (values.whole, "3", None),
        (values.whole, 10**20, None),
        (values.real, 2.5, 2.5),
        (values.real, 2, 2.0),
        (values.real, float("nan"), None),
        (values.real, float("inf"), None),
        (values.real, "2", None),
        (values.mapping, [1], {}),
        (values.setting, None, None),
        (values.setting, False, False),
        (values.setting, 3, 3),
        (values.setting, float("nan"), "nan"),
        (values.setting, ["a", 1, {"b": 2}], "a, 1"),
        (values.setting, {"a": 1}, "(not shown)"),
        (values.setting, "\x07", "\\x07"),
    ],
)
def test_other_types(read, value, expected):
    assert read(value) == expected


def test_lists_are_bounded():
    assert values.mappings([{"a": 1}, 2, {"b": 3}, {"c": 4}], 3) == [{"a": 1}, {"b": 3}]
    assert values.mappings({"a": 1}, 3) == [] and values.mappings("ab", 3) == []
    assert values.texts(["a", None, "b", "c"], 3) == ["a", "b"] and values.texts("ab", 3) == []
    assert len(values.settings({str(number): number for number in range(1000)})) == 60
    assert values.settings({1: 2, "b\x1b": "c"}) == {"b\\x1b": "c"}


def test_a_word_is_one_of_some():
    assert values.one_of("busy", ("free", "busy"), "unknown") == "busy"
    assert values.one_of("Free", ("free", "busy"), "unknown") == "unknown"
    assert values.one_of({"a": 1}, ("free",), "unknown") == "unknown"
