# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether GPUs are well after a reset, as far as it can be told without a workload.  Pure."""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import recovery
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import FREE, UNKNOWN, GpuReading, Verdict
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_traits import GpuTraits

# On its way to the fabric: asked again for a while.
_PENDING = frozenset(["not_started", "in_progress"])


def of_count(before: int, now: int) -> List[str]:
    """A GPU that did not come back."""
    if before == now:
        return []
    return ["the driver had %d GPUs before and has %d now: look for Xid 79 in the kernel log" % (before, now)]


def of_identity(before: Sequence[GpuReading], now: Sequence[GpuReading]) -> List[str]:
    """GPUs that are others than before, or do not say who they are."""
    old = {reading.index: reading for reading in before}
    found = []
    for reading in now:
        known = old.get(reading.index)
        if known is None or known.identity is None:
            continue
        if reading.identity is None:
            why = reading.failure.text if reading.failure is not None else "It has not been read."
            found.append("GPU %d (%s) cannot be opened: %s" % (reading.index, known.uuid, why.rstrip(".")))
        elif (reading.uuid, reading.identity.pci_bus_id) != (known.uuid, known.identity.pci_bus_id):
            found.append("GPU %d was %s and is now %s" % (reading.index, known.uuid, reading.uuid))
    return found


def of_readings(readings: Sequence[GpuReading], verdicts: Sequence[Verdict], before: Sequence[GpuReading]) -> List[str]:
    """GPUs that are not free, or for which the driver still wants something, or says no more whether it does."""
    old = {reading.index: reading for reading in before}
    found = []
    for reading, verdict in zip(readings, verdicts):
        name = "GPU %d (%s)" % (reading.index, reading.uuid or "not identified")
        if recovery.wanted(reading):
            found.append("%s: the driver says that it %s" % (name, recovery.need_in_words(reading.recovery_action)))
        elif reading.recovery_action == UNKNOWN and not _was_silent(old.get(reading.index)):
            found.append("%s does not say any more whether it needs anything (its recovery action is unknown)" % name)
        elif verdict.state != FREE and not _is_explained(reading, verdict, old.get(reading.index)):
            found.append("%s is %s (%s): %s" % (name, verdict.state, verdict.reason, verdict.message.rstrip(".")))
    return found


def _was_silent(before: Optional[GpuReading]) -> bool:
    """Whether a GPU did not say before either what it needs."""
    return before is not None and before.recovery_action == UNKNOWN


def _is_explained(reading: GpuReading, verdict: Verdict, before: Optional[GpuReading]) -> bool:
    """Whether a GPU may be well although it is not free."""
    if verdict.reason == "holder":  # somebody, or a daemon that was started again, has taken it: it works
        return True
    if reading.addressing_mode == "ats" and verdict.reason in ("memory", "unattributed"):
        return True  # the operating system uses its memory as its own
    failure = before.failure if before is not None else None
    # A GPU that never has figures of its memory.
    return verdict.reason == "not_supported" and failure is not None and failure.code == "not_supported"


def of_fabric(before: Mapping[int, GpuTraits], now: Sequence[GpuTraits]) -> Dict[int, str]:
    """By index, what is wrong with a GPU's place in the NVLink fabric; empty where it has none or is in it."""
    found = {}
    for traits in now:
        old = before.get(traits.index)
        was_in = old is not None and old.fabric not in ("not_supported", UNKNOWN)
        if traits.fabric in _PENDING or traits.fabric == "failed" or (traits.fabric == UNKNOWN and was_in):
            found[traits.index] = (
                "GPU %d is not in the NVLink fabric (its state is %s): see that the fabric manager runs"
                % (traits.index, traits.fabric)
            )
    return found


def wants_reboot(readings: Sequence[GpuReading]) -> List[str]:
    """The UUIDs of the GPUs for which the driver wants the host rebooted."""
    return [r.uuid for r in readings if r.recovery_action in ("node_reboot", "system_reboot")]
