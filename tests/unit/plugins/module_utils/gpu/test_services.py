# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import services
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.plan import Filters, Rules, plan_reclaim
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import Supervisor
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import holder, uuid

UNIT = Supervisor("systemd", "llm.service", True, "Restart=always", ("stop",))
POD = Supervisor("kubernetes", "pod x", True, "the kubelet")


def of(process):
    return UNIT if process.unit == "llm.service" else None


def bystanders(*others, also=(), users=()):
    holders = [holder(5, unit="llm.service"), holder(6, (0, 1), unit="llm.service"), *also]
    plan = plan_reclaim(holders, frozenset([uuid(0)]), Rules(Filters(uids=frozenset(users))))
    return services.bystanders({5: UNIT, 6: UNIT}, others, plan, of)


def test_only_what_can_be_stopped_is():
    assert services.stoppable({5: UNIT, 6: POD}) == {5: UNIT}


def test_a_service_that_also_uses_other_gpus_is_told():
    (sentence,) = bystanders(holder(8, (1,), unit="llm.service"), holder(9, (1,), unit="other.service"))
    assert "llm.service" in sentence
    assert "PID 8" in sentence
    assert "not selected" in sentence


@pytest.mark.parametrize(
    ("changes", "word"),
    [({"protected_by": "protect_users (alice)"}, "protect_users"), ({"uid": 7, "user": "alice"}, "not in users")],
)
def test_a_service_that_also_runs_somebody_who_stays_is_told(changes, word):
    (sentence,) = bystanders(also=[holder(8, unit="llm.service", **changes)], users=[1000])
    assert "PID 8" in sentence
    assert word in sentence
    assert bystanders(also=[holder(8, unit="other.service", **changes)], users=[1000]) == []


def test_its_own_targets_are_no_bystanders():
    # PID 6 uses GPU 0, which is selected, and GPU 1, which is not.
    assert bystanders(holder(6, (1,), unit="llm.service"), holder(7, (1,), info=False, doubt="gone")) == []


def test_it_is_described_with_its_policy():
    assert "Restart=always" in services.describe(UNIT)
