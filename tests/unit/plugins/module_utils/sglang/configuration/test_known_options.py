# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.known_options import (
    check_option_names,
    sources_of,
)

KNOWN = (
    "--model-path",
    "--tp-size",
    "--tp",
    "--speculative-num-steps",
    "--enable-metrics",
    "--enable-lora",
    "--api-key",
)
SOURCES = sources_of(["model_path", "tp_size"], ["adaptive"], ["api-key", "api-kee"])


def found(argv, secret_args=(), known=KNOWN):
    return [check.message for check in check_option_names(argv, secret_args, known, SOURCES, "0.5.17")]


def test_exact_names_pass():
    assert not found(["--model-path", "/m", "--tp", "2", "--enable-metrics", "--config", "f.yaml"], ["api-key"])
    assert not found(["--tp-size=2", "--speculative-num-steps", "-1"])


def test_nothing_is_known_where_the_parser_does_not_tell():
    assert not found(["--nonsense"], known=())


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        (["--speculative-num-step", "2"], ["in extra_args", "0.5.17", "read as --speculative-num-steps"]),
        (["--enable-metric"], ["read as --enable-metrics"]),
        (["--enable"], ["--enable in extra_args"]),
        (["--enable-metrisc"], ["did you mean --enable-metrics?"]),
        (["--speculative-adaptive"], ["in speculative_options"]),
        (["--zzz"], ["remove it"]),
        # What both begin with makes two names no more alike.
        (["--speculative-draft-kv-cache-dtype"], ["remove it"]),
        (["--speculative-num-stesp"], ["did you mean --speculative-num-steps?"]),
        (["-zzz"], ["-zzz"]),
    ],
)
def test_other_names_are_refused_with_the_nearest(argv, parts):
    (message,) = found(argv)
    assert all(part in message for part in parts), message


def test_names_of_secrets_are_checked_too():
    (message,) = found([], ["api-kee"])
    assert "--api-kee in secret_args" in message and "--api-key" in message


def test_each_name_is_reported_once():
    assert len(found(["--zzz", "1", "--zzz", "2"])) == 1
