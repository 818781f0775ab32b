# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts are the ranks of one server, and what each is started with."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.node_groups import (
    NodeGroup,
    describe,
    members,
    rank_zero,
    words_of,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_settings import RolloutError

EVERYWHERE = {"sglang_host": "0.0.0.0"}
BIG = NodeGroup("big", ("a", "b"), "10.0.0.1:20000", "10.0.0.1:30000")


def test_the_order_of_the_inventory_is_that_of_the_ranks():
    known = {
        "b": {"sglang_node_group": "big"},
        "x": {},
        "a": {"sglang_node_group": "big"},
        "c": {"sglang_node_group": 7},
    }
    assert members(known) == {"big": ("b", "a"), "7": ("c",)}
    assert members(known, ["a", "x", "c", "b"]) == {"big": ("a", "b"), "7": ("c",)}
    assert members({"x": {}}, ["y"]) == {}


@pytest.mark.parametrize(
    ("first", "others", "meeting", "asked"),
    [
        ({}, {}, "a:20000", "a:30000"),
        ({"ansible_host": "10.0.0.1"}, {}, "10.0.0.1:20000", "10.0.0.1:30000"),
        ({"ansible_host": "fd00::1"}, {}, "[fd00::1]:20000", "[fd00::1]:30000"),
        ({"sglang_port": "31000"}, {}, "a:21000", "a:31000"),
        ({"sglang_port": 31000, "sglang_deploy_port": 8000}, {}, "a:18000", "a:8000"),
        ({"sglang_host": "10.9.9.9"}, {}, "a:20000", "10.9.9.9:30000"),
        ({"sglang_dist_init_addr": "ib0.a:5000"}, {"sglang_dist_init_addr": "ib0.a:5000"}, "ib0.a:5000", "ib0.a:30000"),
        # Two ranks of one host meet there.
        ({"sglang_host": "127.0.0.1", "ansible_host": "localhost"}, {}, "localhost:20000", "127.0.0.1:30000"),
        # Where only the inventory knows how rank 0 is asked.
        ({"sglang_host": "127.0.0.1"}, {"sglang_rank_zero": "tunnel:1"}, "a:20000", ""),
    ],
)
def test_where_the_ranks_meet_and_where_rank_zero_answers(first, others, meeting, asked):
    known = {"a": {**EVERYWHERE, **first}, "b": others}
    group = describe("big", ["a", "b"], known, ["b", "a"])
    assert (group.hosts, group.dist_init_addr, group.rank_zero) == (("a", "b"), meeting, asked)


@pytest.mark.parametrize(
    ("known", "present", "words"),
    [
        ({"a": EVERYWHERE, "b": {}}, ["a"], "b is not in this run, or out of reach"),
        ({"a": EVERYWHERE, "b": {}}, [], "a, b are not in this run, or out of reach.*--limit a,b"),
        ({"a": {}, "b": {}}, ["a", "b"], r"sglang_host is 127.0.0.1 for a, .* \(b\) cannot ask .* Set sglang_host"),
        ({"a": {**EVERYWHERE, "sglang_port": "http"}, "b": {}}, ["a", "b"], "sglang_port: 'http' is no port.*for a"),
        ({"a": {**EVERYWHERE, "sglang_port": 70000}, "b": {}}, ["a", "b"], "70000 is no port"),
        (
            {"a": {**EVERYWHERE, "sglang_dist_init_addr": "10.0.0.1"}, "b": {}},
            ["a", "b"],
            "sglang_dist_init_addr: '10.0.0.1' is not HOST:PORT.*free port.*set for a",
        ),
        (
            {"a": {**EVERYWHERE, "sglang_dist_init_addr": "a:1"}, "b": {"sglang_dist_init_addr": "a:2"}},
            ["a", "b"],
            "must be the same for all hosts of the node group big: a has 'a:1'; b has 'a:2'",
        ),
    ],
)
def test_a_group_that_cannot_be_one_server_is_refused(known, present, words):
    with pytest.raises(RolloutError, match=words):
        describe("big", ["a", "b"], known, present)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], ["--nnodes", "2", "--node-rank", "1", "--dist-init-addr", "10.0.0.1:20000"]),
        (["--nnodes", "2", "--enable-metrics"], ["--node-rank", "1", "--dist-init-addr", "10.0.0.1:20000"]),
        (["--node-rank=1", "--nccl-init-addr", "10.0.0.1:20000"], ["--nnodes", "2"]),
        (["--node_rank", 1], ["--nnodes", "2", "--dist-init-addr", "10.0.0.1:20000"]),
    ],
)
def test_the_arguments_of_a_rank(given, words):
    assert words_of(BIG, "b", given) == words


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            ["--nnodes", "3"],
            "--nnodes is 3 in sglang_extra_args of b, and 2 by the node group big.*correct sglang_node_",
        ),
        (["--node-rank", "0"], "--node-rank is 0 .* and 1 by .* a, b.*change the order of the hosts"),
        (["--dist-init-addr", "b:5"], "--dist-init-addr is b:5 .* 10.0.0.1:20000 by .* set sglang_dist_init_addr"),
        (["--node-rank"], "--node-rank is True"),
    ],
)
def test_arguments_that_say_something_else_are_refused(given, words):
    with pytest.raises(RolloutError, match=words):
        words_of(BIG, "b", given)


def test_a_host_that_is_alone_is_told_nothing_and_must_not_say_otherwise():
    alone = NodeGroup("big", ("a",), "a:20000", "")
    assert words_of(alone, "a", []) == []
    with pytest.raises(RolloutError, match="--nnodes is 2"):
        words_of(alone, "a", ["--nnodes", "2"])


@pytest.mark.parametrize(
    ("host", "meeting", "asked"),
    [
        ("::", "[fd00::1]:20000", "[fd00::1]:30000"),
        ("[fd00::9]", "[fd00::1]:20000", "[fd00::9]:30000"),
        ("::1", "[fd00::1]:20000", ""),
        ("localhost", "127.0.0.1:20000", "localhost:30000"),
    ],
)
def test_addresses_of_rank_zero(host, meeting, asked):
    assert rank_zero(host, 30000, meeting) == asked
