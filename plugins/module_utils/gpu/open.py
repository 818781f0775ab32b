# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one place where modules get their view of the GPUs from (and tests put in another)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Union

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Failure, GpuError
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.pynvml_guard import (
    DISTRIBUTION,
    PynvmlMissing,
    load_pynvml,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs

if TYPE_CHECKING:
    from ansible_collections.inferops.sglang.plugins.module_utils.gpu.nvml_session import NvmlSession
    from ansible_collections.inferops.sglang.plugins.module_utils.gpu.smi_session import SmiSession

    Session = Union[NvmlSession, SmiSession]

AUTO = "auto"
NVML = "nvml"
NVIDIA_SMI = "nvidia_smi"
READERS = (AUTO, NVML, NVIDIA_SMI)


def open_session(timeout: float, procfs: ProcFs, reader: str = AUTO) -> Session:
    """An open session; `timeout` is in seconds, for one query of one GPU.

    reader auto: NVML through Python, and where its binding is missing or unfit, nvidia-smi.  Raises
    PynvmlMissing where the binding is missing (and so is nvidia-smi), GpuError where the driver cannot
    be asked.
    """
    if reader == NVIDIA_SMI:
        return _open_nvidia_smi(timeout, procfs)
    try:
        pynvml = load_pynvml()
    except (PynvmlMissing, GpuError) as missing:
        if reader == NVML:
            raise
        try:
            return _open_nvidia_smi(timeout, procfs)
        except GpuError as exc:
            if exc.failure.code != "nvidia_smi_missing":
                raise
        if isinstance(missing, GpuError):
            raise
        raise GpuError(
            Failure(
                "reader_missing",
                "There is neither the Python module pynvml (%s) nor nvidia-smi on this host" % DISTRIBUTION,
                "Install %s for the Python that Ansible uses there, or the driver with nvidia-smi" % DISTRIBUTION,
                permanent=True,
            )
        ) from missing
    # Each reader costs its share of the module's start, so only the one that is used is imported.
    from ansible_collections.inferops.sglang.plugins.module_utils.gpu.nvml_reader import GpuReader
    from ansible_collections.inferops.sglang.plugins.module_utils.gpu.nvml_session import NvmlSession

    pid_max = procfs.pid_max()
    return NvmlSession(lambda: GpuReader(pynvml, pid_max), timeout)


def _open_nvidia_smi(timeout: float, procfs: ProcFs) -> SmiSession:
    from ansible_collections.inferops.sglang.plugins.module_utils.gpu.smi_runner import NvidiaSmi, find_nvidia_smi
    from ansible_collections.inferops.sglang.plugins.module_utils.gpu.smi_session import SmiSession

    return SmiSession(NvidiaSmi(find_nvidia_smi()), timeout, procfs.pid_max())
