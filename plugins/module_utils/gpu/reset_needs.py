# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a GPU is to be reset, and if not, what it needs instead.  Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import recovery
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import UNKNOWN, GpuReading

NEEDED = "needed"
ALWAYS = "always"

# What is to be done to a GPU.
RESET = "reset"
BUS_RESET = "bus_reset"
LEAVE = "leave"
REBOOT = "reboot"
DRAIN = "drain"
IMEX = "imex"
UNDECIDED = "undecided"

RESETS = frozenset([RESET, BUS_RESET])

_REBOOTS = frozenset(["node_reboot", "system_reboot"])
_NO_ANSWER = frozenset([UNKNOWN, "not_supported"])
# Failures of a reading that say themselves that a reset is what is missing.
_ASKS_FOR_RESET = frozenset(["reset_required"])


@dataclass(frozen=True)
class Need:
    """What is to be done to a GPU, and why, as a part of a sentence."""

    action: str
    why: str


def need_of(reading: GpuReading, held: bool, when: str) -> Need:
    """What a GPU needs.  held: somebody other than the daemons that are stopped anyway uses it or has it open."""
    wish = reading.recovery_action
    if wish in _REBOOTS:
        return Need(REBOOT, "the driver says that it %s" % recovery.need_in_words(wish))
    if reading.failure is not None and reading.failure.code == "lost":
        return Need(REBOOT, "it has fallen off the bus, where no reset reaches it: power-cycle the host")
    if wish == "recover_imex_domain":
        return Need(IMEX, "the driver says that it %s, which no reset of a GPU does" % recovery.need_in_words(wish))
    if wish == "bus_reset":
        return Need(BUS_RESET, "the driver says that it needs a reset of its bus")
    if wish == "drain_and_reset" and held:
        return Need(DRAIN, "the driver wants it drained and then reset, and it is still in use")
    if when == ALWAYS:
        return Need(RESET, "as asked (when is always)")
    if wish in (recovery.RESET, "drain_and_reset"):
        return Need(RESET, "the driver says that it needs to be reset (recovery action %s)" % wish)
    if wish == "drain_p2p":
        return Need(DRAIN, "the driver says that it %s" % recovery.need_in_words(wish))
    failure = reading.failure
    if failure is not None and failure.code in _ASKS_FOR_RESET:
        return Need(RESET, "the driver answers that it needs a reset before it can be used")
    if wish in _NO_ANSWER:
        return Need(UNDECIDED, "this driver does not say whether it needs a reset (recovery action %s)" % wish)
    if failure is not None:
        return Need(UNDECIDED, "the driver asks for no reset, and the GPU cannot be read: %s" % failure.message)
    return Need(LEAVE, "the driver asks for nothing")
