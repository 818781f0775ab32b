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
      - The UUID of a MIG instance (V(MIG-...)) selects that instance alone. Its memory and the processes listed on it
        are looked at, the other instances of the GPU are not.
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
  reader:
    description:
      - How the GPUs are read. V(nvml) uses the Python binding of NVML, V(nvidia_smi) runs C(nvidia-smi -q -x), and
        V(auto) takes the second where the first is missing or too old.
      - Both give the same results. NVML is quicker, as one run of nvidia-smi takes 30 ms and more.
    type: str
    choices: [auto, nvml, nvidia_smi]
    default: auto
requirements:
  - nvidia-ml-py 12.535.108 or later on the managed host, in the Python that Ansible uses there (it installs the module
    C(pynvml)), or nvidia-smi
  - the NVIDIA driver with its library libnvidia-ml.so.1
notes:
  - The driver lists the compute, graphics and MPS processes of a GPU. Who else has it open is found in C(/proc), in
    the descriptors of every thread and in the memory maps.
  - A process in another PID namespace (container, Proxmox guest) than the module may not be seen, while its memory
    shows; then the GPU is V(busy) with the reason V(unattributed). Run the module on the host itself, where all
    containers and guests are seen.
  - Without root, the files of other users' processes cannot be looked at. RV(uninspected) tells of how many.
  - NVML and the search through C(/proc) run in processes of their own that are given up when the driver does not
    answer, so the module always returns.
"""
