# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from ansible_collections.inferops.sglang.plugins.module_utils.system.audit_record import MOST_BYTES, REDACTED, encode

FORGED = 'x"}\n{"format":1,"action":"reset","outcome":"done"}\n'


def decoded(line):
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    return json.loads(line)


@pytest.mark.parametrize(
    ("value", "recorded"),
    [
        (None, None),
        (True, True),
        (1.5, 1.5),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        ("name", "name"),
        (("a", 1), ["a", 1]),
        ({3: "key"}, {"3": "key"}),
        ({"b", "a"}, ["a", "b"]),
        (b"text", "text"),
        (b"\xff", "\\xff"),
        ("\udcff", "\\udcff"),
        (1 << 63, "8" + "0" * 15),
        (object, str(object)),
    ],
)
def test_every_value_becomes_one_that_json_has(value, recorded):
    assert decoded(encode({"value": value})) == {"value": recorded}


@pytest.mark.parametrize(
    "name", [FORGED, "\x1b]0;owned\x07", "\x9b31m", "\r\n\0\x7f", "\u2028\u2029", "{{ lookup('x') }}"]
)
def test_a_hostile_name_is_one_text_in_one_line_of_ascii(name):
    line = encode({"target": {"name": name, name: "key"}})
    assert decoded(line) == {"target": {"name": name, name: "key"}}
    assert all(32 <= byte < 128 for byte in line[:-1])


def test_a_number_of_a_million_digits_costs_nothing():
    assert len(encode({"value": 1 << 4_000_000})) <= MOST_BYTES


@pytest.mark.parametrize(
    "record",
    [
        {"target": {"name": "x" * 10_000_000}},
        {"evidence": {"pids": list(range(100_000))}},
        {"evidence": {str(number): "y" * 900 for number in range(1000)}},
        {"evidence": {"deep": [[["z" * 2000] * 100] * 100] * 100}},
        {"detail": "\u4e16" * 5000},  # six bytes each in the line
    ],
)
def test_a_line_is_never_longer_than_its_limit(record):
    line = encode(dict(record, id="ab"))
    assert len(line) <= MOST_BYTES
    assert decoded(line)["id"] == "ab"
    assert b"...[+" in line


def test_no_record_takes_long():
    class Counted:
        seen = 0

        def __str__(self):
            Counted.seen += 1
            return "x"

    value = Counted()
    for _level in range(4):
        value = [value] * 100
    assert len(encode({"evidence": value})) <= MOST_BYTES
    assert Counted.seen < 10_000  # of a hundred millions


def test_what_is_cut_says_how_much_is_missing():
    found = decoded(encode({"text": "x" * 1030, "list": list(range(70)), "object": dict.fromkeys(map(str, range(70)))}))
    assert found["text"] == "x" * 1024 + "...[+6]"
    assert found["list"] == [*range(64), "...[+6]"]
    assert (len(found["object"]), found["object"]["..."]) == (65, "...[+6]")


def test_a_value_that_contains_itself_ends():
    loop = {}
    loop["again"] = loop
    assert len(encode({"value": loop})) < MOST_BYTES


def test_what_tells_the_event_stays_where_nothing_else_fits():
    record = {"id": "ab", "outcome": "begun", "target": {"pid": 7}, "evidence": {}}
    found = decoded(encode(record, most_bytes=40))
    assert found == {"id": "ab", "outcome": "begun", "cut": ["evidence", "target"]}


def test_secrets_are_replaced_wherever_they_are():
    record = {"detail": "key sk-12345 was refused", "evidence": {"sk-12345": ["sk-12345"]}}
    line = encode(record, hidden={"sk-12345", ""})
    assert b"sk-12345" not in line and line.count(REDACTED.encode()) == 3


def test_a_secret_is_replaced_before_the_text_is_cut():
    line = encode({"detail": "x" * 1020 + "sk-12345"}, hidden=["sk-12345"])
    assert b"sk-1" not in line


def test_the_longer_of_two_secrets_goes_first():
    assert decoded(encode({"detail": "abcdef"}, hidden=["abcd", "abcdef"])) == {"detail": REDACTED}


def test_a_secret_of_a_letter_blanks_out_nothing_else():
    assert decoded(encode({"a": "1", "b": "PID 112"}, hidden=["1"])) == {"a": REDACTED, "b": "PID 112"}


@settings(max_examples=60, deadline=None)
@given(
    some.recursive(
        some.none() | some.booleans() | some.integers() | some.floats() | some.text() | some.binary(),
        lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner),
        max_leaves=30,
    )
)
def test_anything_is_recorded_in_one_line(value):
    assert "value" in decoded(encode({"value": value}))
