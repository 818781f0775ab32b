# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs are reset together."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_peers import Links
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_traits import GpuTraits

BUSES = {index: "00000000:%02x:00.0" % (index + 1) for index in range(4)}


def links(architecture, *ends, runs=False, **changes):
    """Four GPUs of a generation; ends: the indices that each is linked to, or "switch"."""
    traits = {}
    for index, end in enumerate(ends):
        switched = end == "switch"
        peers = () if switched else tuple(BUSES[other] for other in end)
        fields = {"links_read": True, **changes.get("g%d" % index, {})}
        traits[index] = GpuTraits(index, architecture, peers, switched, **fields)
    return Links(traits, {index: BUSES[index] for index in traits}, runs)


PAIRS = ((1,), (0,), (3,), (2,))
CHAIN = ((1,), (0, 2), (1,), ())
SWITCHED = ("switch",) * 4


@pytest.mark.parametrize(
    ("found", "together"),
    [
        (links("volta", *PAIRS), {0, 1}),
        (links("volta", *CHAIN), {0, 1, 2}),
        (links("volta", *SWITCHED, runs=True), {0, 1, 2, 3}),
        (links("unknown", *PAIRS), {0, 1}),
        (links("turing", (), (), (), ()), {0}),
        # From Ampere on, links to each other no longer matter.
        (links("ampere", *PAIRS), {0}),
        (links("ampere", *SWITCHED), {0, 1, 2, 3}),
        (links("ampere", *SWITCHED, runs=True), {0}),
        (links("hopper", *SWITCHED), {0}),
        (links("blackwell", *SWITCHED), {0}),
        (links("newer", *SWITCHED), {0}),
        # One end of a link is enough.
        (links("volta", (), (0,), (), ()), {0, 1}),
    ],
)
def test_together(found, together):
    assert found.together_with([0]) == together


@pytest.mark.parametrize(
    ("found", "unknown"),
    [
        (links("volta", *PAIRS, g0={"links_read": False}), {0}),
        (links("ampere", (), (), (), (), g0={"links_read": False}), {0}),
        (links("ampere", (), (), (), (), g0={"links_read": False}, runs=True), set()),
        (links("hopper", (), (), (), (), g0={"links_read": False}), set()),
        (links("ada", (), (), (), (), g0={"links_read": False}), set()),
        # Its own links are down, and others of the host are up.
        (links("volta", (), (2,), (1,), (), g0={"down": 6}), {0}),
        # No bridge is plugged in anywhere.
        (links("volta", (), (), (), (), g0={"down": 6}, g1={"down": 6}), set()),
    ],
)
def test_unknown(found, unknown):
    assert found.unknown_of([0]) == unknown


def test_behind_switches():
    assert links("ampere", "switch", "switch", (), ()).behind_switches() == {0, 1}
