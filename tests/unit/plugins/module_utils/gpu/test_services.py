# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import services
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.plan import Rules, plan_reclaim
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import Supervisor
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import holder, uuid

UNIT = Supervisor("systemd", "llm.service", True, "Restart=always", ("stop",))
POD = Supervisor("kubernetes", "pod x", True, "the kubelet")


def of(process):
    return UNIT if process.unit == "llm.service" else None


def outside(*others):
    plan = plan_reclaim([holder(5, unit="llm.service"), holder(6, (0, 1), unit="llm.service")], {uuid(0)}, Rules())
    return services.outside_users({5: UNIT, 6: UNIT}, others, plan, of)


def test_only_what_can_be_stopped_is():
    assert services.stoppable({5: UNIT, 6: POD}) == {5: UNIT}


def test_a_service_that_also_uses_other_gpus_is_told():
    (sentence,) = outside(holder(8, (1,), unit="llm.service"), holder(9, (1,), unit="other.service"))
    assert "llm.service" in sentence
    assert "PID 8" in sentence


def test_its_own_targets_are_not_outside():
    # PID 6 uses GPU 0, which is selected, and GPU 1, which is not.
    assert outside(holder(6, (1,), unit="llm.service"), holder(7, (1,), info=False, doubt="gone")) == []


def test_it_is_described_with_its_policy():
    assert "Restart=always" in services.describe(UNIT)
