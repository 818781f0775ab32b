# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What counts as a free GPU."""

from __future__ import annotations


class ModuleDocFragment:
    """The options behind a verdict."""

    DOCUMENTATION = r"""
options:
  max_used_mib:
    description:
      - Up to how many MiB in use a GPU may count as free. V(256) unless O(max_used_fraction) is given.
      - Memory that the driver reserves for itself does not count, except with drivers too old to tell it apart
        (RV(gpus[].memory_source) is V(nvml_v1) or V(nvidia_smi_v1)).
      - Measured on NVIDIA H200, an idle GPU has 0 to 4 MiB in use and one that computes at least 600 MiB.
    type: int
  max_used_fraction:
    description:
      - The same as a part of the GPU's memory, from V(0) to below V(1). Excludes O(max_used_mib).
    type: float
  baseline:
    description:
      - How many MiB are in use on each GPU when it is idle, by UUID, as RV(inferops.sglang.gpu_info#module:baseline)
        records them. O(max_used_mib) or O(max_used_fraction) comes on top.
      - For GPUs that are never empty, such as those with a display or those whose memory the operating system uses.
      - Must tell of each selected GPU.
    type: dict
    default: {}
  ignore_recovery_action:
    description:
      - Whether a GPU may be free although the driver wants it reset or its host rebooted
        (RV(gpus[].recovery_action)). Otherwise it is V(unknown) with the reason V(recovery_action).
    type: bool
    default: false
"""
