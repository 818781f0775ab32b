# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the GPU modules have in common."""

from __future__ import annotations


class ModuleDocFragment:
    """Options that select GPUs, and what the modules need and cannot do."""

    DOCUMENTATION = r"""
options:
  gpus:
    description:
      - The GPUs this is about. An empty list means all GPUs of the host.
      - Each entry is an NVML index (V(0)), a UUID (V(GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e)), the start of a UUID
        that no other GPU shares (at least four characters, with or without V(GPU-)), or a PCI bus id
        (V(0000:00:06.0), V(00000000:00:06.0) or V(00:06.0)).
      - An entry that fits no GPU or several, or names a GPU a second time, fails the task.
      - The environment variable E(CUDA_VISIBLE_DEVICES) changes nothing.
      - Where only indices are given, the other GPUs are not even opened.
    type: list
    elements: str
    default: []
  expected_count:
    description:
      - How many GPUs the host must have in all, whatever O(gpus) selects.
      - Another number fails the task before anything else happens, since a GPU that has fallen off the bus or is
        drained is easily overlooked.
    type: int
  nvml_timeout:
    description:
      - How many seconds one query of one GPU may take.
      - A GPU that takes longer is V(unknown) with the reason V(hung); the other GPUs are still read.
    type: float
    default: 10.0
requirements:
  - nvidia-ml-py on the managed host, in the Python that Ansible uses there (it installs the module C(pynvml))
  - the NVIDIA driver with its library libnvidia-ml.so.1
notes:
  - Processes are those in NVML's lists of compute, graphics and MPS processes. A process in another PID namespace
    (container, Proxmox guest) than the module is not listed; its memory still shows, and then the GPU is V(busy) with
    the reason V(unattributed). Run the module on the host itself.
  - NVML runs in a process of its own that is given up when the driver does not answer, so the module always returns.
"""
