# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.configuration_changes import (
    describe_changes,
    diff_of,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release

SUM = "a" * 64
BEFORE = Release(
    id="r1",
    created="2026-11-30T10:00:00Z",
    instance="main",
    manager="systemd",
    command=["/v/bin/python", "-m", "sglang.launch_server", "--model-path", "/m", "--tp-size", "8", "--enable-metrics"],
    environment={"A": "1", "HF_TOKEN": "hf_s3cr3t"},
    secret_args={"api-key": "k-s3cr3t"},
    container={"engine": "docker", "image": "sglang:1", "volumes": ["/a:/a"], "shm_size": ""},
    files={"adaptive.json": "{}\n"},
    patches=[{"target": "sglang/x.py", "path": "/p", "sha256_before": "b" * 64, "sha256_after": SUM}],
)


def with_words(*words):
    return replace(BEFORE, command=[*BEFORE.command[:3], *words])


@pytest.mark.parametrize(
    ("after", "lines"),
    [
        (BEFORE, []),
        (replace(BEFORE, id="r2", created="later", effective={"x": 1}, sglang_version="2"), []),
        (
            with_words("--model-path", "/m", "--tp-size", "4", "--enable-metrics"),
            ["--tp-size: 8 -> 4"],
        ),
        (
            with_words("--model-path", "/m", "--tp-size", "8", "--foo", "x", "y", "--flag"),
            ["--foo: added (x y)", "--flag: added", "--enable-metrics: removed"],
        ),
        (with_words("--tp-size", "8", "--model-path", "/m", "--enable-metrics"), []),
        (
            with_words("--model-path", "/m", "--tp-size", "8", "--enable-metrics", "--tp-size", "2"),
            ["--tp-size (number 2): added (2)"],
        ),
        (
            replace(BEFORE, command=["/w/bin/python", *BEFORE.command[1:]]),
            ["program: /v/bin/python -m sglang.launch_server -> /w/bin/python -m sglang.launch_server"],
        ),
        (
            replace(BEFORE, environment={"A": "0", "B": ""}),
            ["environment A: 1 -> 0", 'environment B: added ("")', "environment HF_TOKEN: removed (not shown)"],
        ),
        (replace(BEFORE, secret_args={"api-key": "n-s3cr3t"}), ["api-key: changed (not shown)"]),
        (replace(BEFORE, secret_args={}), ["api-key: removed (not shown)"]),
        (
            replace(BEFORE, container=dict(BEFORE.container, image="sglang:2", volumes=["/a:/a", "/b:/b"])),
            ["image: sglang:1 -> sglang:2", "container volumes: /a:/a -> /a:/a /b:/b"],
        ),
        (
            replace(BEFORE, container={}),
            [
                "container engine: removed (docker)",
                "image: removed (sglang:1)",
                "container volumes: removed (/a:/a)",
            ],
        ),
        (replace(BEFORE, files={"adaptive.json": "[]\n"}), ["file adaptive.json: changed"]),
        (
            replace(BEFORE, patches=[{"target": "sglang/y.py", "sha256_after": "c" * 64}]),
            ["patch sglang/y.py: added (cccccccccccc)", "patch sglang/x.py: removed (aaaaaaaaaaaa)"],
        ),
        (replace(BEFORE, manager="process", user="me"), ["manager: systemd -> process", "user: added (me)"]),
    ],
)
def test_one_line_for_each_difference(after, lines):
    assert describe_changes(BEFORE, after) == lines
    assert "s3cr3t" not in "".join(describe_changes(BEFORE, after))


def test_before_the_first_deployment():
    assert describe_changes(None, BEFORE) == ["first deployment of this instance"]
    assert diff_of(None, BEFORE)["before"] == ""


def test_the_diff_has_one_option_a_line_and_no_secret():
    diff = diff_of(BEFORE, with_words("--model-path", "/m", "--admin-api-key", "a-s3cr3t"))
    assert diff["before"].splitlines() == [
        "/v/bin/python -m sglang.launch_server",
        "  --model-path /m",
        "  --tp-size 8",
        "  --enable-metrics",
        "  --api-key ********",
        "environment A=1",
        "environment HF_TOKEN=********",
        "container engine docker",
        "image sglang:1",
        "container volumes /a:/a",
        f"patch sglang/x.py {SUM[:12]}",
        "manager systemd",
        "file adaptive.json",
        "  {}",
    ]
    assert "s3cr3t" not in str(diff)


def test_secrets_in_an_old_command_are_not_shown():
    before = with_words("--api-key", "o-s3cr3t")
    assert describe_changes(before, with_words("--api-key", "n-s3cr3t")) == ["--api-key: changed (not shown)"]
