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
"""

RETURN = r"""
driver_version:
  description: The version of the NVIDIA driver.
  returned: when NVML could be used
  type: str
  sample: 580.159.04
nvml_version:
  description: The version of the NVML library.
  returned: when NVML could be used
  type: str
  sample: 13.580.159.04
selected:
  description:
    - The UUIDs that O(gpus) was resolved to, in the order of the indices. A GPU that could not be identified has
      none.
  returned: when NVML could be used
  type: list
  elements: str
  sample: [GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e]
gpus:
  description: The selected GPUs, by ascending index.
  returned: when NVML could be used
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
        - V(nvml_v2) where RV(gpus[].memory_used_mib) is without the driver's own memory, V(nvml_v1) where it
          contains it.
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
    verdict:
      description: V(free), V(busy) or V(unknown). What could not be read is never V(free).
      returned: always
      type: str
      sample: free
    reason:
      description:
        - Why the GPU is not free, as a stable code; empty where it is.
        - For V(busy) one of V(holder) (a process is listed), V(memory) (allowed processes use more than they may) and
          V(unattributed) (memory is in use and no process is listed).
        - For V(unknown) V(hung), V(crashed), V(lost), V(no_permission), V(library_mismatch), V(reset_required),
          V(not_supported), V(implausible_pid), V(inconsistent_memory) and others.
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
      verdict: free
      reason: ""
      message: 0 MiB used and no process listed.
holders:
  description: The processes on the selected GPUs, by ascending PID.
  returned: when NVML could be used
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
      description: The UUIDs of those selected GPUs that it uses.
      returned: always
      type: list
      elements: str
      sample: [GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e]
    attached:
      description: The UUIDs of GPUs that it merely has open. Always empty in this version.
      returned: always
      type: list
      elements: str
      sample: []
    evidence:
      description: The lists it was found in, of V(nvml_compute), V(nvml_graphics) and V(nvml_mps).
      returned: always
      type: list
      elements: str
      sample: [nvml_compute]
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
    state:
      description:
        - The kernel's letter for its state, such as V(R), V(S), V(D), V(T) or V(Z); empty where there is no process.
      returned: always
      type: str
      sample: S
    unit:
      description: The systemd unit it belongs to, null where there is none.
      returned: always
      type: str
      sample: sglang-main.service
    container:
      description: The container it runs in. Always null in this version.
      returned: always
      type: str
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
      evidence: [nvml_compute]
      memory_mib: 1634
      per_gpu_mib:
        GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e: 1634
      state: S
      unit: sglang-main.service
      container: null
      protected: false
      protected_by: ""
reason:
  description: Why the module failed, as a stable code such as V(library_mismatch), V(count) or V(selection).
  returned: failure
  type: str
  sample: library_mismatch
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import options
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import GpuError
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.nvml_session import NvmlSession
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.observer import Observer, select
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.open import open_session
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.pynvml_guard import DISTRIBUTION, PynvmlMissing
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.results import look_result, recovery_warnings
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.verdict import Limits
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs


def inspect(module: AnsibleModule, session: NvmlSession, procfs: ProcFs) -> dict[str, Any]:
    """Take one look and return the module's result."""
    indices = select(session, module.params["gpus"], module.params["expected_count"])
    look = Observer(session, procfs, indices).look()
    for warning in recovery_warnings(look.readings):
        module.warn(warning)
    return look_result(session.system, look, Limits(max_used_mib=module.params["max_used_mib"]))


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={**options.selection_spec(), **options.free_spec()},
        supports_check_mode=True,
    )
    procfs = ProcFs()
    try:
        options.check_selection(module.params)
        options.check_free(module.params)
        with open_session(module.params["nvml_timeout"], procfs) as session:
            result = inspect(module, session, procfs)
    except PynvmlMissing as exc:
        module.fail_json(msg=missing_required_lib(DISTRIBUTION), reason="pynvml_missing", exception=exc.trace)
    except GpuError as exc:
        module.fail_json(msg=str(exc), reason=exc.failure.code)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
