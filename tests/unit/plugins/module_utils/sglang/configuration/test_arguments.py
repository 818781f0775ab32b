# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import FAILED, WARNING
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration import arguments
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import (
    Settings,
    build_argv,
    settings_from,
)

EAGLE3 = {
    "model_path": "/m",
    "speculative_algorithm": "EAGLE3",
    "speculative_draft_model_path": "/d",
    "speculative_num_steps": 2,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 3,
}


def found(settings, status):
    return [check.message for check in arguments.check_extra_args(settings) if check.status == status]


def test_renders_every_option_under_sglangs_own_name_in_a_stable_order():
    settings = settings_from(
        dict(
            EAGLE3,
            served_model_name="m",
            host="0.0.0.0",
            port=30001,
            tp_size=4,
            pp_size=2,
            dp_size=2,
            max_running_requests=48,
            mem_fraction_static=0.85,
            extra_args=["--enable-metrics", "--context-length", "4096"],
        )
    )
    assert build_argv(settings) == [
        *("--model-path", "/m", "--served-model-name", "m", "--host", "0.0.0.0", "--port", "30001"),
        *("--tp-size", "4", "--pp-size", "2", "--dp-size", "2"),
        *("--max-running-requests", "48", "--mem-fraction-static", "0.85"),
        *("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "/d"),
        *("--speculative-num-steps", "2", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "3"),
        *("--enable-metrics", "--context-length", "4096"),
    ]


def test_leaves_out_what_was_not_given():
    argv = build_argv(settings_from({"model_path": "/m", "speculative_algorithm": "", "served_model_name": None}))
    assert argv == ["--model-path", "/m", "--host", "127.0.0.1", "--port", "30000", "--tp-size", "1"]


@pytest.mark.parametrize(
    ("given_name", "rendered"), [("eagle3", "EAGLE3"), ("Nextn", "NEXTN"), ("my_plugin", "my_plugin")]
)
def test_writes_known_algorithms_in_capitals(given_name, rendered):
    assert settings_from({"model_path": "/m", "speculative_algorithm": given_name}).speculative_algorithm == rendered


@pytest.mark.parametrize("word", ["none", "None", "NONE"])
def test_none_drops_everything_about_speculation(word):
    extra = [
        "--speculative-attention-mode",
        "decode",
        "--enable-metrics",
        "--speculative-adaptive",
        "--log-level",
        "info",
    ]
    settings = settings_from(dict(EAGLE3, speculative_algorithm=word, extra_args=extra))
    assert not [word for word in build_argv(settings) if "speculative" in word]
    assert build_argv(settings)[-3:] == ["--enable-metrics", "--log-level", "info"]
    assert settings.speculation_off
    assert "speculative_draft_model_path" in settings.left_out and "--speculative-adaptive" in settings.left_out
    assert arguments.requested_fields(settings)["speculative_algorithm"] is None


def test_none_does_not_hide_an_algorithm_in_extra_args():
    settings = settings_from(
        {"model_path": "/m", "speculative_algorithm": "none", "extra_args": ["--speculative-algorithm", "EAGLE"]}
    )
    assert found(settings, FAILED)


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["--tp", "8"], "tp_size"),
        (["--tp-size=8"], "tp_size"),
        (["--tensor-parallel-size", "8"], "tp_size"),
        (["--model", "/x"], "model_path"),
        (["--speculative-num-steps", "3"], "speculative_num_steps"),
        (["--speculative-num-draft", "4"], "speculative_num_draft_tokens"),  # argparse takes beginnings
        (["--speculative-draft-model", "/d"], "speculative_draft_model_path"),
        (["--speculative-algo", "EAGLE"], "speculative_algorithm"),
        (["--max-running", "4"], "max_running_requests"),
    ],
)
def test_refuses_what_an_option_says_already_and_names_both(words, option):
    (message,) = found(Settings("/m", extra_args=tuple(words)), FAILED)
    assert words[0].split("=")[0] in message and option in message


@pytest.mark.parametrize(
    "words", [["--api-key", "s3cr3t"], ["--admin-api-key=s3cr3t"], ["--ssl-keyfile-password", "s3cr3t"]]
)
def test_refuses_secrets_without_showing_them(words):
    (message,) = found(Settings("/m", extra_args=tuple(words)), FAILED)
    assert "secret_args" in message and "s3cr3t" not in message


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["4096", "--context-length"], "belongs to no option"),
        (["--context-length 4096"], "two elements"),
        (["--config=/f.yaml"], "two elements"),
        (["--log-level", "in\0fo"], "NUL"),
    ],
)
def test_refuses_what_sglang_would_misread(words, part):
    assert any(part in message for message in found(Settings("/m", extra_args=tuple(words)), FAILED))


def test_warns_of_repeated_options_and_of_files_that_are_not_checked():
    settings = Settings("/m", extra_args=("--log-level", "info", "--config", "/f.yaml", "--log-level", "error"))
    assert not found(settings, FAILED)
    assert len(found(settings, WARNING)) == 2


@pytest.mark.parametrize(
    "words",
    [
        ["--speculative-draft-model-revision", "main"],
        ["--speculative-draft-attention-backend", "triton"],
        ["--speculative-adaptive"],
        ["--tokenizer-path", "/t"],
        ["--chunked-prefill-size", "-1"],
        ["--dp-attention"],
    ],
)
def test_leaves_other_options_alone(words):
    assert not found(Settings("/m", extra_args=tuple(words)), FAILED)


def test_requested_fields_contain_the_extra_arguments_as_sglang_reads_them():
    extra = ("--chunked-prefill-size", "-1", "--enable-metrics", "--x", "0.5", "--names", "a", "b", "--kv=fp8")
    fields = arguments.requested_fields(Settings("/m", extra_args=extra))
    assert fields["chunked_prefill_size"] == -1
    assert fields["enable_metrics"] is True
    assert fields["x"] == 0.5
    assert fields["names"] == ["a", "b"]
    assert fields["kv"] == "fp8"
    assert fields["speculative_algorithm"] is None
    assert "served_model_name" not in fields


def test_of_an_option_that_is_given_again_the_last_one_is_requested():
    extra = ("--log-level", "info", "--log-level", "error", "--port", "1")
    fields = arguments.requested_fields(Settings("/m", extra_args=extra))
    assert (fields["log_level"], fields["port"]) == ("error", 30000)


@given(st.lists(st.sampled_from(["--a", "--b=1", "-1", "x", "--c", "-.5", "--speculative-x", ""])))
def test_taking_extra_args_apart_loses_nothing(words):
    options, stray = arguments.parse_extra_args(words)
    assert stray + [word for option in options for word in option.words] == words


@pytest.mark.parametrize(
    "secret",
    [
        {"--api-key": "x"},
        {"api_key": "x"},
        {"api-key": "-x"},
        {"api-key": ""},
        {"api-key": "a\nb"},
        {"api-key": "schlüssel"},
    ],
)
def test_refuses_secret_args_that_would_not_arrive(secret):
    (check,) = arguments.check_secret_args(secret, Settings("/m"))
    assert check.status == FAILED


def test_secret_args_need_the_one_config_file_that_sglang_takes():
    assert not arguments.check_secret_args({"api-key": "x"}, Settings("/m"))
    (check,) = arguments.check_secret_args({"api-key": "x"}, Settings("/m", extra_args=("--config", "/f.yaml")))
    assert check.status == FAILED and "--config" in check.message
