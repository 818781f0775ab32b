#!/usr/bin/python
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: which GPUs a host has, and who uses them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_info
short_description: Show NVIDIA GPUs and the processes that use them
version_added: 0.1.0
author: ["inferops.sglang authors (@inferops)"]
description:
  - Reads memory, state and processes of the selected GPUs and judges each as V(free), V(busy) or V(unknown).
  - A GPU that cannot be read does not fail the module, it is V(unknown) with a reason. NVML that cannot be used at
    all does.
  - Tells of every process that uses a selected GPU or has it open, from the driver's lists, the descriptors of every
    thread and the memory maps, with its user, systemd unit and container.
  - Changes nothing.
extends_documentation_fragment:
  - inferops.sglang.gpu_selection
  - inferops.sglang.gpu_free
attributes:
  check_mode:
    description: Can run in check mode and returns the same.
    support: full
  diff_mode:
    description: Changes nothing, so there is no difference to show.
    support: none
  platform:
    description: The platforms it runs on.
    support: full
    platforms: linux
seealso:
  - module: inferops.sglang.gpu_reclaim
  - module: inferops.sglang.gpu_wait_free
"""

EXAMPLES = r"""
- name: See all GPUs of a host that must have eight
  inferops.sglang.gpu_info:
    expected_count: 8
  become: true
  register: result

- name: Refuse to go on unless the first two GPUs are free
  ansible.builtin.assert:
    that: result.gpus[:2] | map(attribute='verdict') | unique == ['free']
    fail_msg: "{{ result.gpus[:2] | map(attribute='message') | join(' ') }}"

- name: Record what the idle GPUs of a workstation use
  inferops.sglang.gpu_info:
  become: true
  register: idle

- name: Wait later until they use no more than that and 100 MiB
  inferops.sglang.gpu_wait_free:
    baseline: "{{ idle.baseline }}"
    max_used_mib: 100
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
baseline:
  description:
    - The memory in use in MiB by UUID, of those selected GPUs that nobody is listed on. Record it while the host is
      idle, for O(inferops.sglang.gpu_wait_free#module:baseline).
  returned: when the driver could be asked
  type: dict
  sample:
    GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e: 0
reason:
  description: Why the module failed, as a stable code such as V(library_mismatch), V(count) or V(selection).
  returned: failure
  type: str
  sample: library_mismatch
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import options
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.keepers import container_names, own_supervisors
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import GpuError
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.observer import (
    EVERYTHING,
    Observer,
    select,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.open import open_session
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.protection import Allowance
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.pynvml_guard import DISTRIBUTION, PynvmlMissing
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.results import baseline_of, look_result, warnings_of
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs


def inspect(module: AnsibleModule, session: Any, procfs: ProcFs) -> dict[str, Any]:
    """Take one look and return the module's result."""
    limits = options.limits_from(module.params, Allowance())
    targets = select(session, module.params["gpus"], module.params["expected_count"])
    names = container_names(lambda: own_supervisors(procfs))
    look = Observer(session, procfs, targets, container_name=names).look(EVERYTHING, limits)
    options.check_baseline(module.params, look.uuids)
    for warning in warnings_of(look, root=os.geteuid() == 0):
        module.warn(warning)
    return {**look_result(session, look, limits), "baseline": baseline_of(look)}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={**options.selection_spec(), **options.free_spec()},
        mutually_exclusive=options.mutually_exclusive(),
        supports_check_mode=True,
    )
    procfs = ProcFs()
    try:
        options.check_selection(module.params)
        options.check_free(module.params)
        with open_session(module.params["nvml_timeout"], procfs, module.params["reader"]) as session:
            result = inspect(module, session, procfs)
    except PynvmlMissing as exc:
        module.fail_json(msg=missing_required_lib(DISTRIBUTION), reason="pynvml_missing", exception=exc.trace)
    except GpuError as exc:
        module.fail_json(msg=str(exc), reason=exc.failure.code)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
