# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import FAILED, OK, WARNING
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import Settings
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.speculation import (
    check_speculation,
    check_worker,
    implied_draft_tokens,
)


def spec(algorithm=None, draft="/d", steps=2, topk=1, tokens=3, requests=48):
    return Settings(
        "/m",
        speculative_algorithm=algorithm,
        speculative_draft_model_path=draft,
        speculative_num_steps=steps,
        speculative_eagle_topk=topk,
        speculative_num_draft_tokens=tokens,
        max_running_requests=requests,
    )


def messages(settings, status):
    return [check.message for check in check_speculation(settings) if check.status == status]


def test_a_complete_request_passes():
    assert not messages(spec("EAGLE3"), FAILED) and not messages(spec("EAGLE3"), WARNING)
    assert not messages(spec("EAGLE3", steps=None, topk=None, tokens=None), FAILED)
    assert not messages(spec(None, None, None, None, None), FAILED)


@pytest.mark.parametrize(
    ("numbers", "missing"),
    [
        ({"steps": None}, "without speculative_num_steps:"),
        ({"topk": None, "tokens": None}, "without speculative_eagle_topk and speculative_num_draft_tokens:"),
    ],
)
def test_names_the_numbers_that_are_missing(numbers, missing):
    (message,) = messages(spec("EAGLE3", **numbers), FAILED)
    assert missing in message


@pytest.mark.parametrize(
    ("algorithm", "numbers", "most"),
    [
        ("EAGLE3", (2, 2, 7), None),
        ("EAGLE3", (2, 2, 8), 7),
        ("EAGLE", (1, 4, 6), 5),
        ("STANDALONE", (5, 4, 69), None),
        ("NGRAM", (1, 10, 12), None),
        ("EAGLE3", (3, 1, 8), None),
    ],
)
def test_refuses_more_draft_tokens_than_a_tree_has(algorithm, numbers, most):
    found = messages(spec(algorithm, "/d", *numbers), FAILED)
    assert len(found) == (most is not None) and all(f"at most {most}" in message for message in found)


@pytest.mark.parametrize(
    ("tokens", "options", "warned"),
    [(8, {}, True), (10, {}, False), (8, {"ngram_max_bfs_breadth": "8"}, False), (None, {}, False)],
)
def test_ngram_with_fewer_tokens_than_its_search_is_broad(tokens, options, warned):
    settings = Settings("/m", speculative_algorithm="NGRAM", speculative_num_draft_tokens=tokens)
    found = messages(replace(settings, speculative_options=options), WARNING)
    assert [message for message in found if "breadth" in message] == found
    assert bool(found) == warned


def test_ngram_chooses_numbers_itself():
    assert not messages(spec("NGRAM", None, None, None, 12), FAILED)


@pytest.mark.parametrize("name", ["steps", "topk", "tokens"])
@pytest.mark.parametrize("value", [0, -1])
def test_refuses_numbers_below_one(name, value):
    assert any(f"is {value}" in message for message in messages(spec("EAGLE3", **{name: value}), FAILED))


def test_refuses_a_draft_model_without_an_algorithm():
    (message,) = messages(spec(None, steps=None, topk=None, tokens=None), FAILED)
    assert "speculative_draft_model_path" in message and "without speculation" in message


def test_refuses_numbers_without_an_algorithm():
    (message,) = messages(spec(None, draft=None), FAILED)
    assert "speculative_num_steps" in message


@pytest.mark.parametrize("algorithm", ["EAGLE3", "STANDALONE", "DFLASH"])
def test_refuses_algorithms_without_their_draft_model(algorithm):
    assert any("needs speculative_draft_model_path" in m for m in messages(spec(algorithm, draft=None), FAILED))


@pytest.mark.parametrize("algorithm", ["EAGLE", "NEXTN", "NGRAM"])
def test_other_algorithms_may_do_without(algorithm):
    assert not messages(spec(algorithm, draft=None), FAILED)


def test_tells_what_a_top_k_of_one_makes_of_the_draft_tokens():
    assert implied_draft_tokens(spec("EAGLE3", tokens=8)) == 3
    (message,) = messages(spec("EAGLE3", tokens=8), WARNING)
    assert "8 becomes 3" in message
    assert implied_draft_tokens(spec("EAGLE3", topk=4, tokens=8)) is None


def test_warns_of_an_unknown_algorithm():
    (message,) = messages(spec("FOO"), WARNING)
    assert "'FOO'" in message


def test_mentions_the_limit_on_requests_where_none_is_given():
    assert any("48" in check.message for check in check_speculation(spec("EAGLE3", requests=None)))


@pytest.mark.parametrize(
    "given", [{"speculative_options": {"adaptive": True}}, {"extra_args": ("--speculative-attention-mode", "decode")}]
)
def test_refuses_further_settings_without_an_algorithm(given):
    found = [check for check in check_speculation(Settings("/m", **given)) if check.status == FAILED]
    assert len(found) == 1 and "without speculation" in found[0].message


@pytest.mark.parametrize(
    ("mode", "algorithm", "refused"),
    [("client", "EAGLE3", True), ("daemon", "EAGLE3", True), ("off", "EAGLE3", False), ("client", None, False)],
)
def test_the_weight_cache_does_not_go_with_speculation(mode, algorithm, refused):
    given = {"speculative_algorithm": algorithm, "speculative_draft_model_path": "/d"} if algorithm else {}
    settings = Settings("/m", extra_args=("--weight-cache-mode", mode), **given)
    assert bool(messages(settings, FAILED)) is refused


V2 = "SGLANG_ENABLE_SPEC_V2"


@pytest.mark.parametrize(
    ("version", "algorithm", "overlap_off", "environment", "status"),
    [
        ("0.5.7", "EAGLE3", True, {}, OK),
        ("0.5.7", "EAGLE3", False, {V2: "1"}, OK),
        ("0.5.7", "EAGLE3", True, {V2: "1"}, FAILED),
        ("0.5.7", "EAGLE3", False, {V2: "0"}, FAILED),
        ("0.5.7", "EAGLE3", True, {V2: "0"}, OK),
        ("0.5.12", "EAGLE3", False, {}, OK),
        ("0.5.12", "EAGLE3", True, {}, WARNING),
        ("0.5.12", "EAGLE", True, {V2: "False"}, OK),
        ("0.5.12", "NGRAM", True, {}, None),
        ("0.5.12", None, False, {}, None),
        ("0.5.13", "EAGLE3", True, {V2: "0"}, None),
        ("0.5.23", "EAGLE3", False, {}, None),
        ("", "EAGLE3", True, {V2: "1"}, None),
    ],
)
def test_the_worker_that_was_asked_for(version, algorithm, overlap_off, environment, status):
    effective = {"speculative_algorithm": algorithm, "disable_overlap_schedule": overlap_off}
    assert [check.status for check in check_worker(environment, effective, version)] == ([status] if status else [])
