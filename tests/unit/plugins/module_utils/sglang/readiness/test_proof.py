# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The comparison of what was asked with what a server reports and does."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.compared import effective_of
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness import proof
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.readiness import Generation

EAGLE3 = {
    "model_path": "/models/target",
    "speculative_algorithm": "EAGLE3",
    "speculative_draft_model_path": "/models/draft",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
    "max_running_requests": 48,
    "speculative_adaptive": False,
}


def differing(expected, reported):
    return [mismatch.field for mismatch in proof.compare(expected, reported, proof.COMPARED)]


@pytest.mark.parametrize(
    ("name", "expected", "actual", "equal"),
    [
        ("speculative_algorithm", "NEXTN", "EAGLE", True),
        ("speculative_algorithm", "eagle3", "EAGLE3", True),
        ("speculative_algorithm", "EAGLE", "EAGLE3", False),
        ("speculative_algorithm", None, None, True),
        ("speculative_algorithm", "none", None, True),
        ("speculative_algorithm", "", None, True),
        ("speculative_algorithm", None, "EAGLE3", False),
        ("speculative_num_steps", 3, "3", True),
        ("speculative_num_steps", 3, 3.0, True),
        ("speculative_num_steps", 3, 2, False),
        ("mem_fraction_static", "0.80", 0.8, True),
        ("model_path", "/models/x/", "/models/x", True),
        ("model_path", "/models/x", "/models/X", False),
        ("model_path", "/", "/", True),
        ("disable_overlap_schedule", "true", True, True),
        ("disable_overlap_schedule", True, False, False),
        ("disable_overlap_schedule", True, 1, True),
        ("served_model_name", ["tiny"], "tiny", True),
        ("served_model_name", "7", 7, True),
        ("attention_backend", "triton", "fa3", False),
    ],
)
def test_what_means_the_same(name, expected, actual, equal):
    assert proof.same(name, expected, actual) is equal


def test_an_equal_configuration_has_no_mismatch():
    assert differing(EAGLE3, {**EAGLE3, "version": "0.5.17", "speculative_attention_mode": "prefill"}) == []


@pytest.mark.parametrize(
    ("changes", "field", "note"),
    [
        ({"speculative_num_draft_tokens": 8}, "speculative_num_draft_tokens", "steps plus 1"),
        ({"speculative_num_steps": 5}, "speculative_num_steps", ""),
        ({"speculative_algorithm": None}, "speculative_algorithm", "without speculation"),
        ({"speculative_draft_model_path": "/models/other"}, "speculative_draft_model_path", ""),
    ],
)
def test_an_adjusted_configuration_is_a_mismatch(changes, field, note):
    (mismatch,) = proof.compare(EAGLE3, {**EAGLE3, **changes}, proof.COMPARED)
    assert mismatch.field == field and note in mismatch.note
    assert mismatch.to_dict() == {
        "field": field,
        "expected": EAGLE3[field],
        "actual": changes[field],
        "note": mismatch.note,
    }
    assert field in mismatch.message()


def test_the_silent_limit_of_48_is_named():
    (mismatch,) = proof.compare({"max_running_requests": 250}, EAGLE3, proof.COMPARED)
    assert "48 is SGLang's own limit" in mismatch.message()


def test_a_baseline_that_speculates():
    (mismatch,) = proof.compare({"speculative_algorithm": None}, EAGLE3, proof.COMPARED)
    assert mismatch.message().startswith("speculative_algorithm is EAGLE3 instead of unset (the server speculates")


def test_adaptive_that_was_turned_off():
    expected = {**EAGLE3, "speculative_adaptive": True}
    (mismatch,) = proof.compare(expected, EAGLE3, proof.COMPARED)
    assert mismatch.field == "speculative_adaptive" and "turned it off" in mismatch.note


def test_versions_before_adaptive_do_not_know_it():
    old = {name: value for name, value in EAGLE3.items() if name != "speculative_adaptive"}
    assert differing(EAGLE3, old) == []
    assert differing({**EAGLE3, "speculative_adaptive": True}, old) == ["speculative_adaptive"]
    assert differing(EAGLE3, {**EAGLE3, "speculative_adaptive": None}) == []


def test_unset_means_whatever_sglang_chooses():
    auto = {**EAGLE3, "speculative_num_steps": None, "max_running_requests": None, "speculative_eagle_topk": ""}
    assert differing(auto, {**EAGLE3, "speculative_num_steps": 5}) == []


def test_a_server_that_reports_nothing_proves_nothing():
    assert differing(EAGLE3, {}) == [
        "model_path",
        "speculative_algorithm",
        "speculative_draft_model_path",
        "speculative_num_steps",
        "speculative_eagle_topk",
        "speculative_num_draft_tokens",
    ]
    assert differing({"speculative_algorithm": "none"}, {}) == []


def test_only_the_fields_that_were_named_are_compared():
    assert proof.compare(EAGLE3, {**EAGLE3, "speculative_num_steps": 9}, ["model_path"]) == []
    assert [m.field for m in proof.compare({"dtype": "bfloat16"}, {"dtype": "half"}, ["dtype"])] == ["dtype"]


def test_adjusted_fields():
    requested = {"speculative_num_draft_tokens": 8, "speculative_num_steps": 3, "host": "::", "tp_size": None}
    assert proof.adjusted_of(requested, {**EAGLE3, "tp_size": 1}) == {
        "speculative_num_draft_tokens": {"requested": 8, "effective": 4}
    }
    assert proof.adjusted_of({"speculative_algorithm": "EAGLE3"}, {"speculative_algorithm": None}) == {
        "speculative_algorithm": {"requested": "EAGLE3", "effective": None}
    }
    assert proof.adjusted_of({"speculative_algorithm": None}, {"speculative_algorithm": None}) == {}


def test_effective_fields_are_sorted_and_known():
    assert list(effective_of({"b": 1, "a": None, "c": 3}, ["b", "a", "x"])) == ["a", "b"]


@pytest.mark.parametrize(
    ("info", "warned"),
    [
        ({"max_running_requests": 250, "internal_states": [{"effective_max_running_requests_per_dp": 100}]}, True),
        ({"max_running_requests": 48, "internal_states": [{"effective_max_running_requests_per_dp": 48}]}, False),
        ({"max_running_requests": None, "internal_states": [{"effective_max_running_requests_per_dp": 4}]}, False),
        ({"max_running_requests": 48, "internal_states": [{}]}, False),
        ({"max_running_requests": 48}, False),
        ({"max_running_requests": 48, "internal_states": "?"}, False),
        (
            {
                "max_running_requests": 50,
                "attn_dp_size": 8,
                "internal_states": [{"effective_max_running_requests_per_dp": 6}] * 8,
            },
            False,
        ),
        (
            {
                "max_running_requests": 64,
                "enable_dp_attention": True,
                "dp_size": 8,
                "internal_states": [{"effective_max_running_requests_per_dp": 6}],
            },
            True,
        ),
    ],
)
def test_less_room_than_configured(info, warned):
    assert bool(proof.capacity_warnings(info)) is warned


@pytest.mark.parametrize(
    ("version", "algorithm", "no_overlap", "worker"),
    [
        ("0.5.7", "EAGLE3", True, "v1"),
        ("0.5.7", "EAGLE3", False, "v2"),
        ("0.5.12.post1", "EAGLE", True, "v1"),
        ("0.5.12", "NEXTN", False, "v2"),
        ("0.5.13", "EAGLE3", True, "v2_synchronous"),
        ("0.5.23", "EAGLE3", False, "v2"),
        ("0.5.23", "NGRAM", False, ""),
        ("0.5.12", None, True, ""),
        ("", "EAGLE3", False, ""),
        ("0.5.12", "EAGLE3", None, ""),
    ],
)
def test_which_worker_runs(version, algorithm, no_overlap, worker):
    info = {"version": version, "speculative_algorithm": algorithm, "disable_overlap_schedule": no_overlap}
    assert proof.worker_of(info) == worker


# -- speculation


def generations(*pairs):
    return [Generation(tokens, {} if count is None else {"spec_verify_ct": count}, 0.1) for tokens, count in pairs]


def test_speculation_that_works_is_judged_over_all_generations():
    result = proof.judge_speculation("EAGLE3", generations((128, 40), (128, 88)), 1.9)
    assert (result.accept_length, result.verify_count, result.tokens, result.problem) == (2.0, 128, 256, "")


@pytest.mark.parametrize("counts", [[None, None], [0, 0], [40, 0], ["40", True], []])
def test_speculation_that_is_silently_off(counts):
    result = proof.judge_speculation("EAGLE3", generations(*[(128, count) for count in counts]), 1.2)
    assert result.problem == "no_speculation" and "EAGLE3" in result.message


def test_a_draft_model_that_is_never_right():
    result = proof.judge_speculation("EAGLE3", generations((128, 127), (128, 128)), 1.2)
    assert result.problem == "low_acceptance" and result.accept_length == pytest.approx(1.0039)
    assert "1.00 tokens per verification" in result.message and "min_accept_length" in result.message


@pytest.mark.parametrize(("count", "problem"), [(106, ""), (107, "low_acceptance")])
def test_the_limit_itself_is_enough(count, problem):
    assert proof.judge_speculation("EAGLE3", generations((128, count)), 128 / 106 - 0.001).problem == problem


@pytest.mark.parametrize("count", [None, 0])
def test_a_baseline(count):
    result = proof.judge_speculation(None, generations((128, count)), 1.2)
    assert (result.accept_length, result.verify_count, result.problem) == (None, 0, "")


def test_a_baseline_whose_generations_speculate():
    assert proof.judge_speculation(None, generations((128, 40)), 1.2).problem == "unexpected_speculation"


ADAPTIVE = {"speculative_algorithm": "EAGLE3", "speculative_adaptive": True}


@pytest.mark.parametrize(
    ("problem", "info", "others", "excused"),
    [
        ("low_acceptance", ADAPTIVE, 1, True),
        ("no_speculation", ADAPTIVE, 40, True),
        ("low_acceptance", ADAPTIVE, 0, False),
        ("unexpected_speculation", ADAPTIVE, 40, False),
        ("low_acceptance", {**ADAPTIVE, "speculative_adaptive": False}, 40, False),
        ("low_acceptance", {"speculative_algorithm": "NGRAM"}, 0, True),
        ("no_speculation", {"speculative_algorithm": "NGRAM"}, 0, False),
    ],
)
def test_what_says_nothing_about_the_configuration(problem, info, others, excused):
    assert bool(proof.excuse(problem, info, others)) == excused


@pytest.mark.parametrize(
    ("expected", "reported", "differs"),
    [
        ({"dp_size": 8}, {"dp_size": 1, "attn_dp_size": 8}, False),
        ({"dp_size": 8}, {"dp_size": 1, "attn_dp_size": 1}, True),
        (
            {"speculative_draft_model_quantization": "unquant"},
            {"speculative_draft_model_quantization": None},
            False,
        ),
        (
            {"speculative_draft_model_quantization": "unquant"},
            {"speculative_draft_model_quantization": "fp8"},
            True,
        ),
    ],
)
def test_what_sglang_stores_otherwise_is_no_difference(expected, reported, differs):
    """Expected as it was asked for: the parser was not run."""
    assert bool(proof.compare(expected, reported, proof.COMPARED)) == differs


# -- log and command line


def test_what_the_log_says_about_dropped_settings():
    lines = [
        "[x] speculative_adaptive disabled: topk is 4",
        "[x] speculative_adaptive disabled: topk is 4",
        "[x] Spec v1 is used for eagle/eagle3/standalone speculative decoding because topk > 1",
        "[x] SGLANG_ENABLE_SPEC_V2 has been removed and is ignored",
        "[x] server_args=ServerArgs(note='Spec v1 is used')",
    ]
    found = proof.log_warnings(lines)
    assert len(found) == 3 and "topk is 4" in found[0]
    assert proof.log_warnings(["all well"]) == []


@pytest.mark.parametrize(
    ("argv", "differs"),
    [
        (["/opt/python3", "-m", "sglang.launch_server", "--port", "1"], False),
        (["/usr/bin/bash", "/opt/python3", "-m", "sglang.launch_server", "--port", "1"], False),
        (["/opt/python3", "-m", "sglang.launch_server", "--port", "2"], True),
        (["/opt/python3", "-m", "sglang.launch_server"], True),
        ([], True),
    ],
)
def test_the_command_line(argv, differs):
    assert proof.command_differs(argv, ["/opt/python3", "-m", "sglang.launch_server", "--port", "1"]) is differs


def test_a_command_without_arguments_is_not_compared():
    assert not proof.command_differs(["x"], ["/opt/serve"])


# -- what was asked for


def test_what_was_asked_for_is_always_compared():
    expected = {"kv_cache_dtype": "fp8_e5m2", "tp_size": 2, "page_size": 64}
    assert proof.fields_to_compare(["tp_size"], {"kv_cache_dtype": "fp8_e5m2"}, expected) == [
        "tp_size",
        "kv_cache_dtype",
    ]
    usual = proof.fields_to_compare(None, {"tp_size": 2, "kv_cache_dtype": "x"}, expected)
    assert usual[: len(proof.COMPARED)] == list(proof.COMPARED) and usual[len(proof.COMPARED) :] == ["kv_cache_dtype"]


def test_all_is_everything_that_can_be_compared():
    expected = {"tp_size": 2, "page_size": 64, "random_seed": 5, "log_level": "info"}
    assert proof.fields_to_compare(["all"], {}, expected) == ["tp_size", "log_level"]
    assert proof.fields_to_compare(["all"], {"page_size": 64}, expected) == ["tp_size", "log_level", "page_size"]


def test_a_draft_that_inherits_its_targets_quantization():
    expected = {"speculative_draft_model_quantization": "unquant"}
    (found,) = proof.compare(expected, {"speculative_draft_model_quantization": "fp8"}, proof.COMPARED)
    assert found.field == "speculative_draft_model_quantization"


def test_what_sglang_may_correct_is_told_and_no_failure():
    found = [proof.Mismatch("mem_fraction_static", 0.9, 0.81), proof.Mismatch("tp_size", 2, 1)]
    left, told = proof.tell_corrected(found)
    assert left == found[1:] and len(told) == 1 and "mem_fraction_static is 0.81 instead of 0.9" in told[0]


@pytest.mark.parametrize(
    ("version", "environment", "requested", "worker"),
    [
        ("0.5.7", {}, {}, ""),
        ("0.5.7", {"SGLANG_ENABLE_SPEC_V2": "1"}, {}, "v2"),
        ("0.5.7", {"SGLANG_ENABLE_SPEC_V2": "True"}, {"disable_overlap_schedule": True}, "v2"),
        ("0.5.12", {"SGLANG_ENABLE_SPEC_V2": "false"}, {}, "v1"),
        ("0.5.12", {}, {"disable_overlap_schedule": True}, "v1"),
        ("0.5.12", {}, {"disable_overlap_schedule": "true"}, "v1"),
        ("0.5.13", {"SGLANG_ENABLE_SPEC_V2": "false"}, {}, ""),
        ("0.5.17", {}, {"disable_overlap_schedule": True}, "v2_synchronous"),
        ("", {"SGLANG_ENABLE_SPEC_V2": "1"}, {}, ""),
    ],
)
def test_which_worker_was_asked_for(version, environment, requested, worker):
    effective = {"speculative_algorithm": "EAGLE3"}
    assert proof.expected_worker(requested, effective, environment, version) == worker
    assert proof.expected_worker(requested, {"speculative_algorithm": None}, environment, version) == ""


def test_another_worker_than_was_asked_for_is_a_mismatch():
    info = {"version": "0.5.12", "speculative_algorithm": "EAGLE3", "disable_overlap_schedule": True}
    (found,) = proof.judge_worker("v2", info)
    assert (found.field, found.expected, found.actual) == ("worker", "v2", "v1")
    assert proof.judge_worker("v1", info) == [] and proof.judge_worker("", info) == []


ADAPTIVE_OFF = "[2026-01-02 03:04:05] speculative_adaptive disabled: topk is 4"
SPEC_V1 = "[2026-01-02 03:04:05] Spec v1 is used for eagle/eagle3/standalone speculative decoding because of topk"


@pytest.mark.parametrize(
    ("lines", "requested", "worker", "fields"),
    [
        ([ADAPTIVE_OFF], {"speculative_adaptive": True}, "", ["speculative_adaptive"]),
        ([ADAPTIVE_OFF], {"speculative_adaptive": False}, "", []),
        ([ADAPTIVE_OFF], {}, "", []),
        ([SPEC_V1], {}, "v2", ["worker"]),
        ([SPEC_V1], {}, "", []),
        ([SPEC_V1], {}, "v1", []),
        (["Non-overlap (synchronous) spec v2 is used"], {}, "v2", ["worker"]),
        (["server_args=ServerArgs(x='speculative_adaptive disabled')"], {"speculative_adaptive": True}, "", []),
        (["all well"], {"speculative_adaptive": True}, "v2", []),
    ],
)
def test_the_log_drops_what_was_asked_for(lines, requested, worker, fields):
    assert [mismatch.field for mismatch in proof.dropped_in_log(lines, requested, worker)] == fields


def test_a_field_is_named_once():
    one, other = proof.Mismatch("worker", "v2", "v1"), proof.Mismatch("worker", "v2", "v1", "the log")
    assert proof.merge([one], [other]) == [one]
    assert proof.merge([], [other]) == [other]


def test_the_number_of_replicas_may_have_moved_to_another_field():
    asked = {"dp_size": 2}
    assert proof.adjusted_of(asked, {"dp_size": 1, "attn_dp_size": 2}) == {}
    assert set(proof.adjusted_of(asked, {"dp_size": 1, "attn_dp_size": 1})) == {"dp_size"}
