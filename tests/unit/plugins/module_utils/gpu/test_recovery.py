# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import recovery
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.nvml_reader import RECOVERY_ACTIONS
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import reading


@pytest.mark.parametrize("action", sorted(set(RECOVERY_ACTIONS.values()) - {"none"}))
def test_every_action_of_the_driver_has_words(action):
    gpu = reading(3, recovery_action=action)
    assert recovery.wanted(gpu)
    (warning,) = recovery.warnings([gpu, reading(4)])
    assert "GPU 3" in warning
    assert action in warning


def test_a_reset_comes_after_its_processes_are_ended():
    gpus = [reading(0, recovery_action="reset"), reading(1, recovery_action="node_reboot"), reading(2)]
    assert [gpu.index for gpu in recovery.beyond_processes(gpus)] == [1]


@pytest.mark.parametrize("action", ["none", "unknown", "not_supported"])
def test_nothing_is_wanted(action):
    assert not recovery.wanted(reading(0, recovery_action=action))
