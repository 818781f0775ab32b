# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of --config, through which the server gets its secrets, and what SGLang makes of other such files."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.parser_probe import ACCEPTED, REFUSED

FILE = "/not/there/config.yaml"


@pytest.fixture
def ask(release, models):
    """Ask about a file's text; the call returns the parser's answer."""

    def run(text, *words, path=FILE, named=True):
        naming = ["--config", path] if named else [f"--config={path}"]
        return release.ask(["--model-path", models["TARGET"], *naming, *words], files={path: text})

    return run


def test_secrets_come_through_it(release, models):
    secret_args = ["api-key", "admin-api-key"] if release.numbers >= (0, 5, 8) else ["api-key"]
    result = release.ask(["--model-path", models["TARGET"]], secret_args=secret_args)
    assert result.status == ACCEPTED, result
    assert {name: result.fields[name.replace("-", "_")] for name in secret_args} == dict.fromkeys(
        secret_args, "no-secret"
    )


def test_the_oldest_has_no_key_for_the_administrator(release, models):
    result = release.ask(["--model-path", models["TARGET"]], secret_args=["admin-api-key"])
    assert (result.status == REFUSED) == (release.numbers < (0, 5, 8)), result


@pytest.mark.parametrize(
    ("text", "words", "field", "value"),
    [
        ("max-running-requests: 32", [], "max_running_requests", 32),
        ("max-running-requests: 32", ["--max-running-requests", "16"], "max_running_requests", 16),
        ("max-run: 32", [], "max_running_requests", 32),
        ("disable-radix-cache: true", [], "disable_radix_cache", True),
        ("disable-radix-cache: false", [], "disable_radix_cache", False),
        ("served-model-name: null", [], "served_model_name", "None"),
        ("{}", [], "max_running_requests", None),
    ],
    ids=lambda value: str(value)[:28],
)
def test_read(ask, text, words, field, value):
    result = ask(text, *words)
    assert result.status == ACCEPTED, result
    assert result.fields[field] == value


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("max_running_requests: 32", FILE, "unrecognized arguments: --max_running_requests 32"),
        ("no-such-option: 1", FILE, "unrecognized arguments: --no-such-option 1"),
        ("[1]", FILE, "ValueError: Config file must contain a dictionary at root level"),
        ("{}", "/not/there/config.json", "ValueError: Config file must be YAML format, got: .json"),
    ],
)
def test_refused(ask, text, path, message):
    result = ask(text, path=path)
    assert (result.status, result.message) == (REFUSED, message)


def test_a_file_in_the_same_word_is_not_read(ask):
    result = ask("max-running-requests: 32", named=False)
    assert result.status == ACCEPTED and result.fields["max_running_requests"] is None


def test_a_switch_that_is_no_plain_one_any_more_is_refused(ask, release):
    result = ask("enable-dp-attention: true\ntp-size: 2\ndp-size: 2")
    if release.numbers < (0, 5, 23):
        assert result.status == ACCEPTED and result.fields["enable_dp_attention"] is True
    else:
        assert result.message.startswith("ValueError: Unsupported config option 'enable_dp_attention'")


def test_a_mapping_becomes_json_in_late_releases_only(ask, release):
    result = ask("model-loader-extra-config: {a: 1}")
    assert result.status == ACCEPTED, result
    late = release.numbers >= (0, 5, 17)  # the oldest of those seen
    assert result.fields["model_loader_extra_config"] == ('{"a": 1}' if late else "{'a': 1}")
