# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import FAILED
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.adaptive import (
    check_adaptive,
    check_kept,
    check_reach,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import settings_from

GOOD = {"1": {"candidate_steps": [1, 3]}, "32": {"candidate_steps": [0, 1]}}


def asked(config=None, adaptive=True, **changes):
    options = {"adaptive": adaptive, "adaptive_config": config}
    given = {
        "model_path": "/m",
        "speculative_algorithm": "EAGLE3",
        "speculative_draft_model_path": "/d",
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4,
        "speculative_options": options,
    }
    return settings_from(dict(given, **changes), "/state/main/current")


def failures(settings, version="0.5.17", **more):
    checks = check_adaptive(settings, version, **more)
    assert all(check.status == FAILED for check in checks)
    return [check.message for check in checks]


@pytest.mark.parametrize(
    "config",
    [
        None,
        GOOD,
        {1: {"candidate_steps": [3]}, 64: {"candidate_steps": [0], "ema_alpha": 0.5, "down_hysteresis": -1}},
        dict(GOOD, ema_alpha=0.1, update_interval=1, warmup_batches=0, strategy="ema"),
    ],
)
def test_good_ones(config):
    assert not failures(asked(config))


def test_without_speculation_nothing_is_said():
    assert not failures(asked(None, adaptive=False))
    assert not failures(asked(GOOD, speculative_algorithm="none"))


@pytest.mark.parametrize(
    ("config", "part"),
    [
        ({"0": {"candidate_steps": [1]}, "1": {"candidate_steps": [3]}}, "batch size 0 must be at least 1"),
        ({"1": [1, 3]}, "batch size 1 must be a dictionary"),
        ({"1": {}}, "batch size 1 needs candidate_steps"),
        ({"1": {"candidate_steps": []}}, "batch size 1 needs candidate_steps"),
        ({"1": {"candidate_steps": [-1, 3]}}, "whole numbers from 0 up"),
        ({"1": {"candidate_steps": [1.5, 3]}}, "whole numbers from 0 up"),
        ({"1": {"candidate_steps": [True, 3]}}, "whole numbers from 0 up"),
        ({"1": {"candidate_steps": [3], "ema_alhpa": 1}}, "'ema_alhpa' is neither"),
        ({"1": {"candidate_steps": [3], "ema_alpha": 0}}, "ema_alpha is 0"),
        (dict(GOOD, ema_alpha="x"), "ema_alpha is 'x'"),
        (dict(GOOD, update_interval=0), "update_interval is 0"),
        (dict(GOOD, warmup_batches=1.5), "warmup_batches is 1.5"),
        (dict(GOOD, steps=[1]), "'steps' is neither a batch size"),
        ({"ema_alpha": 0.2}, "has no batch size"),
        ({"candidate_steps": [1, 3]}, "has no batch size"),
        ({"1": {"candidate_steps": [1, 5]}, "8": {"candidate_steps": [0]}}, "num_steps 3 is in no candidate_steps"),
    ],
)
def test_bad_ones(config, part):
    found = failures(asked(config))
    assert any(part in message for message in found), found


@pytest.mark.parametrize(
    ("config", "version", "part"),
    [
        (GOOD, "0.5.10", "came with 0.5.11"),
        (GOOD, "0.5.12", "knows from 0.5.13 on"),
        (GOOD, "0.5.13", "needs SGLang 0.5.14"),
        ({"candidate_steps": [1, 3]}, "0.5.12", ""),
        ({"1": {"candidate_steps": [1, 3]}}, "0.5.13", ""),
        (GOOD, "", ""),
    ],
)
def test_each_version_has_its_own_form(config, version, part):
    found = failures(asked(config), version)
    assert any(part in message for message in found) if part else not found, found


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"speculative_eagle_topk": 4}, "speculative_eagle_topk 4"),
        ({"speculative_algorithm": "NGRAM"}, "speculative_algorithm NGRAM"),
        ({"speculative_algorithm": "STANDALONE"}, "speculative_algorithm STANDALONE"),
        ({"extra_args": ["--enable-dp-attention"]}, "attention-DP"),
        ({"extra_args": ["--attn-dp-size", "2"]}, "attention-DP"),
        ({"extra_args": ["--enable-multi-layer-eagle"]}, "multi-layer EAGLE"),
        ({"extra_args": ["--enable-two-batch-overlap"]}, "two-batch overlap"),
        ({"extra_args": ["--enable-lora"]}, "LoRA"),
        ({"extra_args": ["--lora-paths", "a=/b"]}, "LoRA"),
        ({"extra_args": ["--enable-pdmux"]}, "prefill and decode"),
        ({"pp_size": 2}, "pp_size 2"),
    ],
)
def test_what_switches_it_off_is_refused(changes, part):
    found = failures(asked(GOOD, **changes))
    assert any(part in message for message in found), found
    assert not failures(asked(GOOD, extra_args=["--attn-dp-size", "1"]))


def test_a_configuration_without_the_flag_is_refused():
    (message,) = failures(asked(GOOD, adaptive=False))
    assert "without speculative_options.adaptive" in message


def test_the_flag_in_extra_args_counts():
    assert failures(asked(None, adaptive=False, speculative_eagle_topk=2, extra_args=["--speculative-adaptive"]))


@pytest.mark.parametrize(
    ("text", "part"),
    [(None, "cannot be read"), ("{", "not valid JSON"), ("[]", "not a JSON object"), ('{"1": {}}', "candidate_steps")],
)
def test_a_file_is_looked_at(tmp_path, text, part):
    path = tmp_path / "adaptive.json"
    if text is not None:
        path.write_text(text)
    found = failures(asked(str(path)))
    assert any(part in message for message in found), found
    # In a container it may be a file of the image.
    assert not failures(asked(str(path)), on_host=False)
    path.write_text(json.dumps(GOOD))
    assert not failures(asked(str(path)))
    assert "no absolute path" in failures(asked("adaptive.json"))[0]


@pytest.mark.parametrize(
    ("config", "limit", "unreached"),
    [
        (None, 48, "64"),
        (None, None, "64"),
        (None, 64, ""),
        (GOOD, 48, ""),
        (GOOD, 16, "32"),
        ({"1": {"candidate_steps": [3]}, "48": {"candidate_steps": [0]}}, 48, ""),
    ],
)
def test_tiers_beyond_the_limit_are_reported(config, limit, unreached):
    found = check_reach(asked(config), {"speculative_adaptive": True, "max_running_requests": limit})
    assert [f"batch size {unreached} of" in check.message for check in found] == ([True] if unreached else [])
    assert not check_reach(asked(config), {"speculative_adaptive": False, "max_running_requests": 1})


def test_without_the_parser_an_open_top_k_is_reported():
    requested = {"speculative_adaptive": True}
    assert check_kept(requested, requested, False)
    assert not check_kept(requested, requested, True)
    assert not check_kept(dict(requested, speculative_eagle_topk=1), requested, False)
