# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which releases of the hosts of one server belong together."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.node_releases import (
    last_target,
    proven_sets,
    read_kept,
    wanted_target,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_settings import RolloutError

MULTI = {"nnodes": 2, "dist_init_addr": "a:20000", "host": "0.0.0.0", "port": 30000}


def listed(identity, ranks=(), at="", proven=True, **more):
    return {
        "id": identity,
        "ranks": list(ranks),
        "proven_at": at or None,
        "proven": proven,
        "requested": MULTI,
        "origin": "",
        **more,
    }


def kept(host, *entries, current=None, last_good=None):
    return read_kept(
        host, {"releases": list(entries), "release": {"id": current or None, "last_good_id": last_good or None}}
    )


OLD, NEW = ("a1", "b1"), ("a2", "b2")


def both(a=(), b=(), **links):
    """Two ranks that were proven together twice; what they keep besides."""
    a_links = {name: ids[0] for name, ids in links.items()}
    b_links = {name: ids[1] for name, ids in links.items()}
    return [
        kept("a", listed("a2", NEW, "2026-11-02"), listed("a1", OLD, "2026-11-01"), *a, **a_links),
        kept("b", listed("b2", NEW, "2026-11-02"), listed("b1", OLD, "2026-11-01"), *b, **b_links),
    ]


def test_the_last_ones_that_were_proven_together_come_back():
    ranks = both(a=[listed("a3", proven=False)], b=[listed("b3", proven=False)], last_good=NEW)
    assert proven_sets(ranks) == [NEW, OLD]
    target = last_target(ranks)
    assert (target.releases, target.alone, target.requested) == (NEW, False, MULTI)


def test_one_that_only_one_rank_has_proven_does_not_count():
    """The run ended between the two."""
    ranks = both(a=[listed("a3", ("a3", "b3"), "2026-11-03")], b=[listed("b3", proven=False)], last_good=("a3", "b2"))
    assert last_target(ranks).releases == NEW


def test_one_that_another_rank_has_not_kept_does_not_count():
    ranks = [kept("a", listed("a2", NEW, "2"), listed("a1", OLD, "1")), kept("b", listed("b1", OLD, "1"))]
    assert proven_sets(ranks) == [OLD]
    broken = [ranks[0], kept("b", listed("b2", NEW, "2", broken="no JSON"), listed("b1", OLD, "1"))]
    assert proven_sets(broken) == [OLD]


def test_a_release_that_a_rank_has_kept_through_a_change_of_others():
    """Rank 0 remembers only with whom it was proven last; rank 1 remembers the time before."""
    ranks = [
        kept("a", listed("a1", ("a1", "b2"), "2026-11-02")),
        kept("b", listed("b2", ("a1", "b2"), "2026-11-02"), listed("b1", ("a1", "b1"), "2026-11-01")),
    ]
    assert proven_sets(ranks) == [("a1", "b2"), ("a1", "b1")]


SINGLE = {"requested": {"model_path": "/m"}}


@pytest.mark.parametrize(
    ("ranks", "alone"),
    [
        ([kept("a", listed("a1", **SINGLE), last_good="a1"), kept("b", listed("b1", **SINGLE), last_good="b1")], True),
        (
            [
                kept("a", listed("a1", requested={**MULTI, "node_rank": 0}, origin="adopted"), last_good="a1"),
                kept("b", listed("b1", requested={**MULTI, "node_rank": "1"}, origin="adopted"), last_good="b1"),
            ],
            False,
        ),
    ],
)
def test_what_was_there_before_there_was_a_group(ranks, alone):
    target = last_target(ranks)
    assert (target.releases, target.alone) == (("a1", "b1"), alone)


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([kept("a"), kept("b")], "nothing to go back to: a, b have no proven release"),
        ([kept("a", listed("a1"), last_good="a1"), kept("b")], "b has no proven release"),
        (
            [kept("a", listed("a1"), last_good="a1"), kept("b", listed("b1", **SINGLE), last_good="b1")],
            r"do not belong together \(a a1, b b1\)",
        ),
        (
            [
                kept("a", listed("a1", requested={**MULTI, "node_rank": 0}, origin="adopted"), last_good="a1"),
                kept("b", listed("b1", requested={**MULTI, "node_rank": 0}, origin="adopted"), last_good="b1"),
            ],
            "do not belong together",
        ),
    ],
)
def test_without_releases_that_match_nothing_comes_back(ranks, words):
    with pytest.raises(RolloutError, match=words):
        last_target(ranks)


@pytest.mark.parametrize(
    ("links", "wanted", "releases"),
    [
        ({"current": NEW, "last_good": NEW}, "previous", OLD),
        ({"current": OLD, "last_good": OLD}, "previous", NEW),
        # The new one failed, and has not gone back.
        ({"current": ("a3", "b3"), "last_good": NEW}, "previous", NEW),
        # A return that was begun and not finished.
        ({"current": OLD, "last_good": NEW}, "previous", OLD),
        ({"current": NEW, "last_good": NEW}, "b1", OLD),
        ({"current": NEW, "last_good": NEW}, "a1", OLD),
        ({"current": NEW, "last_good": NEW}, "", NEW),
    ],
)
def test_what_somebody_wants_to_go_back_to(links, wanted, releases):
    assert wanted_target(both(**links), wanted).releases == releases


@pytest.mark.parametrize(
    ("ranks", "wanted", "words"),
    [
        (both(current=NEW), "a", r"'a' can mean 2 sets .*: a2 \+ b2; a1 \+ b1. Give more"),
        (both(current=NEW), "x", r"a, b have proven no 'x' together that all of them keep.* a2 \+ b2; a1 \+ b1"),
        ([kept("a"), kept("b")], "previous", "no 'previous' together.*: none"),
        ([kept("a", listed("a1")), kept("b", listed("b1"))], "", "no 'release' together"),
    ],
)
def test_what_cannot_be_gone_back_to_is_refused(ranks, wanted, words):
    with pytest.raises(RolloutError, match=words):
        wanted_target(ranks, wanted)


@pytest.mark.parametrize("result", [None, {}, {"releases": 3, "release": {}}, {"releases": [], "release": "x"}])
def test_a_host_that_did_not_say_is_unknown(result):
    with pytest.raises(RolloutError, match="not known which releases a keeps"):
        read_kept("a", result)


def test_a_host_may_say_anything():
    odd = {"releases": ["x", {"id": None, "ranks": 5}, {"id": "a1", "ranks": [1, 2], "requested": 7}], "release": {}}
    assert proven_sets([read_kept("a", odd), read_kept("b", odd)]) == []
