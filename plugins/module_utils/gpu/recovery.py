# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the driver wants done to a GPU before it is sound again (NVML field 230), in words.

Source: NVML_FI_DEV_GET_GPU_RECOVERY_ACTION in nvml.h, and nvidia-smi(1).
"""

from __future__ import annotations

from typing import Iterable, List

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import GpuReading

REASON = "recovery_action"
RESET = "reset"

# The action, and what the GPU needs.
_NEEDS = {
    RESET: "needs to be reset (end its processes, then nvidia-smi --gpu-reset)",
    "node_reboot": "needs its host to be rebooted",
    "drain_p2p": "needs its peer-to-peer users to be ended and peer-to-peer use to be drained",
    "drain_and_reset": "needs to be drained of new work and then reset",
    "recover_imex_domain": "needs its IMEX domain to be recovered",
    "bus_reset": "needs a reset of its bus",
    "system_reboot": "needs its system to be rebooted",
}


def wanted(reading: GpuReading) -> bool:
    """Whether the driver wants anything done."""
    return reading.recovery_action in _NEEDS


def beyond_processes(readings: Iterable[GpuReading]) -> List[GpuReading]:
    """The GPUs that ending processes cannot bring any closer to being sound."""
    return [r for r in readings if wanted(r) and r.recovery_action != RESET]


def need_in_words(action: str) -> str:
    """What a GPU with this recovery action needs, as the rest of a sentence."""
    return _NEEDS[action]


def sentence(reading: GpuReading) -> str:
    """What the driver says about a GPU, and that freeing it is not enough."""
    return "The driver says that it %s (recovery action %s): freeing it does not repair it." % (
        _NEEDS[reading.recovery_action],
        reading.recovery_action,
    )


def warnings(readings: Iterable[GpuReading]) -> List[str]:
    """A warning for each GPU that is not sound."""
    return ["GPU %d (%s): %s" % (r.index, r.uuid, sentence(r)) for r in readings if wanted(r)]
