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


@pytest.mark.parametrize(
    ("lines", "note"),
    [
        (
            ["before", "[x] speculative_adaptive disabled: it needs topk 1.", "after"],
            "the log says: [x] speculative_adaptive disabled: it needs topk 1.",
        ),
        (["before"], "SGLang turned it off, and what is left of its log does not say why"),
    ],
)
def test_why_adaptive_was_turned_off_is_in_the_log(lines, note):
    other = proof.Mismatch("max_running_requests", 250, 48, "x")
    found = proof.compare({**EAGLE3, "speculative_adaptive": True}, EAGLE3, proof.COMPARED)
    assert [mismatch.note for mismatch in proof.explained_by_log([other, *found], lines)] == ["x", note]


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


# -- comparing, field by field


@pytest.mark.parametrize(
    ("name", "expected", "actual", "equal"),
    [
        ("speculative_algorithm", " null ", None, True),
        ("speculative_algorithm", " nextn ", "EAGLE", True),
        ("speculative_algorithm", "NGRAM", "NGRAM", True),
        ("speculative_algorithm", "NONE", "EAGLE", False),
        ("quantization", "null", None, True),
        ("quantization", "None", "", True),
        ("quantization", " fp8 ", "fp8", True),
        ("quantization", "fp8", None, False),
        ("dtype", "Auto", "auto", False),
        ("dtype", "x/", "x", False),
        ("model", "/models/x/", "/models/x", True),
        ("served_model_name", "tiny/", "tiny", True),
        ("speculative_token_map", "/maps/x/", "/maps/x", True),
        ("speculative_adaptive_config", "/c.json/", "/c.json", True),
        ("model_path", "/models/x", "models/x", False),
        ("model_path", "/models/X", "/models", False),
        ("model_path", "/", "", False),
        ("context_length", "1e3", 1000, True),
        ("context_length", "+.5E1", 5, True),
        ("context_length", "-5.", -5, True),
        ("context_length", "5", -5, False),
        ("context_length", "0x10", 16, False),
        ("context_length", "10 MiB", 10, False),
        ("enable_multi_layer_eagle", "FALSE", False, True),
        ("enable_multi_layer_eagle", "false", True, False),
        ("enable_multi_layer_eagle", False, 0, True),
        ("enable_multi_layer_eagle", None, False, False),
        ("cuda_graph_bs", [1, "2", 4], (1.0, 2, "4"), True),
        ("cuda_graph_bs", [1, 2], [2, 1], False),
        ("cuda_graph_bs", [], None, False),
        ("lora_path", ["/a/", "/b"], ["/a", "/b/"], True),
        ("json_model_override_args", {"a": 1}, {"a": 1}, True),
        ("json_model_override_args", {"a": 1}, {"a": 2}, False),
    ],
)
def test_what_means_the_same_in_other_fields(name, expected, actual, equal):
    assert proof.same(name, expected, actual) is equal


@pytest.mark.parametrize("value", [None, "", " none ", "null", "NULL"])
def test_no_algorithm_is_no_speculation(value):
    assert proof.algorithm_of({"speculative_algorithm": value}) is None
    assert proof.algorithm_of({}) is None
    assert proof.algorithm_of({"speculative_algorithm": " eagle3 "}) == "EAGLE3"


def test_a_field_that_says_nothing_hides_no_later_one():
    expected = {
        "unset": None,
        "unknown": 1,
        "off": False,
        "dp_size": 2,
        "speculative_draft_model_quantization": "unquant",
        "equal": 3,
        "other": 4,
    }
    reported = {"off": None, "dp_size": 1, "attn_dp_size": 2, "equal": 3, "unset": 7, "other": 5}
    reported["speculative_draft_model_quantization"] = None
    fields = ["missing", *expected]
    assert [(m.field, m.expected, m.actual) for m in proof.compare(expected, reported, fields)] == [("other", 4, 5)]


def test_a_field_that_was_switched_off_and_is_on_differs():
    (found,) = proof.compare({"disable_overlap_schedule": False}, {"disable_overlap_schedule": True}, proof.COMPARED)
    assert found.to_dict() == {"field": "disable_overlap_schedule", "expected": False, "actual": True, "note": ""}
    assert proof.compare({"x": True}, {"x": None}, ["x"]) == [proof.Mismatch("x", True, None)]


def test_what_is_not_reported_is_named_with_what_was_expected():
    (found,) = proof.compare({"model_path": "/m"}, {}, proof.COMPARED)
    assert found == proof.Mismatch("model_path", "/m", None, "the server does not report it")
    assert found.message() == "model_path is unset instead of /m (the server does not report it)"
    assert proof.compare({"tp_size": 2}, {}, proof.COMPARED) == []


@pytest.mark.parametrize("chosen", [["model_path"], ["all"]])
def test_no_speculation_is_the_same_for_a_server_that_does_not_know_it(chosen):
    expected = {"model_path": "/m", "speculative_algorithm": None, "speculative_adaptive": False}
    fields = proof.fields_to_compare(chosen, {}, expected)
    assert proof.compare(expected, {"model_path": "/m"}, fields) == []


@pytest.mark.parametrize(
    ("field", "expected", "actual", "note"),
    [
        ("speculative_algorithm", "EAGLE3", None, "the server serves without speculation"),
        ("speculative_algorithm", None, "EAGLE3", "the server speculates although it must not"),
        ("speculative_algorithm", "EAGLE3", "NGRAM", ""),
        ("speculative_adaptive", True, False, "SGLang turned it off"),
        ("speculative_adaptive", "x", True, ""),
        ("speculative_num_draft_tokens", 8, 4, "with a top-k of 1 SGLang takes the number of steps plus 1"),
        ("max_running_requests", 64, 48, "48 is SGLang's own limit for servers that speculate, where none is given"),
        ("max_running_requests", 64, 32, ""),
        ("tp_size", 64, 48, ""),
    ],
)
def test_a_difference_is_explained_where_the_cause_is_known(field, expected, actual, note):
    (found,) = proof.compare({field: expected}, {field: actual}, [field])
    assert found == proof.Mismatch(field, expected, actual, note)


def test_which_fields_are_compared():
    expected = {"b": 1, "tp_size": 2, "random_seed": 5, "a": None}
    assert proof.fields_to_compare([], {"z": 1, "y": 2}, expected) == ["y", "z"]
    assert proof.fields_to_compare(["random_seed", "all", "b"], {}, expected) == ["random_seed", "b", "tp_size", "a"]
    assert proof.fields_to_compare(["b", "b"], {"b": 1}, expected) == ["b"]
    assert proof.fields_to_compare(None, {}, expected) == list(proof.COMPARED)


def test_what_was_corrected_is_told_in_a_sentence():
    found = [proof.Mismatch("tp_size", 2, 1), proof.Mismatch("mem_fraction_static", 0.9, 0.81)]
    assert proof.tell_corrected(found) == (
        [found[0]],
        ["SGLang corrected a setting while it started: mem_fraction_static is 0.81 instead of 0.9."],
    )
    assert proof.tell_corrected([]) == ([], [])


def test_what_was_adjusted_is_sorted_and_says_no_more_than_what_differs():
    requested = {
        "z": 1,
        "a": 1,
        "unset": None,
        "off": False,
        "speculative_draft_model_quantization": "unquant",
        "unknown": 5,
        "same": "3",
    }
    effective = {"z": 2, "a": 2, "unset": 7, "off": None, "speculative_draft_model_quantization": None, "same": 3}
    found = proof.adjusted_of(requested, effective)
    assert list(found.items()) == [
        ("a", {"requested": 1, "effective": 2}),
        ("z", {"requested": 1, "effective": 2}),
    ]
    assert proof.adjusted_of({"off": False}, {"off": True}) == {"off": {"requested": False, "effective": True}}
    assert proof.adjusted_of({"on": True}, {"on": None}) == {"on": {"requested": True, "effective": None}}
    baseline = proof.adjusted_of({"speculative_algorithm": None}, {"speculative_algorithm": "NGRAM"})
    assert baseline == {"speculative_algorithm": {"requested": None, "effective": "NGRAM"}}


def room(configured, *each, **more):
    states = [{"effective_max_running_requests_per_dp": number} for number in each]
    return proof.capacity_warnings({"max_running_requests": configured, "internal_states": states, **more})


def test_how_much_room_there_is():
    (told,) = room(250, 100)
    assert told.startswith("The server runs at most 100 requests at a time although max_running_requests is 250: ")
    # The one with the least room decides; those that say nothing do not.
    assert "at most 60 " in room(250, 100, 60, None, 0, True)[0]
    assert room(100, 100) == [] and len(room(100, 99)) == 1
    # The configured number is split over the workers.
    assert "at most 80 " in room(250, 10, attn_dp_size=8, dp_size=2)[0]
    assert "at most 20 " in room(250, 10, dp_size=2, enable_dp_attention=True)[0]
    assert "at most 10 " in room(250, 10, dp_size=2)[0]
    assert "at most 10 " in room(250, 10, dp_size=None, enable_dp_attention=True)[0]
    assert room(63, 7, attn_dp_size=8) == [] and "at most 56 " in room(64, 7, attn_dp_size=8)[0]
    assert proof.capacity_warnings({"max_running_requests": 250, "internal_states": ["?"]}) == []
    assert proof.capacity_warnings({"max_running_requests": True, "internal_states": [{}]}) == []
    assert "at most 1 " in room(3, 1)[0]


@pytest.mark.parametrize(
    ("version", "no_overlap", "worker"),
    [("0.5.12", True, "v1"), ("0.5.13", True, "v2_synchronous"), ("0.6", True, "v2_synchronous"), ("0.5", True, "v1")],
)
def test_from_which_version_on_there_is_one_worker(version, no_overlap, worker):
    for algorithm in ("EAGLE", "EAGLE3", "STANDALONE", "NEXTN"):
        info = {"version": version, "speculative_algorithm": algorithm, "disable_overlap_schedule": no_overlap}
        assert proof.worker_of(info) == worker
    assert proof.worker_of({**info, "version": None}) == "" and proof.worker_of({**info, "version": "main"}) == ""
    assert proof.worker_of({"version": version, "disable_overlap_schedule": no_overlap}) == ""


def test_which_worker_is_asked_for_by_a_switch_of_blanks():
    effective = {"speculative_algorithm": "EAGLE3"}
    asked = {"disable_overlap_schedule": "False"}
    assert proof.expected_worker(asked, effective, {"SGLANG_ENABLE_SPEC_V2": " "}, "0.5.12") == ""
    assert proof.expected_worker({}, effective, {"SGLANG_ENABLE_SPEC_V2": " 0 "}, "0.5.12") == "v1"
    assert proof.expected_worker({}, effective, {}, "0.5.13") == ""
    assert proof.expected_worker({"disable_overlap_schedule": True}, effective, {}, "0.5.13") == "v2_synchronous"


def test_a_worker_that_is_no_question_is_no_mismatch():
    info = {"version": "0.5.12", "speculative_algorithm": "NGRAM", "disable_overlap_schedule": True}
    assert proof.judge_worker("v2", info) == []
    (found,) = proof.judge_worker("v2", {**info, "speculative_algorithm": "EAGLE"})
    assert (found.expected, found.actual) == ("v2", "v1") and "the log says why" in found.note


# -- what is said about speculation


@pytest.mark.parametrize(
    ("algorithm", "pairs", "found"),
    [
        ("EAGLE3", [(128, 40), (128, 88)], (2.0, 128, 256, "")),
        ("EAGLE3", [(10, 3), (10, 4)], (2.8571, 7, 20, "")),
        ("EAGLE3", [(128, 0), (128, 64)], (4.0, 64, 256, "no_speculation")),
        ("EAGLE3", [(128, None)], (None, 0, 128, "no_speculation")),
        ("EAGLE3", [(128, 128)], (1.0, 128, 128, "low_acceptance")),
        (None, [(128, 0), (64, None)], (None, 0, 192, "")),
        (None, [(128, 0), (64, 32)], (6.0, 32, 192, "unexpected_speculation")),
        (None, [(64, 1)], (64.0, 1, 64, "unexpected_speculation")),
    ],
)
def test_the_figures_of_a_judgement(algorithm, pairs, found):
    result = proof.judge_speculation(algorithm, generations(*pairs), 1.2)
    assert (result.accept_length, result.verify_count, result.tokens, result.problem) == found
    assert bool(result.message) == bool(result.problem)


def test_what_is_said_about_speculation():
    def said(algorithm, pairs, least=1.2):
        return proof.judge_speculation(algorithm, generations(*pairs), least).message

    assert said("EAGLE3", [(9, 0), (9, 3), (9, None)]).startswith(
        "The server reports EAGLE3, but in 2 of 3 generations it did not verify a single draft token."
    )
    assert said(None, [(9, 3)]) == "The server verified draft tokens 3 times although it must not speculate."
    assert said("EAGLE3", [(10, 9)], 1.25).startswith(
        "The server accepts too little: 1.11 tokens per verification; min_accept_length demands 1.25 (1.0 means"
    )


def test_exactly_the_demanded_acceptance_is_enough():
    assert proof.judge_speculation("EAGLE3", generations((12, 10)), 1.2).problem == ""
    assert proof.judge_speculation("EAGLE3", generations((12, 10)), 1.2001).problem == "low_acceptance"


def test_an_excuse_says_what_it_rests_on():
    assert proof.excuse("low_acceptance", {"speculative_algorithm": "ngram"}, 0).startswith("NGRAM has no draft model")
    assert proof.excuse("low_acceptance", ADAPTIVE, 40).startswith("It has 40 other requests, ")
    assert proof.excuse("", ADAPTIVE, 40) == "" and proof.excuse("no_speculation", ADAPTIVE, 0) == ""
    assert proof.excuse("no_speculation", {**ADAPTIVE, "speculative_adaptive": "yes"}, 40) == ""
    assert proof.excuse("low_acceptance", {"speculative_algorithm": "EAGLE3"}, 40) == ""


# -- what is said about the log


def test_each_line_of_the_log_is_told_with_its_meaning():
    for text, meaning in (
        ("speculative_adaptive disabled", "SGLang turned adaptive speculation off"),
        ("Spec v1 is used", "SGLang runs the older speculative worker, without overlap"),
        (
            "SGLANG_ENABLE_SPEC_V2 has been removed",
            "SGLang ignores SGLANG_ENABLE_SPEC_V2: remove it from the environment",
        ),
        ("Overlap scheduler is disabled", "SGLang does not overlap scheduling and generating"),
        ("Non-overlap (synchronous) spec v2 is used", "SGLang drives the speculative worker synchronously"),
    ):
        line = "[x] %s since so" % text
        assert proof.log_warnings(["before", "  %s  " % line.upper(), line]) == [
            "%s. Its log says: %s" % (meaning, line.upper())
        ]


def test_a_long_line_of_the_log_is_cut():
    (told,) = proof.log_warnings(["Spec v1 is used" + "x" * 400])
    assert told.endswith("Its log says: Spec v1 is used" + "x" * 285)


@pytest.mark.parametrize(
    ("line", "requested", "worker", "mismatch"),
    [
        (ADAPTIVE_OFF, {"speculative_adaptive": "true"}, "", ("speculative_adaptive", True, False)),
        (SPEC_V1, {}, "v2", ("worker", "v2", "v1")),
        ("NON-OVERLAP (synchronous) SPEC V2 IS USED", {}, "v2", ("worker", "v2", "v2_synchronous")),
    ],
)
def test_what_the_log_says_was_dropped(line, requested, worker, mismatch):
    (found,) = proof.dropped_in_log(["before", line], requested, worker)
    assert found == proof.Mismatch(*mismatch, "the log says: %s" % line)


def test_the_usual_word_about_the_newer_worker_is_no_drop():
    assert proof.dropped_in_log(["Overlap spec v2 is used"], {}, "v2") == []
    assert proof.dropped_in_log(["Non-overlap spec v2 is used"], {}, "v2_synchronous") == []


def test_mismatches_of_other_fields_are_kept_in_order():
    a, b, c = (proof.Mismatch(name, 1, 2) for name in "abc")
    assert proof.merge([b], [c, proof.Mismatch("b", 3, 4), a]) == [b, c, a]


def test_the_arguments_may_be_all_there_is():
    command = ["/opt/python3", "-m", "x"]
    assert not proof.command_differs(["-m", "x"], command)
    assert proof.command_differs(["x"], command)
    assert proof.command_differs(["/opt/python3", "-m", "x", "more"], command)
    assert proof.command_differs(["python3", "-m", "y"], command)


def test_a_value_that_means_something_else_is_adjusted():
    name = "speculative_draft_model_quantization"
    assert set(proof.adjusted_of({name: "unquant"}, {name: "fp8"})) == {name}


def test_a_switch_that_is_neither_on_nor_off_asks_for_nothing():
    effective = {"speculative_algorithm": "EAGLE3"}
    assert proof.expected_worker({"disable_overlap_schedule": "maybe"}, effective, {}, "0.5.13") == ""
    assert proof.dropped_in_log([ADAPTIVE_OFF], {"speculative_adaptive": "maybe"}, "") == []


def test_a_number_of_requests_that_is_none_is_a_plain_difference():
    (found,) = proof.compare({"max_running_requests": 64}, {"max_running_requests": "many"}, proof.COMPARED)
    assert found == proof.Mismatch("max_running_requests", 64, "many")
