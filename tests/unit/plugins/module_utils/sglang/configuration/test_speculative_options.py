# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import FAILED
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration import arguments, speculative_options
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import (
    build_argv,
    settings_from,
)


def settings(options, **more):
    given_options = {"model_path": "/m", "speculative_algorithm": "NGRAM", "speculative_options": options}
    return settings_from(dict(given_options, **more), "/s/main/current")


def rendered(options):
    argv = build_argv(settings(options, extra_args=["--end"]))
    return argv[argv.index("NGRAM") + 1 : argv.index("--end")]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, ["--speculative-x-y"]),
        ("true", ["--speculative-x-y"]),
        ("True", ["--speculative-x-y"]),
        (False, []),
        ("false", []),
        (None, []),
        ("", []),
        ([], []),
        (0, ["--speculative-x-y", "0"]),
        (1, ["--speculative-x-y", "1"]),
        (0.5, ["--speculative-x-y", "0.5"]),
        ("fp8", ["--speculative-x-y", "fp8"]),
        (["a", 2], ["--speculative-x-y", "a", "2"]),
    ],
)
def test_values_become_words(value, words):
    assert rendered({"x_y": value}) == words


def test_the_order_does_not_depend_on_how_they_were_given():
    assert rendered({"b": 1, "a": 2}) == rendered({"a": 2, "b": 1}) == ["--speculative-a", "2", "--speculative-b", "1"]


def test_they_are_part_of_the_request():
    requested = arguments.requested_fields(settings({"a": "8", "b": True, "c": ["1", "x"], "d": "x"}))
    assert {name: requested["speculative_" + name] for name in "abcd"} == {"a": 8, "b": True, "c": [1, "x"], "d": "x"}


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"num_steps": 1}, "give it as speculative_num_steps"),
        ({"algorithm": "EAGLE"}, "give it as speculative_algorithm"),
        ({"draft_model": "/d"}, "give it as speculative_draft_model_path"),
        ({"speculative_adaptive": True}, "write adaptive without"),
        ({"--adaptive": True}, "no name"),
        ({"token-map": "x"}, "no name"),
        ({"A": 1}, "no name"),
        ({"": 1}, "no name"),
        ({"a": {"b": 1}}, "only adaptive_config can be one"),
        ({"a": ["x", True]}, "True"),
        ({"a": ["x", None]}, "neither"),
        ({"a": "x\ny"}, "control character"),
        ({"a": "--b"}, "begins with '-'"),
        ({"a": ["x", "-b"]}, "begins with '-'"),
    ],
)
def test_impossible_names_and_values(options, part):
    (check,) = arguments.check_speculative_options(settings(options))
    assert check.status == FAILED and part in check.message


def test_a_negative_number_is_no_option():
    assert not arguments.check_speculative_options(settings({"a": "-1", "b": -0.5}))
    assert rendered({"a": "-1"}) == ["--speculative-a", "-1"]


def test_an_adaptive_configuration_becomes_a_file_whose_text_is_always_the_same():
    one = settings({"adaptive": True, "adaptive_config": {"8": {"candidate_steps": [1]}, "ema_alpha": 0.1, "16": {}}})
    other = settings({"adaptive": True, "adaptive_config": {16: {}, "ema_alpha": 0.1, 8: {"candidate_steps": [1]}}})
    assert one.files == other.files
    assert list(json.loads(one.files["adaptive.json"])) == ["ema_alpha", "8", "16"]
    assert build_argv(one)[-2:] == ["--speculative-adaptive-config", "/s/main/current/adaptive.json"]
    assert not settings({"adaptive": True, "adaptive_config": "/etc/adaptive.json"}).files


def test_none_leaves_them_out_and_says_so():
    off = settings({"adaptive": True, "adaptive_config": {"1": {}}}, speculative_algorithm="none")
    assert not off.files and not off.speculative_options
    assert off.left_out == ("speculative_adaptive", "speculative_adaptive_config")


@pytest.mark.parametrize(
    ("words", "repeated"),
    [
        (["--speculative-adaptive"], True),
        (["--speculative-adaptiv"], True),
        (["--speculative-adaptive-config", "/x"], False),
        (["--speculative-token-map", "/x"], False),
    ],
)
def test_repeated_in_extra_args(words, repeated):
    found = arguments.check_extra_args(settings({"adaptive": True}, extra_args=words))
    assert any("repeats adaptive" in check.message for check in found) is repeated


@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z0-9]{0,5}(_[a-z]{1,4})?", fullmatch=True),
        st.one_of(st.booleans(), st.integers(), st.sampled_from(["fp8", "a b", "-1"])),
    )
)
def test_every_rendered_option_can_be_read_back(options):
    kept = speculative_options.settled(options)
    words = [word for name, value in kept.items() for word in speculative_options.words_of(name, value)]
    parsed, stray = arguments.parse_extra_args(words)
    assert not stray
    assert [option.field for option in parsed] == ["speculative_" + name for name in kept]
