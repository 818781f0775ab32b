# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a server says is bounded, and cannot move a terminal or tell a secret."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.looking.shown import one_line, plain, plain_fields


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (3, 3),
        (2.5, 2.5),
        (float("inf"), "inf"),
        (10**30, "(a number that is too large)"),
        ("EAGLE3", "EAGLE3"),
        ("\x1b]0;owned\x07\x1b[2JEAGLE3", "EAGLE3"),
        ("two\nlines", "two lines"),
        ("{{ lookup('pipe', 'id') }}", "{{ lookup('pipe', 'id') }}"),
        ({"a": 1}, "(an object)"),
        ([1, "x", {"a": 1}, ["deep"]], [1, "x", "(an object)", "(a list)"]),
    ],
)
def test_a_value_is_plain(value, expected):
    assert plain(value) == expected


def test_a_long_value_is_shortened():
    assert plain("x" * 10**6).startswith("x" * 300 + " ... (")
    assert len(plain("x" * 10**6)) < 350
    assert plain(list(range(50)))[20:] == ["... (30 more)"]


def test_a_secret_is_not_shown_even_in_pieces():
    assert plain_fields({"model_path": "/m/s3cret-key/x"}, ["s3cret-key"]) == {"model_path": "/m/********/x"}
    assert "s3cret-key" not in one_line("s3cret\x1b[0m-key", ["s3cret-key"])
