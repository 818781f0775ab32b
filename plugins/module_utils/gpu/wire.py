# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How readings travel from the disposable child to its parent: one JSON object a line."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Dict, Optional, Type, TypeVar

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import (
    Failure,
    GpuIdentity,
    GpuReading,
    ListedProcess,
    MemoryReading,
    MigDevice,
    SystemInfo,
)

T = TypeVar("T")


def pack(value: Dict[str, Any]) -> bytes:
    """One message as a line."""
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def unpack(line: bytes) -> Dict[str, Any]:
    """The message in a line.  Raises ValueError where it is none."""
    value = json.loads(line.decode())
    if not isinstance(value, dict):
        raise ValueError("a message must be an object")
    return value


def reading_to_dict(reading: GpuReading) -> Dict[str, Any]:
    """A reading as JSON can carry it."""
    return asdict(reading)


def reading_from_dict(raw: Dict[str, Any]) -> GpuReading:
    """The reading that `reading_to_dict` took apart."""
    fields = dict(raw)
    fields["identity"] = _optional(GpuIdentity, raw["identity"])
    fields["memory"] = _optional(MemoryReading, raw["memory"])
    fields["failure"] = _optional(Failure, raw["failure"])
    fields["processes"] = tuple(ListedProcess(**process) for process in raw["processes"])
    fields["mig_devices"] = tuple(_mig_device(device) for device in raw["mig_devices"])
    fields["instance"] = None if raw["instance"] is None else _mig_device(raw["instance"])
    return GpuReading(**fields)


def _mig_device(raw: Dict[str, Any]) -> MigDevice:
    return MigDevice(**dict(raw, memory=_optional(MemoryReading, raw["memory"])))


def system_from_dict(raw: Dict[str, Any]) -> SystemInfo:
    """The SystemInfo behind its fields."""
    return SystemInfo(**raw)


def failure_from_dict(raw: Dict[str, Any]) -> Failure:
    """The Failure behind its fields."""
    return Failure(**raw)


def _optional(kind: Type[T], raw: Optional[Dict[str, Any]]) -> Optional[T]:
    return None if raw is None else kind(**raw)
