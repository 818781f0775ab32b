# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs as CUDA shows them to a process, and simulated memory on them."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, List, Optional


class OutOfMemoryError(RuntimeError):
    """CUDA's memory is exhausted; reported under PyTorch's name."""


OutOfMemoryError.__module__ = "torch"


def _load_fakegpu() -> ModuleType:
    """The simulator's Python side: installed beside this package, or its file in the source tree."""
    try:
        import fakegpu

        return fakegpu
    except ImportError:
        pass
    for folder in (Path(__file__).parents[2], Path(__file__).parents[3]):
        file = folder / "fakegpu.py"
        if file.is_file():
            spec = importlib.util.spec_from_file_location("fakegpu", str(file))
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules["fakegpu"] = module
            spec.loader.exec_module(module)
            return module
    raise ImportError("fakegpu.py is not beside the stand-in sglang package; use tests/simulator/install.py")


fakegpu = _load_fakegpu()


def visible_gpus(environment: Optional[Dict[str, str]] = None) -> List[int]:
    """NVML indices in the order in which CUDA numbers the devices: CUDA_VISIBLE_DEVICES selects and renumbers.

    As in CUDA, the first entry that names no device hides itself and all that follow. Without a driver: none.
    """
    uuids = _uuids()
    wanted = (os.environ if environment is None else environment).get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return list(range(len(uuids)))
    visible: List[int] = []
    for entry in wanted.split(","):
        entry = entry.strip()
        if entry.isdigit() and int(entry) < len(uuids):
            index = int(entry)
        else:
            matches = [i for i, uuid in enumerate(uuids) if entry.startswith("GPU-") and uuid.startswith(entry)]
            if len(matches) != 1:
                break
            index = matches[0]
        if index in visible:
            return []
        visible.append(index)
    return visible


def _uuids() -> List[str]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return [pynvml.nvmlDeviceGetUUID(handle) for handle in handles]
    finally:
        pynvml.nvmlShutdown()


class Device:
    """One GPU of one scheduler: what is free on it, and what this process takes."""

    def __init__(self, gpu_id: int) -> None:
        """:param gpu_id: CUDA's number. :raises RuntimeError: when CUDA shows no such device."""
        visible = visible_gpus()
        if gpu_id >= len(visible):
            raise RuntimeError("CUDA error: invalid device ordinal")
        self.index = visible[gpu_id]
        self._held: List[Any] = []
        self._nodes = fakegpu.open_nodes(visible)  # CUDA opens every device that it shows

    def memory(self) -> tuple[int, int]:
        """Free and total MiB."""
        import pynvml

        pynvml.nvmlInit()
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(self.index)
            info = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
            return info.free >> 20, info.total >> 20
        finally:
            pynvml.nvmlShutdown()

    def allocate(self, mib: int, name: str) -> None:
        """Take memory. :raises OutOfMemoryError: when so much is not free."""
        free, total = self.memory()
        if mib > free:
            raise OutOfMemoryError(
                "CUDA out of memory. Tried to allocate {:.2f} GiB. GPU {} has a total capacity of {:.2f} GiB of which "
                "{:.2f} GiB is free.".format(mib / 1024, self.index, total / 1024, free / 1024)
            )
        self._held.append(fakegpu.allocate(self.index, mib, name=name))
