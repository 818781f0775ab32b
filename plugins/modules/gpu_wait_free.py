#!/usr/bin/python
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: wait until GPUs are free."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_wait_free
short_description: Wait until the selected NVIDIA GPUs are free and stay free
version_added: 0.1.0
author: ["inferops.sglang authors (@inferops)"]
description:
  - Waits until each selected GPU has at most O(max_used_mib) MiB in use and no process listed on it, other than
    allowed ones, and has stayed so for O(stable_for) seconds.
  - Memory and processes are both watched. A new process, or memory that rises again, starts the O(stable_for) seconds
    anew; at least three looks must agree.
  - A process that merely has a GPU open does not make it busy. It is named where memory is in use that nobody is
    listed for.
  - A GPU that cannot be read is never free. The task goes on waiting if that can pass (V(hung)) and fails at once if
    it cannot (V(lost), V(library_mismatch), V(recovery_action)).
  - A protected process (see M(inferops.sglang.gpu_reclaim)) that is not allowed fails the task after O(stable_for)
    seconds, since nothing will end it.
  - Waits on the host itself in one process, so that a poll costs no connection. Changes nothing.
extends_documentation_fragment:
  - inferops.sglang.gpu_selection
  - inferops.sglang.gpu_free
  - inferops.sglang.gpu_allow
options:
  timeout:
    description:
      - How many seconds to wait at most.
      - It can take longer by one look at all the GPUs, at worst O(nvml_timeout) for each that does not answer.
    type: float
    default: 120.0
  stable_for:
    description: For how many seconds the GPUs must be free without interruption. Less than O(timeout).
    type: float
    default: 2.0
  interval:
    description:
      - The seconds between two looks, at least V(0.01) and not more than O(stable_for).
      - A look costs less than a millisecond for each GPU, and 30 ms and more with O(reader=nvidia_smi).
    type: float
    default: 0.02
  allow_mib:
    description:
      - By how many MiB O(max_used_mib) is raised on each GPU that an allowed process is on.
      - Allowed processes are still watched, and a new one starts O(stable_for) anew.
    type: int
    default: 0
attributes:
  check_mode:
    description: Looks once and returns that, without waiting; a GPU that is not free fails nothing.
    support: full
  diff_mode:
    description: Changes nothing, so there is no difference to show.
    support: none
  platform:
    description: The platforms it runs on.
    support: full
    platforms: linux
seealso:
  - module: inferops.sglang.gpu_info
  - module: inferops.sglang.gpu_reclaim
"""

EXAMPLES = r"""
- name: Wait until all eight GPUs are free
  inferops.sglang.gpu_wait_free:
    expected_count: 8
  become: true

- name: Accept a weight cache with up to 40 GiB on a GPU
  inferops.sglang.gpu_wait_free:
    gpus: ["0", "1"]
    allow_users: [weightcache]
    allow_mib: 40960
    timeout: 300
    stable_for: 5
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
    - At least V(1) where C(/proc) does not show processes of others (mount option C(hidepid)), whose number nobody
      knows.
  returned: when the driver could be asked
  type: int
  sample: 0
elapsed:
  description: How long the wait took, in seconds.
  returned: when the driver could be asked
  type: float
  sample: 3.412
free_after:
  description: After how many seconds the GPUs were free for good. Null where they were not, and in check mode.
  returned: when the driver could be asked
  type: float
  sample: 1.404
samples:
  description: How often the GPUs were looked at.
  returned: when the driver could be asked
  type: int
  sample: 34
timeline:
  description:
    - What changed, in order of time, beginning with the first look at each GPU.
    - Memory that moves by 16 MiB or less is no change. There are at most 200 entries, the first and the last hundred.
  returned: when the driver could be asked
  type: list
  elements: dict
  contains:
    at:
      description: The time since the start, in seconds.
      returned: always
      type: float
      sample: 1.404
    index:
      description: The NVML index of the GPU.
      returned: always
      type: int
      sample: 0
    used_mib:
      description: Memory in use, in MiB. Null where it could not be read.
      returned: always
      type: int
      sample: 0
    holders:
      description: The PIDs of the processes on it.
      returned: always
      type: list
      elements: int
      sample: []
    verdict:
      description: V(free), V(busy) or V(unknown).
      returned: always
      type: str
      sample: free
    reason:
      description: The reason code as in RV(gpus[].reason).
      returned: always
      type: str
      sample: ""
  sample:
    - at: 0.004
      index: 0
      used_mib: 1643
      holders: [602]
      verdict: busy
      reason: holder
    - at: 1.404
      index: 0
      used_mib: 0
      holders: []
      verdict: free
      reason: ""
timeline_dropped:
  description: How many entries are missing in the middle of RV(timeline).
  returned: when the driver could be asked
  type: int
  sample: 0
reason:
  description:
    - Why the module failed, as a stable code.
    - V(timeout), V(pointless) (waiting longer cannot help), or what kept NVML from being used, such as
      V(library_mismatch), V(count) or V(selection).
  returned: failure
  type: str
  sample: timeout
"""

from ansible_collections.inferops.sglang.plugins.module_utils.modules.gpu_wait_free import main

if __name__ == "__main__":
    main()
