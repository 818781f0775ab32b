# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs of a server on this host, or in a container that is given some of them."""

from __future__ import annotations

from typing import Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import GpuReading
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import failed
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.gpu_assignment import (
    ORDER,
    PCI_ORDER,
    VISIBLE,
    Assignment,
    assign,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.gpus import container_visible_devices
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.settings import (
    CDI,
    GPUS,
    ContainerSettings,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.request import (
    GpusUnknown,
    Host,
    Request,
)

_NAME = "gpus"
_PLACING = ("--base-gpu-id", "--gpu-id-step")


def assign_gpus(request: Request, host: Host) -> Assignment:
    """Work out the GPUs; what cannot be is in the checks."""
    settings = request.settings
    if any(getattr(settings, name) < 1 for name in ("tp_size", "pp_size", "dp_size")):
        return Assignment()  # reported already
    try:
        devices = host.list_gpus()
    except GpusUnknown as error:
        return Assignment(checks=[failed(_NAME, str(error))])
    container = request.container
    if container is None or container.access not in (GPUS, CDI):
        return assign(settings, request.gpus, request.environment, devices)
    return _assign_in_container(request, container, devices)


def _assign_in_container(request: Request, container: ContainerSettings, devices: Sequence[GpuReading]) -> Assignment:
    """Such a container sees only the server's GPUs and numbers them anew."""
    checks = [
        failed(
            _NAME,
            f"{name} in environment, and the container sees only the server's GPUs, with other numbers: remove it, and "
            "name the GPUs in gpus.",
        )
        for name in (VISIBLE, ORDER)
        if name in request.environment
    ]
    checks += [
        failed(
            _NAME,
            f"{name} in extra_args counts GPUs of the host, and the container sees only the server's: remove it, and "
            "name the GPUs in gpus.",
        )
        for name in _PLACING
        if request.settings.extra_value(name) is not None
    ]
    if checks:
        return Assignment(checks=checks)
    # In the order of the PCI bus, as they are numbered inside.
    found = assign(request.settings, request.gpus, {ORDER: PCI_ORDER}, devices)
    addresses = {
        device.uuid: device.identity.pci_bus_id for device in devices if device.identity and device.uuid in found.uuids
    }
    known = all(uuid in addresses for uuid in found.uuids)
    visible = container_visible_devices(container, found.uuids, addresses) if known else {}
    return Assignment(found.uuids, visible, found.checks)
