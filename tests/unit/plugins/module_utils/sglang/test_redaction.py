# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang import redaction
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import REDACTED


@pytest.mark.parametrize(
    "argv",
    [
        ["--api-key", "s3cr3t-x"],
        ["--api-key=s3cr3t-x"],
        ["--admin-api-key", "s3cr3t-x"],
        ["--ssl-keyfile-password", "s3cr3t-x"],
    ],
)
def test_argv_loses_secrets_and_keeps_the_rest(argv):
    shown = redaction.redact_argv(["python", *argv, "--port", "1"])
    assert "s3cr3t-x" not in " ".join(shown)
    assert shown[0] == "python" and shown[-2:] == ["--port", "1"]
    assert redaction.secret_argument_values(argv) == ["s3cr3t-x"]


def test_argv_without_secrets_is_unchanged():
    argv = ["--max-total-tokens", "5", "--tokenizer-path", "/t", "--speculative-token-map", "/m", "--api-key"]
    assert redaction.redact_argv(argv) == argv
    assert redaction.secret_argument_values(argv) == []


@pytest.mark.parametrize("name", ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "api_key", "DB_PASSWORD", "MY_CREDENTIALS"])
def test_environment_loses_secrets(name):
    assert redaction.redact_environment({name: "v", "PATH": "/bin"}) == {name: REDACTED, "PATH": "/bin"}


def test_server_info_loses_secrets_at_any_depth():
    info = {
        "api_key": "k1-secret",
        "admin_api_key": "k2-secret",
        "launch_command": "--api-key k1-secret",
        "ssl_keyfile_password": "k3-secret",
        "port": 1,
        "max_total_num_tokens": 7,
        "internal_states": [{"api_key": "k1-secret", "env_vars": {"X": "k1-secret"}, "speculative_num_steps": 3}],
    }
    shown = redaction.redact_info(info)
    assert "secret" not in json.dumps(shown)
    assert shown == {"port": 1, "max_total_num_tokens": 7, "internal_states": [{"speculative_num_steps": 3}]}
    assert info["api_key"] == "k1-secret"


def test_server_info_tells_that_no_key_is_set():
    assert redaction.redact_info({"api_key": None}) == {"api_key": None}


@pytest.mark.parametrize(
    "text",
    [
        "ServerArgs(api_key='s3cr3t', admin_api_key=None)",
        "python -m sglang.launch_server --api-key s3cr3t --port 1",
        "--admin-api-key=s3cr3t",
        '{"api_key": "s3cr3t"}',
        "HF_TOKEN=s3cr3t",
        "ssl_keyfile_password='s3cr3t'",
    ],
)
def test_text_loses_what_follows_the_name_of_a_secret(text):
    assert "s3cr3t" not in redaction.redact_text(text, [])


def test_text_loses_known_secrets_the_longer_ones_first():
    assert redaction.redact_text("say abcdef and abc", ["abc", "abcdef", ""]) == f"say {REDACTED} and {REDACTED}"


def test_text_keeps_what_is_no_secret():
    text = "api_key=None, max_total_tokens=5, tokenizer='x', \"api_key\": null"
    assert redaction.redact_text(text, []) == text


def test_secrets_of_ignores_what_is_too_short_to_be_one():
    assert redaction.secrets_of(
        ["--api-key", "longenough"], {"A_KEY": "1", "B_TOKEN": "longer-one", "C": "plain-value"}
    ) == {
        "longenough",
        "longer-one",
    }


def test_only_secret_values_stay_hidden_in_results():
    hidden = {"1", "true", "hf_abcdef", "from-elsewhere"}
    redaction.settle_hidden_values(hidden, {"A": 1, "B": "true", "HF_TOKEN": "hf_abcdef"}, {"api-key": "k", "x": ""})
    assert hidden == {"hf_abcdef", "from-elsewhere", "k"}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("http://me:s3cr3t@proxy:3128", f"http://me:{REDACTED}@proxy:3128"),
        ("http://proxy:3128/a@b", "http://proxy:3128/a@b"),
        ("0,1", "0,1"),
    ],
)
def test_a_password_in_an_address_is_not_shown(value, shown):
    assert redaction.redact_environment({"https_proxy": value}) == {"https_proxy": shown}
