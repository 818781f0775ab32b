# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds NVIDIA's Python binding for NVML, and refuses what only carries its name.

Several distributions install a module `pynvml`.  The right one is nvidia-ml-py; nvidia-ml-py3 and old
releases have outdated structures, which shift PIDs and memory figures without any error.
"""

from __future__ import annotations

import inspect
import traceback
from importlib import import_module
from typing import Any, Callable

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Failure, GpuError

DISTRIBUTION = "nvidia-ml-py"


class PynvmlMissing(Exception):
    """There is no module `pynvml`; trace is the traceback of the attempt."""

    def __init__(self, trace: str) -> None:
        super().__init__("the Python module pynvml is missing")
        self.trace = trace


def load_pynvml(importer: Callable[[str], Any] = import_module) -> Any:
    """The imported binding.  Raises PynvmlMissing, or GpuError where it is an unfit one."""
    try:
        pynvml = importer("pynvml")
    except ImportError:
        raise PynvmlMissing(traceback.format_exc()) from None
    lack = _lack_of(pynvml)
    if lack:
        raise GpuError(
            Failure(
                "unfit_pynvml",
                "The module pynvml at %s %s, so it is not a current %s"
                % (getattr(pynvml, "__file__", "an unknown place"), lack, DISTRIBUTION),
                "Uninstall pynvml, nvidia-ml-py3 and py3nvml from this Python and install %s" % DISTRIBUTION,
                permanent=True,
            )
        )
    return pynvml


def _lack_of(pynvml: Any) -> str:
    """What the module lacks, in words, or ""."""
    memory_info = getattr(pynvml, "nvmlDeviceGetMemoryInfo", None)
    if memory_info is None:
        return "has no nvmlDeviceGetMemoryInfo"
    try:
        parameters = inspect.signature(memory_info).parameters
    except (TypeError, ValueError):
        return "has an nvmlDeviceGetMemoryInfo without a signature"
    if "version" not in parameters:
        return "cannot tell used from reserved memory (nvmlDeviceGetMemoryInfo takes no version)"
    return ""
