# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs a container is given, and how they are numbered inside."""

from __future__ import annotations

from typing import Dict, List, Mapping, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.settings import (
    ALL,
    CDI,
    GPUS,
    ContainerSettings,
)

CDI_KIND = "nvidia.com/gpu"


def gpu_words(settings: ContainerSettings, gpus: Sequence[str]) -> List[str]:
    """The engine's options for GPUs, by UUID; all of the host where no UUIDs are known."""
    names = list(gpus) if settings.access in (GPUS, CDI) else []
    if settings.access == GPUS or (settings.access == ALL and settings.engine == "docker"):
        # The value is a line of comma-separated fields, and the list of devices is one of them.
        return ["--gpus", '"device=%s"' % ",".join(names) if names else "all"]
    if settings.access in (CDI, ALL):
        return [word for name in names or ["all"] for word in ("--device", f"{CDI_KIND}={name}")]
    return []


def container_visible_devices(
    settings: ContainerSettings, rank_uuids: Sequence[str], pci_bus_ids: Mapping[str, str]
) -> Dict[str, str]:
    """CUDA's variables for inside a container that is given only the server's GPUs.

    rank_uuids: the GPUs of the server in the order of its ranks; pci_bus_ids: the PCI address of each, by
    UUID.  Inside, the numbers count those GPUs alone, in the order of the PCI bus.  {} where the container
    sees the GPUs of the host as the host does, or where they are not known.
    """
    if settings.access not in (GPUS, CDI) or not rank_uuids:
        return {}
    order = sorted(set(rank_uuids), key=lambda uuid: pci_bus_ids[uuid].lower())
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(str(order.index(uuid)) for uuid in rank_uuids),
    }
