# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from datetime import datetime, timezone

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.releases.proof import (
    Phase,
    Proof,
    proof_at,
    proof_file,
    read_proof,
)

NOW = datetime(2026, 11, 30, 10, 45, tzinfo=timezone.utc)
PROOF = Proof("2026-11-30T10:45:00Z", 541.2, 2.8, "0.5.17", (Phase("weights", 400.0), Phase("graphs", 90.5)))


@pytest.fixture
def paths(tmp_path):
    found = InstancePaths("main", str(tmp_path))
    proof_file(found, "r1").parent.mkdir(parents=True)
    return found


def test_a_proof_survives_its_file(paths):
    proof_file(paths, "r1").write_text(PROOF.to_json())
    assert read_proof(paths, "r1") == PROOF
    assert json.loads(PROOF.to_json()) == {
        "format": 1,
        "proven_at": "2026-11-30T10:45:00Z",
        "ready_after": 541.2,
        "accept_length": 2.8,
        "version": "0.5.17",
        "phases": [{"name": "weights", "seconds": 400.0}, {"name": "graphs", "seconds": 90.5}],
    }


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"format": 2, "proven_at": "x"}', '{"format": 1}', '{"format": 1, "proven_at": 3}']
)
def test_a_proof_that_cannot_be_read_is_none(paths, text):
    proof_file(paths, "r1").write_text(text)
    assert read_proof(paths, "r1") is None


def test_without_a_file_there_is_none(paths):
    assert read_proof(paths, "r1") is None and read_proof(paths, "gone") is None


def test_what_is_not_given_is_not_known():
    assert proof_at({}, NOW) == Proof("2026-11-30T10:45:00Z")
    assert proof_at({"ready_after": "", "accept_length": None, "phases": None}, NOW) == Proof("2026-11-30T10:45:00Z")


def test_the_ranks_of_a_server_on_several_hosts_survive_too(paths):
    proof = proof_at({"ranks": ["r1", "r9"]}, NOW)
    proof_file(paths, "r1").write_text(proof.to_json())
    assert read_proof(paths, "r1") == proof and proof.ranks == ("r1", "r9")


def test_numbers_may_come_as_text():
    assert proof_at({"ready_after": "12.5"}, NOW).ready_after == 12.5


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({"ready_after": -1}, "ready_after is -1"),
        ({"ready_after": True}, "ready_after is True"),
        ({"accept_length": "much"}, "accept_length is 'much'"),
        ({"accept_length": float("nan")}, "accept_length is nan"),
        ({"phases": 3}, "phases is 3"),
        ({"phases": ["x"]}, "phases has 'x'"),
        ({"ranks": "r1"}, "ranks is 'r1'"),
        ({"ranks": ["r1", None]}, "ranks is ['r1', None]"),
        ({"phases": [{"name": "x", "seconds": -2}]}, "seconds is -2"),
    ],
)
def test_values_that_mean_nothing_are_named(values, part):
    with pytest.raises(ValueError, match="give") as caught:
        proof_at(values, NOW)
    assert part in str(caught.value)
