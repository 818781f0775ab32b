# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether GPUs are well after a reset."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import reset_health
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Failure, GpuReading, Verdict
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_traits import GpuTraits
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import identity, reading

FREE = Verdict("free", "", "0 MiB used.")
BUSY = Verdict("busy", "unattributed", "9 MiB used.")


def test_count():
    assert reset_health.of_count(8, 8) == []
    assert "8 GPUs before and has 7 now" in reset_health.of_count(8, 7)[0]


def test_identity():
    before = [reading(0), reading(1), GpuReading(2)]
    assert reset_health.of_identity(before, [reading(0), reading(1), reading(2)]) == []
    lost = GpuReading(0, failure=Failure("lost", "It is gone", "Reboot"))
    assert "GPU 0" in reset_health.of_identity(before, [lost])[0]
    assert "is now" in reset_health.of_identity(before, [reading(0, identity=identity(1))])[0]


@pytest.mark.parametrize(
    ("now", "verdict", "before", "words"),
    [
        ("none", FREE, "reset", ""),
        ("none", BUSY, "reset", "unattributed"),
        ("reset", FREE, "reset", "needs to be reset"),
        ("node_reboot", FREE, "reset", "rebooted"),
        ("unknown", FREE, "reset", "does not say any more"),
        # It never said.
        ("unknown", FREE, "unknown", ""),
        ("not_supported", FREE, "not_supported", ""),
    ],
)
def test_readings(now, verdict, before, words):
    found = reset_health.of_readings([reading(0, recovery_action=now)], [verdict], [reading(0, recovery_action=before)])
    assert (words in found[0] and len(found) == 1) if words else found == []


NO_FIGURES = Failure("not_supported", "No figures", "Nothing", True)


@pytest.mark.parametrize(
    ("changes", "verdict", "before", "well"),
    [
        ({}, Verdict("busy", "holder", "9 MiB used, by PID 5."), {}, True),
        ({"addressing_mode": "ats"}, BUSY, {}, True),
        ({"addressing_mode": "hmm"}, BUSY, {}, False),
        ({}, Verdict("unknown", "not_supported", "x"), {"failure": NO_FIGURES}, True),
        ({}, Verdict("unknown", "not_supported", "x"), {}, False),
        ({}, Verdict("unknown", "hung", "x"), {"failure": NO_FIGURES}, False),
    ],
)
def test_a_gpu_that_is_not_free_may_be_well(changes, verdict, before, well):
    found = reset_health.of_readings([reading(0, **changes)], [verdict], [reading(0, **before)])
    assert (found == []) is well


@pytest.mark.parametrize(
    ("before", "now", "well"),
    [
        ("completed", "completed", True),
        ("not_supported", "not_supported", True),
        ("completed", "in_progress", False),
        ("in_progress", "in_progress", False),
        ("completed", "not_started", False),
        ("completed", "failed", False),
        ("completed", "unknown", False),
        ("unknown", "unknown", True),
    ],
)
def test_fabric(before, now, well):
    found = reset_health.of_fabric({0: GpuTraits(0, fabric=before)}, [GpuTraits(0, fabric=now)])
    assert (found == {}) is well


def test_reboot():
    readings = [reading(0), reading(1, recovery_action="node_reboot")]
    assert reset_health.wants_reboot(readings) == [readings[1].uuid]
