# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs the user means: NVML index, UUID, unique start of a UUID, PCI bus id, or a MIG instance's UUID.

CUDA_VISIBLE_DEVICES plays no part: it renumbers what CUDA programs see, not the host's GPUs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Failure, GpuError, GpuReading

_PCI = re.compile(r"^(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?$")
# Fewer characters name a GPU by accident sooner than on purpose.
_SHORTEST_PREFIX = 4


@dataclass(frozen=True, order=True)
class Target:
    """A selected GPU, or one MIG instance of it (mig_uuid is then not empty)."""

    index: int
    mig_uuid: str = ""


class SelectionError(GpuError):
    """A selector names no GPU, or more than one, or one that is named already."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(Failure("selection", message, remedy, permanent=True))


def check_count(count: int, expected: Optional[int]) -> None:
    """Fail unless as many GPUs are present as the user expects."""
    if expected is not None and count != expected:
        raise GpuError(
            Failure(
                "count",
                "expected_count is %d and the driver has %d GPU%s" % (expected, count, "" if count == 1 else "s"),
                "A missing GPU has fallen off the bus or is drained: look for Xid lines in the kernel log; "
                "else correct expected_count",
                permanent=True,
            )
        )
    if count == 0:
        raise GpuError(
            Failure("count", "The driver has no GPU", "Check with nvidia-smi and lspci on this host", permanent=True)
        )


def plain_targets(selectors: Sequence[str], count: int) -> Optional[Tuple[Target, ...]]:
    """The targets, where the selectors can be resolved without opening any other GPU; else None.

    Opening a GPU may hang, and takes seconds without persistence mode, so those that nobody asked
    for are left alone where possible.  What is wrong is left to `resolve`, which can explain it.
    """
    if not selectors:
        return tuple(Target(index) for index in range(count))
    indices = [int(text) for text in (s.strip() for s in selectors) if text.isdigit() and text.isascii()]
    good = len(indices) == len(selectors) == len(set(indices)) and max(indices) < count
    return tuple(Target(index) for index in sorted(indices)) if good else None


def names_instances(selectors: Sequence[str]) -> bool:
    """Whether any of these is a MIG instance: only a full reading of a GPU tells which ones it has."""
    return any(_is_instance(selector) for selector in selectors)


def resolve(selectors: Sequence[str], devices: Sequence[GpuReading]) -> Tuple[Target, ...]:
    """The selected GPUs and MIG instances, ascending; all GPUs where nothing is selected.

    devices are all GPUs of the host, identified as far as possible, and with their MIG instances where
    `names_instances` wants them.  Raises SelectionError, which lists them.
    """
    if not selectors:
        return tuple(sorted(Target(device.index) for device in devices))
    chosen: Dict[Target, str] = {}
    for selector in selectors:
        target = _resolve_one(selector, devices)
        for other, named in chosen.items():
            if other == target or (other.index == target.index and not (other.mig_uuid and target.mig_uuid)):
                raise SelectionError(
                    "gpus names GPU %d twice, as %r and as %r" % (target.index, named, selector),
                    "Name each GPU once, and either a whole GPU or instances of it",
                )
        chosen[target] = selector
    return tuple(sorted(chosen))


def _is_instance(selector: str) -> bool:
    return selector.strip().lower().startswith("mig-")


def _resolve_one(selector: str, devices: Sequence[GpuReading]) -> Target:
    text = selector.strip().lower()
    if _is_instance(selector):
        return _resolve_instance(selector, text, devices)
    matches = _matches(text, devices)
    if len(matches) == 1:
        return Target(matches[0])
    if matches:
        problem = "%r in gpus fits the GPUs %s" % (selector, ", ".join(str(index) for index in matches))
    else:
        problem = "%r in gpus is no GPU of this host" % selector
    raise SelectionError(problem, "Name one of: %s" % _table(devices))


def _resolve_instance(selector: str, text: str, devices: Sequence[GpuReading]) -> Target:
    instances = [Target(d.index, part.uuid) for d in devices for part in d.mig_devices if part.uuid]
    exact = [target for target in instances if target.mig_uuid.lower() == text]
    matches = exact or [target for target in instances if target.mig_uuid.lower().startswith(text)]
    if len(matches) == 1 and len(text) >= len("mig-") + _SHORTEST_PREFIX:
        return matches[0]
    if len(matches) > 1:
        problem = "%r in gpus fits the MIG instances %s" % (selector, ", ".join(t.mig_uuid for t in matches))
    else:
        problem = "%r in gpus is no MIG instance of this host" % selector
    known = "; ".join("%s on GPU %d" % (target.mig_uuid, target.index) for target in instances)
    raise SelectionError(problem, "Name one of: %s" % (known or "(there are none)"))


def _matches(text: str, devices: Sequence[GpuReading]) -> List[int]:
    if text.isdigit() and text.isascii():
        return [device.index for device in devices if device.index == int(text)]
    address = _pci_address(text)
    if address is not None:
        return [d.index for d in devices if d.identity and _pci_address(d.identity.pci_bus_id.lower()) == address]
    exact = [device.index for device in devices if device.uuid and _bare(device.uuid) == _bare(text)]
    if exact or len(_bare(text)) < _SHORTEST_PREFIX:
        return exact
    return [device.index for device in devices if device.uuid and _bare(device.uuid).startswith(_bare(text))]


def _bare(uuid: str) -> str:
    uuid = uuid.lower()
    return uuid[4:] if uuid.startswith("gpu-") else uuid


def _pci_address(text: str) -> Optional[Tuple[int, int, int, int]]:
    """Domain, bus, device and function; domain and function are 0 where they are left out."""
    found = _PCI.match(text)
    if not found:
        return None
    domain, bus, device, function = found.groups()
    return int(domain or "0", 16), int(bus, 16), int(device, 16), int(function or "0")


def _table(devices: Sequence[GpuReading]) -> str:
    return "; ".join(
        "%d = %s at %s" % (device.index, device.identity.uuid, device.identity.pci_bus_id)
        if device.identity
        else "%d (not identified: %s)" % (device.index, device.failure.code if device.failure else "unknown")
        for device in devices
    )
