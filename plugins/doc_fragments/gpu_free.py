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
      - Up to how many MiB in use a GPU may count as free.
      - Memory that the driver reserves for itself does not count, except with drivers too old to tell it apart
        (RV(gpus[].memory_source) is V(nvml_v1)).
      - Measured on NVIDIA H200, an idle GPU has 0 to 4 MiB in use and one that computes at least 600 MiB.
    type: int
    default: 256
"""
