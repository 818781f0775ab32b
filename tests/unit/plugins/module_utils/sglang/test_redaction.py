# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import time

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


@pytest.mark.parametrize(
    "option",
    [
        *("--ap", "--api", "--api-", "--api-k", "--api-ke", "--api-key", "--api_key"),
        *("--ad", "--adm", "--admin", "--admin-", "--admin-api-k", "--admin-api-key"),
        *("--ssl-keyfile-", "--ssl-keyfile-p", "--ssl-keyfile-password", "--ssl_keyfile_pass"),
    ],
)
@pytest.mark.parametrize("equals", [True, False])
def test_the_beginning_of_an_options_name_is_enough_as_it_is_for_sglang(option, equals):
    argv = [option + "=s3cr3t-x"] if equals else [option, "s3cr3t-x"]
    assert "s3cr3t-x" not in " ".join(redaction.redact_argv(["python", *argv, "--port", "1"]))
    assert redaction.secret_argument_values(argv) == ["s3cr3t-x"]
    assert "s3cr3t-x" not in redaction.redact_text(" ".join(argv), [])


@pytest.mark.parametrize(
    ("option", "whole"),
    [
        ("--api-k", "api-key"),
        ("--ap", "api-key"),
        ("--api_key", "api-key"),
        ("--admin-api", "admin-api-key"),
        ("--ssl-keyfile-p", "ssl-keyfile-password"),
        ("--hf-token", "hf-token"),
    ],
)
def test_the_whole_name_of_an_option(option, whole):
    assert redaction.secret_name(option) == whole


@pytest.mark.parametrize(
    "option", ["--ssl-keyfile", "--ssl-certfile", "--adapter", "--apply-x", "--tokenizer-path", "-api", "api", "--a"]
)
def test_other_options_are_no_secrets(option):
    assert not redaction.is_secret_argument(option)
    assert redaction.redact_argv([option, "/k"]) == [option, "/k"]


def test_a_field_that_is_called_like_the_beginning_of_an_option_stays():
    assert redaction.redact_info({"api": 1, "ad": 2, "adm": 3}) == {"api": 1, "ad": 2, "adm": 3}


def test_a_command_that_is_shown_has_no_secret_inside_of_a_word_either():
    key = "k,)'\"x"
    shown = redaction.shown_command(
        [
            "python3",
            "--api-k",
            key,
            "--json-model-override-args",
            '{"api_key": "s3cr3t-1"}',
            "--proxy",
            "http://me:s3cr3t-2@proxy",
            "HF_TOKEN=s3cr3t-3",
            "\x1b[2J",
        ]
    )
    text = " ".join(shown)
    assert key not in text and "s3cr3t" not in text and text.isprintable()
    assert shown[:3] == ["python3", "--api-k", REDACTED]
    assert len(redaction.shown_command(["x" * 100_000] * 1000)) == 200


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
        "--api-k s3cr3t",
        "--api-key   s3cr3t",
        "--api-key='a b s3cr3t'",
        '--api-key "a\\" b s3cr3t"',
        "--api-key a,b)s3cr3t",
        "--api-key=x's3cr3t",
        "api_key='it\\'s s3cr3t', port=1",
        'api_key="it\'s s3cr3t", port=1',
        '{\\"api_key\\": \\"a s3cr3t\\", \\"port\\": 1}',
        '{"admin_api_key":"a, s3cr3t"}',
        "HF_TOKEN='a s3cr3t' python3",
        "DB_PASSWD=s3cr3t",
        "AWS_CREDENTIALS=s3cr3t",
        "Authorization: Bearer s3cr3t",
        "authorization: bearer  s3cr3t",
        "GET /x?a=1&api_key=s3cr3t HTTP/1.1",
        "https://store/m?X-Amz-Signature=s3cr3t",
        "git clone https://user:s3cr3t@example.org/x",
        "using hf_s3cr3tAAAAAAAAAAAAAAAA now",
    ],
)
def test_text_loses_what_follows_the_name_of_a_secret(text):
    assert "s3cr3t" not in redaction.redact_text(text, [])


def test_text_loses_known_secrets_the_longer_ones_first():
    assert redaction.redact_text("say abcdef and abc", ["abc", "abcdef", ""]) == f"say {REDACTED} and {REDACTED}"


def test_text_keeps_what_is_no_secret():
    assert redaction.redact_text("--api-key None, --port 1", []) == "--api-key None, --port 1"
    assert redaction.redact_text("hf_transfer --host 0.0.0.0 TOKEN", []) == "hf_transfer --host 0.0.0.0 TOKEN"
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
    ("text", "shown"),
    [
        ("api_key='s3cr3t', port=1", "api_key='********', port=1"),
        ('{"api_key": "s", "port": 1}', '{"api_key": "********", "port": 1}'),
        ("--api-key s3cr3t --port 1", "--api-key ******** --port 1"),
        ("--api-key='s 3' --port 1", "--api-key='********' --port 1"),
    ],
)
def test_what_stands_around_a_secret_stays_and_a_second_time_changes_nothing(text, shown):
    assert redaction.redact_text(text, []) == redaction.redact_text(shown, []) == shown


@pytest.mark.parametrize(
    "text",
    [
        "--api-key " * 12_000,
        "api_key" + " " * 125_000,
        "api_key='" * 15_000,
        "api_key=\\" + "\\" * 125_000,
        '"' + "\\'" * 62_000,
        "KEY" * 42_000,
        "A_KEY='" * 17_000,
        "://" * 42_000,
        "://a:" * 25_000,
        "?key" * 30_000,
        "?" + "a-" * 62_000,
        "--" + "api-key" * 17_000,
        "--" + "a-" * 62_000,
        "bearer " * 17_000,
        "hf_" * 42_000,
    ],
    ids=lambda text: text[:12],
)
def test_no_text_makes_it_take_long(text):
    began = time.process_time()
    redaction.redact_text(text, [])
    assert time.process_time() - began < 2


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
