#!/usr/bin/python
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: reset GPUs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_reset
short_description: Reset NVIDIA GPUs and prove that they are well
version_added: 0.1.0
author: ["inferops.sglang authors (@inferops)"]
description:
  - Resets the selected GPUs by C(nvidia-smi --gpu-reset), by default only those for which the driver asks for it.
  - Everything that keeps a GPU from being reset is found before anything is touched, and refused with its reason. That
    is any process that uses the GPU or has it open, a display, MPS, the kernel module C(nvidia_drm), GPUs that NVLinks
    connect and that have to be reset together, MIG mode, virtual machines, and a driver that wants a reboot or a drain.
  - Processes are never ended by this module. Free the GPUs first, with M(inferops.sglang.gpu_reclaim) or the role
    P(inferops.sglang.gpu_free#role).
  - Daemons of the driver that keep GPUs open (DCGM and its exporter, NVIDIA System Management, IMEX, the persistence
    daemon) are stopped by their systemd units, only those that run, and started again in reverse order. Persistence
    mode is switched off for the GPUs that are reset, and on again. All of that is put back after a failure too, and
    when the module is told to end by SIGTERM. Only SIGKILL and a crash of the host prevent it.
  - The fabric manager goes on running, except on NVSwitches with GPUs older than Ampere. It is never stopped and
    started while a GPU behind its switches is not reset, as NVLink SHARP would not work afterwards.
  - GPUs are named by their UUIDs and all that are reset together are in one command. One that fails as in use, or
    without a known cause, is tried once more and never a third time.
  - Afterwards the GPUs must be as many and the same as before, free, without a recovery action, in the NVLink fabric
    where they belong to one, and, where CUDA's driver library is installed, able to allocate memory.
extends_documentation_fragment:
  - inferops.sglang.gpu_selection
  - inferops.sglang.audit
options:
  when:
    description:
      - V(needed) resets the selected GPUs whose recovery action, as the driver tells it, is a reset. One that needs
        nothing is left alone. One of which the driver does not say what it needs fails the task.
      - V(always) resets all selected GPUs, except where the driver wants a reboot or a drain that is not over.
      - This is the option of the module. The keyword C(when) of a task stands beside it, not below it.
    type: str
    choices: [needed, always]
    default: needed
  include_peers:
    description: Whether GPUs that NVLinks connect, and that have to be reset by the same command, are reset too
      although they are not selected. Otherwise they fail the task.
    type: bool
    default: false
  fabric_manager:
    description:
      - V(auto) lets the fabric manager run, and stops it for the reset of GPUs older than Ampere behind NVSwitches.
      - V(keep) never stops it. V(stop) always does, and is refused unless all GPUs behind the NVSwitches are reset.
    type: str
    choices: [auto, keep, stop]
    default: auto
  nvidia_drm:
    description:
      - What to do about the kernel module C(nvidia_drm), which is a client of the GPUs without being a process.
      - V(auto) refuses where it is loaded with mode setting, or it cannot be told whether. V(refuse) refuses wherever
        it is loaded.
      - V(unload) unloads it for the reset and loads it again. Refused while anybody uses it.
      - V(ignore) tries the reset all the same.
    type: str
    choices: [auto, refuse, unload, ignore]
    default: auto
  in_guest:
    description: Whether to try a reset inside a virtual machine, where it is mostly not supported.
    type: bool
    default: false
  stop_units:
    description:
      - Further systemd services that are stopped for the reset, where they run, and started again, given as shell
        patterns, such as that of a monitor of your own. V(.service) may be left out.
    type: list
    elements: str
    default: []
  keep_units:
    description: Services that are not stopped, given as shell patterns, although they are daemons of the driver. One
      that has a GPU open then fails the task.
    type: list
    elements: str
    default: []
  service_timeout:
    description: How many seconds one service gets to stop, or to start.
    type: float
    default: 90.0
  reset_timeout:
    description:
      - How many seconds one run of C(nvidia-smi --gpu-reset) may take.
      - It holds even where that hangs in the driver; what cannot be ended is left behind, and the task fails.
    type: float
    default: 180.0
  settle_timeout:
    description: For how many seconds after the reset the GPUs may still be on their way, as into the NVLink fabric.
    type: float
    default: 60.0
  allocation_test:
    description:
      - Whether each GPU must allocate and clear one MiB through C(libcuda.so.1) after its reset.
      - V(auto) does it where that library is installed and says where it is not. With V(required) its absence fails the
        task. V(never) leaves it out.
    type: str
    choices: [auto, required, never]
    default: auto
  allocation_timeout:
    description: How many seconds that may take for one GPU.
    type: float
    default: 60.0
attributes:
  check_mode:
    description: Finds everything that blocks a reset, returns the whole plan and touches nothing. Blockers are returned
      and do not fail the task.
    support: full
  diff_mode:
    description: Shows what the driver wants of each GPU before and after.
    support: full
  platform:
    description: The platforms it runs on.
    support: full
    platforms: linux
notes:
  - Not idempotent with O(when=always), which resets on every call.
  - Needs root, and C(nvidia-smi) on the host.
seealso:
  - module: inferops.sglang.gpu_info
  - module: inferops.sglang.gpu_reclaim
"""

EXAMPLES = r"""
- name: Show what a reset would take, without touching anything
  inferops.sglang.gpu_reset:
    when: always
  become: true
  check_mode: true
  register: result

- name: Reset the GPUs that the driver wants reset
  inferops.sglang.gpu_reset:
    expected_count: 8
  become: true

- name: Reset one GPU whatever the driver says, and take a monitor of ours off it
  inferops.sglang.gpu_reset:
    gpus: [GPU-dcf0d3fb]
    when: always
    stop_units: [gpu-telegraf]
  become: true

- name: Reset all GPUs of a host with NVSwitches and V100, where only all together can be
  inferops.sglang.gpu_reset:
    when: always
    include_peers: true
    reset_timeout: 600
  become: true
"""

RETURN = r"""
reader:
  description: How the GPUs were read, V(nvml) or V(nvidia_smi).
  returned: when the driver could be asked
  type: str
  sample: nvml
driver_version:
  description: The version of the NVIDIA driver.
  returned: when the driver could be asked
  type: str
  sample: 580.159.04
nvml_version:
  description: The version of the NVML library.
  returned: when the driver could be asked
  type: str
  sample: 13.580.159.04
selected:
  description:
    - The UUIDs that O(gpus) was resolved to, in the order of the indices. A GPU that could not be identified has
      none.
  returned: when the driver could be asked
  type: list
  elements: str
  sample: [GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e]
gpus:
  description: The selected GPUs, by ascending index.
  returned: when the driver could be asked
  type: list
  elements: dict
  contains:
    index:
      description: The NVML index.
      returned: always
      type: int
      sample: 0
    uuid:
      description: The UUID, empty where the GPU could not be identified.
      returned: always
      type: str
      sample: GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e
    pci_bus_id:
      description: The PCI bus id as NVML spells it, empty where the GPU could not be identified.
      returned: always
      type: str
      sample: "00000000:00:06.0"
    minor:
      description: The N of C(/dev/nvidiaN), which need not be the index. Null where it is not known.
      returned: always
      type: int
      sample: 0
    name:
      description: The model.
      returned: always
      type: str
      sample: NVIDIA H200
    memory_total_mib:
      description: All memory, in MiB. Null where it could not be read.
      returned: always
      type: int
      sample: 143771
    memory_used_mib:
      description: Memory in use, in MiB, rounded up. Null where it could not be read.
      returned: always
      type: int
      sample: 0
    memory_reserved_mib:
      description: Memory that the driver keeps for itself, in MiB. Null where the driver does not tell it apart.
      returned: always
      type: int
      sample: 616
    memory_source:
      description:
        - V(nvml_v2) and V(nvidia_smi) where RV(gpus[].memory_used_mib) is without the driver's own memory, V(nvml_v1)
          and V(nvidia_smi_v1) where it contains it, V(mig_instances) where it is the sum over the GPU's MIG
          instances.
        - Empty where the memory could not be read.
      returned: always
      type: str
      sample: nvml_v2
    persistence_mode:
      description: V(enabled), V(disabled), V(not_supported) or V(unknown).
      returned: always
      type: str
      sample: enabled
    mig_mode:
      description: V(enabled), V(disabled), V(not_supported) or V(unknown).
      returned: always
      type: str
      sample: disabled
    recovery_action:
      description:
        - What the driver wants done to the GPU. V(none), V(reset), V(node_reboot), V(drain_p2p), V(drain_and_reset),
          V(recover_imex_domain), V(bus_reset), V(system_reboot), V(not_supported) or V(unknown).
      returned: always
      type: str
      sample: none
    addressing_mode:
      description:
        - V(none), V(hmm), V(ats) (the operating system may use the GPU's memory as its own, as on GH200),
          V(not_supported) or V(unknown).
      returned: always
      type: str
      sample: none
    mig_devices:
      description:
        - The MIG instances of the GPU, each with C(uuid), C(gpu_instance), C(compute_instance), C(memory_total_mib)
          and C(memory_used_mib). Empty without MIG.
      returned: always
      type: list
      elements: dict
      sample: []
    mig_instance:
      description: The same keys where this entry is a MIG instance that O(gpus) names, else null.
      returned: always
      type: dict
      sample: null
    verdict:
      description: V(free), V(busy) or V(unknown). What could not be read is never V(free).
      returned: always
      type: str
      sample: free
    reason:
      description:
        - Why the GPU is not free, as a stable code; empty where it is.
        - For V(busy) one of V(holder) (a process is listed), V(memory) (allowed processes use more than they may) and
          V(unattributed) (memory is in use and no living process is listed).
        - For V(unknown) V(recovery_action) (the driver wants the GPU reset or its host rebooted), V(hung),
          V(crashed), V(lost), V(no_permission), V(library_mismatch), V(reset_required), V(not_supported),
          V(implausible_pid), V(inconsistent_memory) and others.
      returned: always
      type: str
      sample: ""
    message:
      description: The verdict in words, with what to do.
      returned: always
      type: str
      sample: 0 MiB used and no process listed.
  sample:
    - index: 0
      uuid: GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e
      pci_bus_id: "00000000:00:06.0"
      minor: 0
      name: NVIDIA H200
      memory_total_mib: 143771
      memory_used_mib: 0
      memory_reserved_mib: 616
      memory_source: nvml_v2
      persistence_mode: enabled
      mig_mode: disabled
      recovery_action: none
      addressing_mode: none
      mig_devices: []
      mig_instance: null
      verdict: free
      reason: ""
      message: 0 MiB used and no process listed.
holders:
  description: The processes that use the selected GPUs or have them open, by ascending PID.
  returned: when the driver could be asked
  type: list
  elements: dict
  contains:
    pid:
      description: The PID, as the module sees it.
      returned: always
      type: int
      sample: 602
    start_time:
      description: When it started, in UTC. Null where the PID is no process of this host.
      returned: always
      type: str
      sample: "2026-11-30T02:46:49Z"
    start_ticks:
      description:
        - When it started, in clock ticks since boot. Together with the PID it identifies the process. Null as above.
      returned: always
      type: int
      sample: 1234567
    user:
      description:
        - The user it runs as, or the user id where it has no name. Null where the PID is no process of this host.
      returned: always
      type: str
      sample: llm
    name:
      description: The first word of its command line. Any program can choose it, so nothing is decided by it.
      returned: always
      type: str
      sample: sglang::scheduler_TP0
    exe:
      description: Its executable, empty where it cannot be read.
      returned: always
      type: str
      sample: /opt/sglang/bin/python3.12
    gpus:
      description:
        - The UUIDs of those selected GPUs that it uses, because the driver lists it there or because it inherited the
          GPU from a listed process that has ended.
      returned: always
      type: list
      elements: str
      sample: [GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e]
    attached:
      description:
        - The GPUs that it merely has open, as CUDA opens every GPU it may see. The selected ones come first, by UUID;
          others by UUID where the driver tells it, else as their device node.
      returned: always
      type: list
      elements: str
      sample: []
    evidence:
      description:
        - Where it was found, of V(nvml_compute), V(nvml_graphics), V(nvml_mps) (the driver's lists), V(fd) (an open
          device, in any of its threads) and V(map) (a mapped device).
      returned: always
      type: list
      elements: str
      sample: [fd, map, nvml_compute]
    memory_mib:
      description: The memory it uses on the selected GPUs together, in MiB. Null where the driver does not say.
      returned: always
      type: int
      sample: 1634
    per_gpu_mib:
      description: The memory it uses by UUID, in MiB. A value is null where the driver does not say.
      returned: always
      type: dict
      sample:
        GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e: 1634
    mig:
      description:
        - The MIG instances it runs on, each with the GPU's C(uuid), C(gpu_instance) and C(compute_instance). Empty
          without MIG.
      returned: always
      type: list
      elements: dict
      sample: []
    state:
      description:
        - The kernel's letter for its state, such as V(R), V(S), V(D), V(T) or V(Z); empty where there is no process.
      returned: always
      type: str
      sample: S
    unit:
      description: The systemd unit it belongs to (in a guest, the guest's), null where there is none.
      returned: always
      type: str
      sample: sglang-main.service
    cgroup:
      description: Its control group, empty where it is in none or there is no process.
      returned: always
      type: str
      sample: /system.slice/sglang-main.service
    container:
      description:
        - The container or guest it runs in, outermost first, with C(runtime) (V(docker), V(podman), V(containerd),
          V(crio), V(kubernetes), V(lxc), V(nspawn), V(qemu) and others), C(id) (for a guest its name, on Proxmox the
          VMID) and C(name) (empty where it is not known). Null outside of any.
      returned: always
      type: dict
      sample: null
    namespace_pid:
      description: Its PID inside its own PID namespace, null where that is the one the module runs in.
      returned: always
      type: int
      sample: null
    protected:
      description: Whether M(inferops.sglang.gpu_reclaim) leaves it alone.
      returned: always
      type: bool
      sample: false
    protected_by:
      description: Why it is protected, empty where it is not.
      returned: always
      type: str
      sample: ""
  sample:
    - pid: 602
      start_time: "2026-11-30T02:46:49Z"
      start_ticks: 1234567
      user: llm
      name: sglang::scheduler_TP0
      exe: /opt/sglang/bin/python3.12
      gpus: [GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e]
      attached: []
      evidence: [fd, map, nvml_compute]
      memory_mib: 1634
      per_gpu_mib:
        GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e: 1634
      mig: []
      state: S
      unit: sglang-main.service
      cgroup: /system.slice/sglang-main.service
      container: null
      namespace_pid: null
      protected: false
      protected_by: ""
uninspected:
  description:
    - How many processes could not be looked into, so that their open devices are not known. V(0) as root, except for
      processes that are stuck in the driver.
  returned: when the driver could be asked
  type: int
  sample: 0
decisions:
  description: What is to be done to each selected GPU and why, by ascending index.
  returned: when the driver could be asked
  type: list
  elements: dict
  contains:
    index:
      description: The NVML index.
      returned: always
      type: int
      sample: 0
    uuid:
      description: The UUID, empty where the GPU could not be identified.
      returned: always
      type: str
      sample: GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e
    action:
      description:
        - V(reset), V(bus_reset), V(leave) (it needs nothing), V(reboot), V(drain), V(imex) (its IMEX domain has to be
          recovered) or V(undecided) (the driver does not say).
      returned: always
      type: str
      sample: reset
    why:
      description: Why, in words.
      returned: always
      type: str
      sample: the driver says that it needs to be reset (recovery action reset)
    architecture:
      description: Its generation, such as V(ampere) or V(hopper), V(newer) or V(unknown). Null where nobody asked.
      returned: always
      type: str
      sample: hopper
    nvlink_peers:
      description: The PCI bus ids of the GPUs at the other ends of its NVLinks. Null where that is not known.
      returned: always
      type: list
      elements: str
      sample: []
    nvswitch:
      description: Whether an NVLink of it leads to an NVSwitch. Null where that is not known.
      returned: always
      type: bool
      sample: true
    virtualization:
      description: V(none), V(passthrough), V(vgpu), V(host_vgpu), V(host_vsga) or V(unknown). Null as above.
      returned: always
      type: str
      sample: none
    fabric:
      description:
        - Its place in the NVLink fabric, V(completed), V(in_progress), V(not_started), V(failed), V(not_supported) or
          V(unknown). Null as above.
      returned: always
      type: str
      sample: completed
  sample: []
plan:
  description: All steps in their order, those included that put things back. Empty where no GPU is to be reset.
  returned: when the driver could be asked
  type: list
  elements: dict
  contains:
    action:
      description:
        - V(stop_unit), V(persistence_off), V(stop_unit_if_still_open), V(unload_module), V(reset), V(load_module),
          V(start_unit), V(persistence_on) or V(prove).
      returned: always
      type: str
      sample: reset
    target:
      description: The unit, the module, or the UUIDs of the GPUs.
      returned: always
      type: str
      sample: GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e
    why:
      description: Why, in words.
      returned: always
      type: str
      sample: as asked (when is always)
    command:
      description: The command, empty where it is no single one.
      returned: always
      type: str
      sample: nvidia-smi --gpu-reset -i GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e
  sample: []
blockers:
  description: What keeps the GPUs from being reset. Without check mode, any of these fails the task.
  returned: when the driver could be asked
  type: list
  elements: dict
  contains:
    code:
      description:
        - A stable code, as in RV(reason).
      returned: always
      type: str
      sample: busy
    message:
      description: A sentence with the remedy.
      returned: always
      type: str
      sample: "PID 602 python3 of alice uses GPU 0. End it first (gpu_reclaim, role gpu_free)."
    pid:
      description: The process that is meant, null where it is none.
      returned: always
      type: int
      sample: 602
    instance:
      description: The SGLang server of this collection that the process belongs to, empty where it is none.
      returned: always
      type: str
      sample: ""
  sample: []
command:
  description: The reset as it would be typed, empty where no GPU is to be reset.
  returned: when the driver could be asked
  type: str
  sample: nvidia-smi --gpu-reset -i GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e
resettable:
  description: The UUIDs of the GPUs that are to be reset, those that have to come along included.
  returned: when the driver could be asked
  type: list
  elements: str
  sample: [GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e]
resets:
  description: Each run of C(nvidia-smi --gpu-reset), in order.
  returned: when the driver could be asked
  type: list
  elements: dict
  contains:
    command:
      description: The command.
      returned: always
      type: str
      sample: nvidia-smi --gpu-reset -i GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e
    gpus:
      description: The UUIDs that it was about.
      returned: always
      type: list
      elements: str
      sample: [GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e]
    done:
      description: The UUIDs that it has reset.
      returned: always
      type: list
      elements: str
      sample: [GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e]
    attempt:
      description: V(1), or V(2) where it was tried again.
      returned: always
      type: int
      sample: 1
    rc:
      description: The exit status. Null where it did not end in time.
      returned: always
      type: int
      sample: 0
    outcome:
      description:
        - V(done), V(in_use), V(not_supported), V(no_permission), V(nvlink_peers), V(lost), V(hung),
          V(nvidia_smi_missing) or V(reset_failed).
      returned: always
      type: str
      sample: done
    message:
      description: What it said where it failed.
      returned: always
      type: str
      sample: ""
    seconds:
      description: How long it took.
      returned: always
      type: float
      sample: 4.212
  sample: []
stopped:
  description: What was stopped or switched off for the reset, in order.
  returned: when the driver could be asked
  type: list
  elements: dict
  contains:
    kind:
      description: V(unit), V(persistence_mode) or V(kernel_module).
      returned: always
      type: str
      sample: unit
    target:
      description: The unit, the UUID or the module.
      returned: always
      type: str
      sample: nvidia-dcgm.service
    ok:
      description: Whether that worked.
      returned: always
      type: bool
      sample: true
    message:
      description: What came of it, in words.
      returned: always
      type: str
      sample: stopped
  sample: []
restored:
  description: What was put back afterwards, in order, with the keys of RV(stopped).
  returned: when the driver could be asked
  type: list
  elements: dict
  sample: []
reboot_needed:
  description: The UUIDs of the GPUs that only a reboot of the host may help.
  returned: when the driver could be asked
  type: list
  elements: str
  sample: []
drain_needed:
  description: The UUIDs of the GPUs that the driver wants drained.
  returned: when the driver could be asked
  type: list
  elements: str
  sample: []
health:
  description: A sentence for each thing that is not well after the reset. Empty also where nothing was reset.
  returned: when the driver could be asked
  type: list
  elements: str
  sample: []
allocations:
  description: What came of the allocation on each GPU that was reset.
  returned: when the driver could be asked
  type: list
  elements: dict
  contains:
    uuid:
      description: The GPU.
      returned: always
      type: str
      sample: GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e
    outcome:
      description: V(passed), V(failed) or V(absent) (CUDA's driver library is not installed).
      returned: always
      type: str
      sample: passed
    message:
      description: What went wrong.
      returned: always
      type: str
      sample: ""
  sample: []
elapsed:
  description: How long the module took, in seconds.
  returned: when the driver could be asked
  type: float
  sample: 12.204
reason:
  description:
    - Why the module failed, as a stable code.
    - Before anything was touched it is the first of RV(blockers), V(busy), V(server), V(daemon), V(display), V(mps),
      V(nvidia_drm), V(nvlink_peers), V(nvlink_unknown), V(fabric_manager), V(mig), V(guest), V(vgpu_host),
      V(reboot_needed), V(drain_needed), V(imex_domain), V(undecided), V(not_identified), V(not_root) or V(stuck).
    - Afterwards it is V(not_prepared) (something could not be stopped), V(interrupted), V(busy), an outcome of
      RV(resets), V(unhealthy), V(allocation_failed), V(reboot_needed) or V(not_restored).
    - Or what kept the driver from being asked, such as V(library_mismatch), V(count) or V(selection).
  returned: failure
  type: str
  sample: busy
"""

import contextlib
import os
import re
import signal
import time
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from typing import Any, Callable, Collection, Iterator, NoReturn

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import (
    options,
    recovery,
    reset_allocation,
    reset_blockers,
    reset_drm,
    reset_health,
    reset_needs,
    reset_running,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.keepers import container_names, own_supervisors
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import GpuError, GpuReading, Holder
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.observer import EVERYTHING, Look, Observer, select
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.open import open_session
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.protection import daemon_of
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.pynvml_guard import DISTRIBUTION, PynvmlMissing
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_blockers import Blocker, Choices, Host
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_peers import Links
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_plan import Plan, plan_reset, targets_of
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_restoring import CannotPrepare, Preparation
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_traits import GpuTraits, bus_id
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_units import Units
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.results import look_result, warnings_of
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.selection import Target
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.smi_runner import child_environment, find_nvidia_smi
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.verdict import Limits
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import MARKER
from ansible_collections.inferops.sglang.plugins.module_utils.system.audit import AuditLog, audit_options
from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import Completed
from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import run as run_command
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs
from ansible_collections.inferops.sglang.plugins.module_utils.system.quick_exit import leave_quickly

# Whether a GPU is sound is what this module is about, so that alone makes none unknown.
LIMITS = Limits(ignore_recovery=True)
REPORTED = Limits()
# Seconds that the reader's own processes get to let go of the GPUs.
OWN_END = 5.0
POLL = 0.5
BUG_REPORT = "Run nvidia-bug-report.sh as root before you reboot the host, which may help"
# What may have left a GPU in a state that only a reboot ends.
BEYOND = frozenset([reset_running.FAILED, reset_running.HUNG, reset_running.LOST])
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Stop:
    """Notes that the task was told to end, so that it ends in good order and puts everything back."""

    def __init__(self) -> None:
        self.told = False

    def go(self) -> bool:
        """Whether to go on."""
        return not self.told

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Until the end of the block, signals are noted and nothing else."""
        before = {number: signal.signal(number, self._note) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, _number: int, _frame: Any) -> None:
        self.told = True


class Task:
    """One run of the module: look, plan, make ready, reset, put back, prove."""

    def __init__(self, module: AnsibleModule, procfs: ProcFs, audit: AuditLog, opened: Callable[[], Any]) -> None:
        params = module.params
        self.module = module
        self.procfs = procfs
        self.audit = audit
        self.opened = opened
        self.began = time.monotonic()
        self.choices = Choices(
            when=params["when"],
            include_peers=params["include_peers"],
            fabric_manager=params["fabric_manager"],
            nvidia_drm=params["nvidia_drm"],
            in_guest=params["in_guest"],
        )
        self.units = Units(run_command)
        self.stop = Stop()
        self.session = opened()
        self.count = self.session.system.count
        self.traits: dict[int, GpuTraits] = {}

    def close(self) -> None:
        """Let go of the GPUs."""
        self.session.close()

    # -- looking

    def observer(self, targets: Collection[Target]) -> Observer:
        """Looks at these GPUs."""
        names = container_names(lambda: own_supervisors(self.procfs))
        return Observer(self.session, self.procfs, tuple(targets), container_name=names)

    def run(self) -> None:
        """Do it, and leave the module with its result."""
        targets = select(self.session, self.module.params["gpus"], self.module.params["expected_count"])
        look = self.observer(targets).look(EVERYTHING, LIMITS)
        host = self.host(look)
        wanted = targets_of(host, self.choices)
        selected = {reading.index for reading in look.readings}
        everybody = look
        if not wanted <= selected:
            # Who holds the GPUs that come along counts as well.
            everybody = self.observer(Target(index) for index in sorted(wanted | selected)).look(EVERYTHING, LIMITS)
            host = self.host(look, everybody)
        plan = plan_reset(
            host,
            {reading.index: reading for reading in everybody.readings},
            self.choices,
            [unit.name for unit in host.units if self.kept(unit.name)],
        )
        # What the driver wants of the GPUs is in the decisions.
        sight = warnings_of(replace(look, readings=()), root=host.root)
        for warning in [*sight, *plan.notes, *self.of_units()]:
            self.module.warn(warning)
        if plan.commands:
            find_nvidia_smi()
        before = self.result(host, plan, look)
        if self.module.check_mode:
            changed = bool(plan.commands) and not plan.blockers
            self.module.exit_json(changed=changed, **before, **self.diff(look, look))
        if plan.blockers:
            self.module.fail_json(
                msg="Nothing was touched: %s" % " ".join(blocker.message for blocker in plan.blockers),
                reason=plan.blockers[0].code,
                changed=False,
                **before,
            )
        if not plan.commands:
            self.module.exit_json(changed=False, **before)
        self.act(host, plan, look, everybody)

    def host(self, look: Look, everybody: Look | None = None) -> Host:
        """What there is on the host, beside the GPUs of a look.  everybody: a look at more GPUs, for their holders."""
        holders = (everybody or look).holders
        needs = {
            reading.index: reset_needs.need_of(reading, self.held(reading, holders), self.choices.when)
            for reading in look.readings
        }
        units = self.units.running(self.module.params["stop_units"])
        return Host(
            readings=look.readings,
            holders=holders,
            needs=needs,
            links=self.links([index for index, need in needs.items() if need.action in reset_needs.RESETS]),
            units=units,
            drm=reset_drm.read_drm(),
            root=os.geteuid() == 0,
            stuck=look.view.stuck,
            hidden=look.view.hidden,
            instance_of=self.instance_of,
        )

    def held(self, reading: GpuReading, holders: Collection[Holder]) -> bool:
        """Whether somebody who has work on a GPU uses it or has it open."""
        return any(
            reading.uuid in holder.gpus + holder.attached
            and holder.protected_by != "this task itself"
            and not (holder.process is not None and daemon_of(holder.process))
            for holder in holders
        )

    def links(self, indices: Collection[int]) -> Links:
        """Where the NVLinks of these GPUs lead; those of all GPUs where that matters."""
        self.ask_traits(indices)
        known = [self.traits[index] for index in indices]
        matters = self.choices.fabric_manager == reset_blockers.STOP
        if known and (matters or any(traits.older_than("hopper") for traits in known)):
            self.ask_traits(range(self.count))
        buses = {}
        for reading in self.session.identify(sorted(self.traits)):
            if reading.identity is not None:
                buses[reading.index] = bus_id(reading.identity.pci_bus_id)
        return Links(dict(self.traits), buses, self.fabric_manager_runs())

    def ask_traits(self, indices: Collection[int]) -> None:
        """Ask about those of these GPUs that have not been asked about."""
        for traits in self.session.traits([index for index in indices if index not in self.traits]):
            self.traits[traits.index] = traits

    def fabric_manager_runs(self) -> bool:
        """Whether a fabric manager runs on this host, as a unit, in a container, or by hand."""
        for pid in self.procfs.pids():
            with contextlib.suppress(OSError):
                exe = os.readlink("%s/%d/exe" % (self.procfs.root, pid))
                if os.path.basename(exe) == "nv-fabricmanager":
                    return True
        return False

    def kept(self, name: str) -> bool:
        """Whether keep_units names a unit."""
        patterns = self.module.params["keep_units"]
        return any(fnmatchcase(name, p) or fnmatchcase(name, p + ".service") for p in patterns)

    def of_units(self) -> list[str]:
        """What could not be learnt about services."""
        if not self.units.problem:
            return []
        return ["systemd does not tell its services (%s): none is stopped" % self.units.problem]

    def instance_of(self, holder: Holder) -> str:
        """The server of ours that a process belongs to, or ""."""
        named = reset_blockers.instance_by_name(holder)
        if named or holder.process is None or holder.process.container is not None:
            return named
        marker = (self.procfs.environ(holder.pid) or {}).get(MARKER, "")
        return marker if re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,47}", marker) else ""

    # -- acting

    def act(self, host: Host, plan: Plan, look: Look, everybody: Look) -> NoReturn:
        """Reset, put back, prove, and leave the module."""
        params = self.module.params
        tool = self.tool()
        preparation = Preparation(
            self.units,
            run_command,
            tool,
            self.audit,
            params["service_timeout"],
            {"for": "reset", "gpus": list(plan.uuids)},
        )
        problems: list[Blocker] = []
        attempts: list[reset_running.Attempt] = []
        buses = {r.uuid: r.identity.pci_bus_id for r in everybody.readings if r.identity is not None}
        with self.stop.watch():
            try:
                preparation.prepare(plan, host.units, lambda: self.units_on(plan), self.stop.go)
                problems += self.still_held(host, plan)
                if not problems:
                    self.leave_gpus()
                    attempts = self.reset(plan, buses, tool)
            except CannotPrepare as exc:
                problems.append(
                    Blocker("not_prepared" if self.stop.go() else "interrupted", "%s. Nothing was reset" % exc)
                )
            except GpuError as exc:
                problems.append(Blocker(exc.failure.code, str(exc)))
            finally:
                unrestored = preparation.restore()
        problems += self.of_attempts(plan, attempts, buses)
        problems += [Blocker("not_restored", sentence) for sentence in unrestored]
        if not self.stop.go() and not problems:
            problems.append(Blocker("interrupted", "The task was told to end"))
        done = {uuid for attempt in attempts for uuid in attempt.done}
        if (
            any(d.target.startswith("nvidia-fabricmanager") for d in preparation.stopped)
            and not set(plan.uuids) <= done
        ):
            problems.append(
                Blocker(
                    "fabric_manager", "The fabric manager was restarted and not all GPUs were reset: NVLS may not work"
                )
            )
        self.finish(host, plan, look, everybody, preparation, attempts, problems)

    def tool(self) -> Callable[..., Completed]:
        """Runs nvidia-smi with a limit that holds."""
        path = find_nvidia_smi()
        environment = child_environment(os.environ)

        def ask(arguments: Collection[str], timeout: float) -> Completed:
            return run_command([path, *arguments], timeout, env=environment, inherit=False)

        return ask

    def units_on(self, plan: Plan) -> Collection[str]:
        """The units that have one of the GPUs open now."""
        found = self.look_at(plan).holders
        return {holder.process.unit for holder in found if holder.process is not None and holder.process.unit}

    def look_at(self, plan: Plan) -> Look:
        """The GPUs of the plan as they are now."""
        return self.observer([Target(index) for index in plan.targets]).look(EVERYTHING, LIMITS)

    def still_held(self, host: Host, plan: Plan) -> list[Blocker]:
        """Who has come since the plan was made, or has not gone."""
        look = self.look_at(plan)
        now = replace(host, holders=look.holders, stuck=look.view.stuck)
        found = reset_blockers.of_holders(now, frozenset(), False, self.choices)
        found += reset_blockers.of_sight(now)
        return [replace(blocker, message="Nothing was reset: " + blocker.message) for blocker in found]

    def leave_gpus(self) -> None:
        """End the reader, and wait until it has let go: it is a client of the GPUs itself."""
        pids = self.session.pids
        self.session.close()
        deadline = time.monotonic() + OWN_END
        while time.monotonic() < deadline:
            self.session.close()
            living = [pid for pid in pids if not self.gone(pid)]
            if not living:
                return
            time.sleep(0.01)

    def gone(self, pid: int) -> bool:
        """Whether a process of the reader has ended."""
        process = self.procfs.read(pid)
        return process is None or process.dead or process.ppid not in (os.getpid(), 1)

    def reset(self, plan: Plan, buses: dict[str, str], tool: Callable[..., Completed]) -> list[reset_running.Attempt]:
        """The reset itself, recorded on the host."""
        with self.audit.event(
            "reset", {"gpus": list(plan.uuids)}, {"command": plan.line, "why": dict(plan.whys)}
        ) as event:
            attempts = reset_running.reset(
                plan.commands,
                buses,
                tool,
                self.module.params["reset_timeout"],
                self.stop.go,
                time.monotonic,
                time.sleep,
            )
            last = attempts[-1] if attempts else None
            event.outcome = last.outcome if last is not None else "interrupted"
            event.detail = last.message if last is not None else ""
        return attempts

    def of_attempts(self, plan: Plan, attempts: list[reset_running.Attempt], buses: dict[str, str]) -> list[Blocker]:
        """Why not all GPUs were reset."""
        if not attempts or attempts[-1].outcome == reset_running.DONE:
            return []
        last = attempts[-1]
        left = frozenset(plan.uuids) - {uuid for attempt in attempts for uuid in attempt.done}
        sentence = "%s could not be reset (attempt %d): %s" % (
            reset_running.names_of(left, buses),
            last.number,
            last.message or "exit status %s" % last.rc,
        )
        if last.missing:
            sentence += ". Select these too, or set include_peers=true: %s" % ", ".join(last.missing)
        if last.outcome == reset_running.IN_USE:
            drm = reset_drm.read_drm()
            sentence += ". No process was found on it before; " + (
                "%s is loaded and most likely holds it (nvidia_drm=unload)" % drm.label
                if drm.loaded
                else "a process in another namespace or virtual machine, or persistence mode, may hold it"
            )
        if last.outcome in BEYOND:
            sentence += ". It is not tried again. %s" % BUG_REPORT
        return [Blocker(last.outcome, sentence)]

    # -- proving and reporting

    def finish(
        self,
        host: Host,
        plan: Plan,
        look: Look,
        everybody: Look,
        preparation: Preparation,
        attempts: list[reset_running.Attempt],
        problems: list[Blocker],
    ) -> NoReturn:
        """Look again, prove what was reset, and leave the module."""
        done = {uuid for attempt in attempts for uuid in attempt.done}
        result = self.result(host, plan, look)
        result["resets"] = [_attempt_result(attempt) for attempt in attempts]
        result["stopped"] = [asdict(entry) for entry in preparation.stopped]
        result["restored"] = [asdict(entry) for entry in preparation.restored]
        beyond = frozenset(plan.uuids) - done if attempts and attempts[-1].outcome in BEYOND else frozenset()
        reboot = set(result["reboot_needed"]) | beyond
        after = look
        try:
            self.session = self.opened()
            # A GPU whose reset hangs would hang the proof as well.
            patient = bool(done) and not beyond
            after, health = self.prove(plan, look, everybody, patient)
            result.update(look_result(self.session, after, REPORTED))
            reboot |= set(reset_health.wants_reboot(after.readings))
            if done:
                result["health"] = health
                problems += [Blocker("unhealthy", sentence) for sentence in health]
            if done and not health:
                result["allocations"], failed = self.allocate(plan)
                problems += failed
        except GpuError as exc:
            problems.append(Blocker(exc.failure.code, "The GPUs cannot be read after the reset: %s" % exc))
        if reboot and not problems:
            problems.append(Blocker("reboot_needed", "The driver wants the host rebooted"))
        result["reboot_needed"] = sorted(reboot)
        result["elapsed"] = self.elapsed()
        result.update(self.diff(look, after))
        for warning in self.audit.problems:
            self.module.warn(warning)
        leave_quickly()
        changed = bool(done) or any(not entry.ok for entry in preparation.restored)
        if problems:
            words = [problem.message.rstrip(".") for problem in problems]
            if any(problem.code == "unhealthy" for problem in problems):
                words.append(BUG_REPORT)
            self.module.fail_json(msg="%s." % ". ".join(words), reason=problems[0].code, changed=changed, **result)
        self.module.exit_json(changed=changed, **result)

    def prove(self, plan: Plan, look: Look, everybody: Look, patient: bool) -> tuple[Look, list[str]]:
        """The GPUs of the selection now, and what is wrong with those that were reset.

        patient: what may still be on its way is waited for.
        """
        deadline = time.monotonic() + (self.module.params["settle_timeout"] if patient else 0.0)
        before = [reading for reading in everybody.readings if reading.index in plan.targets]
        while True:
            problems = reset_health.of_count(self.count, self.session.system.count)
            if problems:  # another number of GPUs: an index may mean another one now
                return self.observer([Target(i) for i in range(self.session.system.count)]).look(
                    EVERYTHING, REPORTED
                ), problems
            now = self.look_at(plan)
            problems += reset_health.of_identity(before, now.readings)
            problems += reset_health.of_readings(now.readings, now.verdicts(LIMITS), before)
            fabric = reset_health.of_fabric(self.traits, self.session.traits(plan.targets))
            problems += fabric.values()
            if not problems or time.monotonic() >= deadline:
                break
            time.sleep(POLL)
        return self.observer([Target(r.index) for r in look.readings]).look(EVERYTHING, REPORTED), problems

    def allocate(self, plan: Plan) -> tuple[list[dict[str, Any]], list[Blocker]]:
        """Allocate memory on each GPU that was reset; returns what came of it, and the failures."""
        wish = self.module.params["allocation_test"]
        if wish == reset_allocation.NEVER:
            return [], []
        found = []
        for uuid in plan.uuids:
            found.append(reset_allocation.allocate_on(uuid, self.module.params["allocation_timeout"]))
            if found[-1].outcome == reset_allocation.ABSENT:
                self.module.warn("Nothing was allocated on the GPUs: %s" % found[-1].message)
                break
        bad = [
            Blocker("allocation_failed", "%s cannot be computed on: %s" % (entry.uuid, entry.message))
            for entry in found
            if entry.failed or (entry.outcome == reset_allocation.ABSENT and wish == reset_allocation.REQUIRED)
        ]
        return [asdict(entry) for entry in found], bad

    def result(self, host: Host, plan: Plan, look: Look) -> dict[str, Any]:
        """What is returned in any case."""
        return {
            "decisions": [self.decision(reading, host) for reading in look.readings],
            "plan": [asdict(step) for step in plan.steps],
            "blockers": [_blocker_result(blocker, host) for blocker in plan.blockers],
            "command": plan.line,
            "resettable": list(plan.uuids),
            "resets": [],
            "stopped": [],
            "restored": [],
            "reboot_needed": list(plan.reboot),
            "drain_needed": list(plan.drain),
            "health": [],
            "allocations": [],
            "elapsed": self.elapsed(),
            **look_result(self.session, look, REPORTED),
        }

    def decision(self, reading: GpuReading, host: Host) -> dict[str, Any]:
        """What is to be done to one GPU, and what that was decided by."""
        need = host.needs[reading.index]
        traits = self.traits.get(reading.index)
        return {
            "index": reading.index,
            "uuid": reading.uuid,
            "action": need.action,
            "why": need.why,
            "architecture": traits.architecture if traits else None,
            "nvlink_peers": list(traits.peers) if traits and traits.links_read else None,
            "nvswitch": traits.switched if traits and traits.links_read else None,
            "virtualization": traits.virtualization if traits else None,
            "fabric": traits.fabric if traits else None,
        }

    def elapsed(self) -> float:
        """Seconds since the start."""
        return round(time.monotonic() - self.began, 3)

    def diff(self, before: Look, after: Look) -> dict[str, Any]:
        """The diff, where one is asked for."""
        if not self.module._diff:
            return {}
        header = "recovery action"
        return {
            "diff": {
                "before": _diff_text(before),
                "after": _diff_text(after),
                "before_header": header,
                "after_header": header,
            }
        }


def _diff_text(look: Look) -> str:
    return "".join(
        "GPU %d %s: %s%s\n" % (r.index, r.uuid, r.recovery_action, " (wanted)" if recovery.wanted(r) else "")
        for r in look.readings
    )


def _attempt_result(attempt: reset_running.Attempt) -> dict[str, Any]:
    return {
        "command": attempt.command.line,
        "gpus": list(attempt.command.uuids),
        "done": list(attempt.done),
        "attempt": attempt.number,
        "rc": attempt.rc,
        "outcome": attempt.outcome,
        "message": attempt.message,
        "seconds": attempt.seconds,
    }


def _blocker_result(blocker: Blocker, host: Host) -> dict[str, Any]:
    holder = next((holder for holder in host.holders if holder.pid == blocker.pid), None)
    return {
        "code": blocker.code,
        "message": blocker.message,
        "pid": blocker.pid,
        "instance": host.instance_of(holder) if holder is not None else "",
    }


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={**options.selection_spec(), **options.reset_spec(), **audit_options()},
        supports_check_mode=True,
    )
    procfs = ProcFs()
    audit = AuditLog.of_module(module)
    try:
        options.check_selection(module.params)
        options.check_reset(module.params)
        task = Task(
            module, procfs, audit, lambda: open_session(module.params["nvml_timeout"], procfs, module.params["reader"])
        )
        try:
            task.run()
        finally:
            task.close()
    except PynvmlMissing as exc:
        module.fail_json(msg=missing_required_lib(DISTRIBUTION), reason="pynvml_missing", exception=exc.trace)
    except GpuError as exc:
        module.fail_json(msg=str(exc), reason=exc.failure.code)


if __name__ == "__main__":
    main()
