# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import FAILED, WARNING
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration import effective
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import (
    Settings,
    requested_fields,
)


def test_the_parsers_fields_are_plain_and_without_secrets():
    fields = {
        "api_key": "s3cr3t",
        "launch_command": "x",
        "random_seed": 4,
        "tp_size": 8,
        "names": ["a"],
        "none": None,
        "nested": {"a": 1},
        "lists": [[1]],
        "attention_backend": "fa3",
    }
    assert effective.effective_from_parser(fields, {}, False) == {
        "attention_backend": "fa3",
        "names": ["a"],
        "none": None,
        "tp_size": 8,
    }


def test_what_comes_from_a_gpu_does_not_count_where_none_was_visible():
    fields = {"attention_backend": "torch_native", "mem_fraction_static": 0.8, "tp_size": 8}
    assert effective.effective_from_parser(fields, {"mem_fraction_static": 0.8}, True) == {
        "mem_fraction_static": 0.8,
        "tp_size": 8,
    }


def test_without_the_parser_the_known_adjustments_are_made():
    settings = Settings(
        "/m",
        speculative_algorithm="NEXTN",
        speculative_num_steps=3,
        speculative_eagle_topk=1,
        speculative_num_draft_tokens=8,
    )
    fields = effective.effective_without_parser(settings)
    assert fields["speculative_algorithm"] == "EAGLE"
    assert fields["speculative_num_draft_tokens"] == 4
    assert effective.adjusted_fields(requested_fields(settings), fields) == {
        "speculative_algorithm": {"requested": "NEXTN", "effective": "EAGLE"},
        "speculative_num_draft_tokens": {"requested": 8, "effective": 4},
    }


def test_only_fields_that_both_sides_know_are_compared():
    assert effective.adjusted_fields({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 3, "d": 4}) == {
        "b": {"requested": 2, "effective": 3}
    }


@pytest.mark.parametrize(
    ("asked", "got", "same"),
    [
        (1, 1.0, True),
        ("0.80", 0.8, True),
        ("fp8", "fp8", True),
        ("a", ["a"], True),
        (["1", "2"], [1, 2], True),
        (["1"], [1, 2], False),
        (True, True, True),
        (True, False, False),
        (1, True, True),
        (2, True, False),
        (None, None, True),
        ("x", None, False),
        ({"a": 1}, "x", False),
    ],
)
def test_same_value(asked, got, same):
    assert effective.same_value(asked, got) is same


def test_lost_speculation_is_an_error_and_other_changes_are_not():
    def status(field, asked, got):
        (check,) = effective.check_adjusted({field: {"requested": asked, "effective": got}})
        return check.status

    assert status("speculative_algorithm", "EAGLE3", None) == FAILED
    assert status("speculative_algorithm", None, "EAGLE") == FAILED
    assert status("speculative_algorithm", "NEXTN", "EAGLE") == WARNING
    assert status("disable_overlap_schedule", True, False) == WARNING


@pytest.mark.parametrize(
    "flag", ["speculative_adaptive", "speculative_use_rejection_sampling", "speculative_use_block_verification"]
)
def test_a_flag_of_speculation_that_is_dropped_is_an_error(flag):
    (check,) = effective.check_adjusted({flag: {"requested": True, "effective": False}})
    assert check.status == FAILED and flag in check.message


def test_unquant_means_none():
    name = "speculative_draft_model_quantization"
    assert effective.adjusted_fields({name: "unquant"}, {name: None}) == {}
    assert effective.adjusted_fields({name: "unquant"}, {name: "unquant"}) == {}
    assert set(effective.adjusted_fields({name: "unquant"}, {name: "fp8"})) == {name}
    assert set(effective.adjusted_fields({name: "fp8"}, {name: None})) == {name}


def test_the_number_of_replicas_may_have_moved_to_another_field():
    asked = {"dp_size": 2}
    assert effective.adjusted_fields(asked, {"dp_size": 1, "attn_dp_size": 2}) == {}
    assert set(effective.adjusted_fields(asked, {"dp_size": 1, "attn_dp_size": 1})) == {"dp_size"}
