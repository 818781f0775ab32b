# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import FAILED, WARNING
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.models_dir import Model
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.draft_checks import (
    check_aux_layers,
    check_quantization,
)

IDS = "eagle_aux_hidden_state_layer_ids"
TARGET = Model({"num_hidden_layers": 32, "vocab_size": 100})


def inside(ids, **more):
    return {"eagle_config": {IDS: ids, "use_aux_hidden_state": True}, **more}


@pytest.mark.parametrize(
    ("config", "status", "part"),
    [
        ({}, None, ""),
        (inside([1, 15, 28]), None, ""),
        (inside([0, 15, 30]), None, ""),
        (inside([1, 15, 32]), FAILED, "32 is none"),
        (inside([1, 15, 40]), FAILED, "layers 0 to 31"),
        (inside([-2, 15, 28]), FAILED, "-2 is none"),
        (inside([1, 1, 28]), FAILED, "names a layer twice"),
        (inside([1, 15]), WARNING, "2 layers"),
        (inside([1, 8, 15, 28]), WARNING, "4 layers"),
        (inside([1, 8, 15, 28], num_aux_hidden_states=4), None, ""),
        (inside([1, 15, 28], num_aux_hidden_states=4), WARNING, "is for 4"),
        (inside([1, 15, 31]), WARNING, "the state at 31"),
        (inside([-1, 15, 28]), WARNING, "the state at -1"),
        (inside("1,2,3"), FAILED, "list of numbers"),
        (inside([1, 2.5, 3]), FAILED, "list of numbers"),
        # Where SGLang does not look, only what differs from its own choice matters.
        ({IDS: [1, 15, 28]}, None, ""),
        ({IDS: [3, 15, 28]}, WARNING, "only inside eagle_config"),
        ({IDS: [1, 15, 40]}, WARNING, "40 is none"),
        ({"eagle_config": {"use_aux_hidden_state": False, IDS: [99]}}, None, ""),
        ({"eagle_config": None, IDS: [1, 15, 28]}, None, ""),
    ],
)
def test_layers_that_feed_the_draft(config, status, part):
    found = check_aux_layers("EAGLE3", TARGET, Model(config))
    if status is None:
        assert not found
    else:
        assert any(check.status == status and part in check.message for check in found), found
        assert {check.status for check in found} == {status}


def test_layers_count_in_the_language_model_of_a_multimodal_target():
    target = Model({"text_config": {"num_hidden_layers": 10}})
    assert check_aux_layers("EAGLE3", target, Model(inside([1, 5, 28])))


def test_other_algorithms_and_unknown_models_have_none():
    assert not check_aux_layers("EAGLE", TARGET, Model(inside([99])))
    assert not check_aux_layers("EAGLE3", Model(None), Model(inside([99])))
    assert not check_aux_layers("EAGLE3", TARGET, Model(None))


QUANTIZED = Model({"quantization_config": {"quant_method": "fp8"}})
PLAIN = Model({"vocab_size": 1})
FIELD = "speculative_draft_model_quantization"


@pytest.mark.parametrize(
    ("target", "draft", "target_option", "draft_option", "effective", "part"),
    [
        (QUANTIZED, PLAIN, None, None, {}, "quantized (fp8)"),
        (QUANTIZED, PLAIN, None, None, {FIELD: None}, ""),
        (QUANTIZED, PLAIN, None, None, {FIELD: "fp8"}, "inherits fp8"),
        (PLAIN, PLAIN, "fp8", None, {}, "inherits fp8"),
        (PLAIN, PLAIN, "fp8", None, {FIELD: None}, ""),
        (QUANTIZED, PLAIN, None, "unquant", {FIELD: None}, ""),
        (QUANTIZED, QUANTIZED, None, None, {FIELD: "fp8"}, ""),
        (PLAIN, PLAIN, None, None, {}, ""),
        (QUANTIZED, Model(None), None, None, {}, ""),
    ],
)
def test_an_unquantized_draft_may_inherit(target, draft, target_option, draft_option, effective, part):
    found = check_quantization(target, draft, target_option, draft_option, effective)
    assert bool(found) == bool(part)
    assert all(check.status == WARNING and part in check.message and "unquant" in check.message for check in found)
