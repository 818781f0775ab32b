# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs a server will take, worked out before it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import GpuError, GpuReading
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.selection import resolve
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import Check, failed, ok, warning
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import Settings

_NAME = "gpus"
VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
PCI_ORDER = "PCI_BUS_ID"


def cuda_ordinals(settings: Settings) -> List[int]:
    """The CUDA device numbers that the server's processes on this host take, in ascending order.

    They count within CUDA_VISIBLE_DEVICES.  Without attention-DP every data-parallel replica has GPUs
    of its own; of several nodes the first one's share is meant.  Raises ValueError for sizes that do
    not divide.
    """
    base = _whole(settings, "--base-gpu-id", 0)
    step = _whole(settings, "--gpu-id-step", 1)
    nodes = _whole(settings, "--nnodes", 1)
    if base < 0 or step < 1 or nodes < 1:
        raise ValueError("--base-gpu-id must be at least 0, --gpu-id-step and --nnodes at least 1")
    if (settings.tp_size * settings.pp_size) % nodes:
        raise ValueError(
            f"tp_size {settings.tp_size} times pp_size {settings.pp_size} cannot be split over {nodes} nodes"
        )
    pp_here = max(settings.pp_size // nodes, 1)
    tp_here = settings.tp_size // max(nodes // settings.pp_size, 1)
    ordinals: Set[int] = set()
    for replica in range(_replicas(settings)):
        first = base + replica * settings.tp_size * settings.pp_size * step
        for stage in range(pp_here):
            # As SGLang counts: the step spreads the ranks of a stage, not the stages.
            ordinals.update(first + stage * tp_here + rank * step for rank in range(tp_here))
    if len(ordinals) < _replicas(settings) * pp_here * tp_here:
        raise ValueError(f"--gpu-id-step {step} with pp_size {settings.pp_size} puts two ranks on one GPU")
    return sorted(ordinals)


def _whole(settings: Settings, option: str, default: int) -> int:
    value = settings.extra_value(option)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{option} in extra_args needs a whole number")
    return value


def attention_dp(settings: Settings) -> bool:
    """Whether the data-parallel replicas share their GPUs and split the attention."""
    size = settings.extra_value("--attn-dp-size", "--attention-dp-size")
    return settings.extra_value("--enable-dp-attention") is not None or (isinstance(size, int) and size > 1)


def _replicas(settings: Settings) -> int:
    return 1 if attention_dp(settings) else settings.dp_size


@dataclass(frozen=True)
class Assignment:
    """The GPUs of one server.

    uuids: those it will use, in the order of its ranks; environment: the variables that make it so.
    """

    uuids: List[str] = field(default_factory=list)
    environment: Dict[str, str] = field(default_factory=dict)
    checks: List[Check] = field(default_factory=list)


def assign(
    settings: Settings, selectors: Sequence[str], environment: Mapping[str, str], devices: Sequence[GpuReading]
) -> Assignment:
    """Work out the GPUs of a server; devices are all GPUs of the host, in the order of NVML."""
    visible_value = environment.get(VISIBLE)
    if selectors and visible_value is not None:
        return _refused(f"gpus and {VISIBLE} in environment say the same twice: remove one of them.")
    try:
        ordinals = cuda_ordinals(settings)
        visible = _visible(selectors, visible_value, devices)
    except ValueError as error:
        return _refused(f"{error}.")
    except GpuError as error:
        return _refused(str(error))
    added: Dict[str, str] = {}
    if selectors:
        # Numbers rather than UUIDs: some of SGLang's versions read the variable as numbers.  They are
        # NVML's only in the order of the PCI bus.
        added = {ORDER: PCI_ORDER, VISIBLE: ",".join(str(device.index) for device in visible)}
    problem = _shortage(settings, ordinals, visible, selectors, visible_value)
    if problem:
        return Assignment(environment=added, checks=[failed(_NAME, problem)])
    chosen = [visible[ordinal] for ordinal in ordinals]
    found = [
        failed(_NAME, f"GPU {d.index} cannot be identified: {d.failure.text if d.failure else 'it gave no reason.'}")
        for d in chosen
        if d.identity is None
    ]
    found += _check_order(selectors, environment, devices)
    uuids = [device.uuid for device in chosen if device.uuid]
    return Assignment(uuids, added, found or [ok(_NAME, f"GPUs: {', '.join(str(d.index) for d in chosen)}.")])


def _refused(message: str) -> Assignment:
    return Assignment(checks=[failed(_NAME, message)])


def _visible(selectors: Sequence[str], value: Optional[str], devices: Sequence[GpuReading]) -> List[GpuReading]:
    """The GPUs that the server will see, in its own order."""
    by_index = {device.index: device for device in devices}
    if value is None:
        return [by_index[target.index] for target in resolve(list(selectors), devices)]
    names = [name.strip() for name in value.split(",") if name.strip()]
    chosen: List[GpuReading] = []
    for name in names:
        try:
            device = by_index[resolve([name], devices)[0].index]
        except GpuError as error:
            raise ValueError(f"{VISIBLE}={value} in environment: {str(error).rstrip('.')}") from None
        if device in chosen:
            raise ValueError(f"{VISIBLE}={value} in environment names GPU {device.index} twice")
        chosen.append(device)
    return chosen


def _shortage(
    settings: Settings,
    ordinals: Sequence[int],
    visible: Sequence[Any],
    selectors: Sequence[str],
    visible_value: Optional[str],
) -> str:
    if ordinals[-1] < len(visible):
        return ""
    if selectors:
        where = f"gpus selects {len(visible)}"
    elif visible_value is not None:
        where = f"{VISIBLE}={visible_value} in environment leaves {len(visible)}"
    else:
        where = f"the host has {len(visible)}"
    sizes = f"tp_size {settings.tp_size}, pp_size {settings.pp_size}, dp_size {settings.dp_size}"
    reach = ""
    if ordinals[-1] + 1 != len(ordinals):
        reach = f", up to number {ordinals[-1]} counted from 0 (--base-gpu-id, --gpu-id-step)"
    return f"{sizes} need {len(ordinals)} GPUs{reach}, and {where}."


def _check_order(
    selectors: Sequence[str], environment: Mapping[str, str], devices: Sequence[GpuReading]
) -> List[Check]:
    """CUDA puts the fastest GPU first unless told otherwise, NVML never does."""
    if selectors or environment.get(ORDER) == PCI_ORDER:
        return []
    names = sorted({device.identity.name for device in devices if device.identity})
    if len(names) < 2:
        return []
    return [
        warning(
            _NAME,
            f"The host has different GPUs ({', '.join(names)}) and CUDA may number them differently: "
            f"name them in gpus, or set {ORDER}={PCI_ORDER} in environment.",
        )
    ]
