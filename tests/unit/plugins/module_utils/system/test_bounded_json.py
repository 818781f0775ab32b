# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferops.sglang.plugins.module_utils.system import bounded_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=20,
)


@given(VALUES)
def test_plain_json_is_read_as_ever(value):
    assert bounded_json.loads(json.dumps(value), strict=True) == value
    assert bounded_json.loads(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 99_999, "nested too deeply"),
        ('{"a":' * 99_999, "nested too deeply"),
        ("[" * 100_001, "more than 100000 lists"),
        ("[" + "[]," * 200_000 + "[]]", "more than 100000 lists"),
        ("[" * 66 + "]" * 66, "more than 64 deep"),
        ("1" * 2_000_000, "2000000 digits"),
        ('{"a": 1%s}' % ("0" * 5000), "digits"),
        ("{", "Expecting"),
        ("", "Expecting"),
    ],
    ids=lambda value: value[:20],
)
def test_what_would_hang_or_break_the_reader(text, said):
    began = time.process_time()
    for strict in (False, True):
        with pytest.raises(ValueError, match=said):
            bounded_json.loads(text, strict)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"accept": NaN}', "NaN, which is no JSON"),
        ("[Infinity]", "Infinity, which is no JSON"),
        ("[-Infinity]", "-Infinity, which is no JSON"),
        ("1e999", "too large"),
        ('{"algorithm": "EAGLE3", "algorithm": null}', "'algorithm' twice"),
        ('{"x": {"a": 1, "b": 2, "b": 3}}', "'b' twice"),
    ],
)
def test_what_has_two_meanings_is_refused_where_it_matters(text, said):
    with pytest.raises(ValueError, match=said):
        bounded_json.loads(text, strict=True)
    # Models are published with such configurations, and SGLang takes them.
    bounded_json.loads(text)


def test_a_name_twice_among_many_is_found_quickly():
    text = "{%s,%s}" % (",".join('"k%d":0' % number for number in range(100_000)), '"k99999":1')
    began = time.process_time()
    with pytest.raises(ValueError, match="k99999"):
        bounded_json.loads(text, strict=True)
    assert time.process_time() - began < 2


def test_the_deepest_that_is_taken():
    text = "[" * 65 + "]" * 65
    assert json.dumps(bounded_json.loads(text)) == text
