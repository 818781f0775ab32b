# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes of a server that spans several hosts."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.ranks import node_rank_of, parse_address
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release


@pytest.mark.parametrize(
    ("command", "fields", "rank"),
    [
        (["python3"], {}, 0),
        (["python3", "--node-rank", "1"], {}, 1),
        (["python3", "--node-rank=3"], {}, 3),
        (["python3", "--node_rank", "2"], {}, 2),
        (["python3", "--node-rank"], {}, 0),
        (["python3", "--node-rank", "x"], {}, 0),
        (["python3"], {"effective": {"node_rank": 1}}, 1),
        (["python3"], {"requested": {"node_rank": "2"}}, 2),
        (["python3"], {"effective": {"node_rank": 0}}, 0),
    ],
)
def test_the_rank_of_a_release(command, fields, rank):
    assert node_rank_of(Release("r1", "2026-01-02T03:04:05Z", "main", "systemd", command, **fields)) == rank


def test_no_release_is_rank_zero():
    assert node_rank_of(None) == 0


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("gpu-a:30000", ("gpu-a", 30000)),
        (" 10.0.0.1:80 ", ("10.0.0.1", 80)),
        ("[fe80::1]:30000", ("fe80::1", 30000)),
    ],
)
def test_an_address(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "gpu-a", "gpu-a:", "gpu-a:0", "gpu-a:99999", "http://gpu-a:1", "::1:30000", "a b:1"]
)
def test_what_is_no_address(text):
    with pytest.raises(ValueError):
        parse_address(text)
