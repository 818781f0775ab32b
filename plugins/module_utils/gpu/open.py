# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one place where modules get their NVML session from (and tests put in another)."""

from __future__ import annotations

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.nvml_reader import GpuReader
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.nvml_session import NvmlSession
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.pynvml_guard import load_pynvml
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs


def open_session(timeout: float, procfs: ProcFs) -> NvmlSession:
    """An open NVML session; `timeout` is in seconds, for one query of one GPU.

    Raises PynvmlMissing where the Python binding is missing, GpuError where NVML cannot be used.
    """
    pynvml = load_pynvml()
    pid_max = procfs.pid_max()
    return NvmlSession(lambda: GpuReader(pynvml, pid_max), timeout)
