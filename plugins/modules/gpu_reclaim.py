#!/usr/bin/python
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: end the processes that use GPUs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_reclaim
short_description: End the processes that use the selected NVIDIA GPUs
version_added: 0.1.0
author: ["inferops.sglang authors (@inferops)"]
description:
  - Ends the processes that hold the selected GPUs, first with SIGTERM, then with SIGKILL, and returns when the driver
    has dropped them from its lists.
  - A process is identified by its PID and its start time, and both are checked when it is signalled. A name, a process
    group or a user never decides that a process is ended.
  - A process that the driver lists on a selected GPU is ended even if it uses other GPUs too. A process that is listed
    on other GPUs only is never touched, whatever it has open.
  - A process that only has a selected GPU open (a descriptor of any thread, or a mapping) is ended if it has no other
    GPU open and is no monitor; see O(attached).
  - Where the driver lists a PID that has ended, that number is never signalled. A process that was forked from it and
    keeps the GPU open is what holds the memory, and is ended. Where there is none, the PID is V(unresolved), and the
    task fails if it stays on the list.
  - Never ended are the module itself and all its parents, PIDs up to 2, the daemons of the NVIDIA driver (persistence
    daemon, DCGM host engine and exporter, fabric manager, NVLink subnet manager, IMEX, power daemon, MPS control daemon
    and server), NVIDIA System Management, X servers, desktops and display managers, as told from their executables and
    systemd units, and whoever the options O(protect_users) to O(protect_sessions) and O(allow_users) to
    O(allow_containers) name.
  - Nobody is ended in circles. A process that comes back after it was ended (its unit has C(Restart=always), its
    container a restart policy, supervisord or another parent starts it anew) is left alone, and the task fails and
    names who starts it. Set O(stop_services), or stop that yourself.
  - The clients of the CUDA Multi-Process Service are ended through its control daemon first, since a client that dies
    in the middle of its work can hang the server.
  - The task fails before it signals anybody if the processes of a selected GPU cannot be read, or if the driver wants a
    reboot or a drain.
  - Ending a process is not the end of the wait for its memory, so have M(inferops.sglang.gpu_wait_free) follow.
  - Each signal and each service that is stopped is recorded on the host, see O(audit_path).
extends_documentation_fragment:
  - inferops.sglang.gpu_selection
  - inferops.sglang.gpu_allow
  - inferops.sglang.audit
options:
  grace:
    description:
      - How many seconds the processes get to end after SIGTERM, before SIGKILL.
      - With V(0), SIGKILL is sent at once.
    type: float
    default: 10.0
  kill_timeout:
    description:
      - How many seconds to wait for the end of processes after SIGKILL, and then for the driver to drop them from its
        lists.
    type: float
    default: 60.0
  users:
    description:
      - End only processes of these users (names or numeric ids). Empty means of any user.
      - Others stay, and are V(skipped). A process must fit each of O(users), O(units), O(containers) and
        O(command_pattern) that is set.
    type: list
    elements: str
    default: []
  units:
    description:
      - End only processes of these systemd units, given as shell patterns. V(.service) may be left out.
      - A unit inside a container or guest is none of the host's and fits nothing here.
    type: list
    elements: str
    default: []
  containers:
    description: End only processes in these containers or guests. See O(allow_containers) for the forms.
    type: list
    elements: str
    default: []
  command_pattern:
    description:
      - End only processes whose command line contains a match of this regular expression (Python's). It narrows what
        is ended, and never makes a process a holder.
      - Command lines are compared on the host and never returned.
    type: str
    default: ""
  attached:
    description:
      - What to do with processes that only have a selected GPU open, without being listed on it.
      - V(exclusive) ends those that have no GPU outside the selection mapped (or, where they map none, open) and are no
        monitors. A monitor, such as C(nvtop), has the library of NVML loaded and maps no GPU.
      - V(any) ends all of them, V(never) none.
    type: str
    choices: [exclusive, any, never]
    default: exclusive
  protect_users:
    description: Never end processes of these users (names or numeric ids).
    type: list
    elements: str
    default: []
  protect_executables:
    description:
      - Never end processes that run one of these executables, given as an absolute path or as a file name in any
        folder.
      - It is compared with C(/proc/PID/exe), so a Python program counts as its interpreter.
    type: list
    elements: str
    default: []
  protect_units:
    description: Never end processes of these systemd units. See O(units) for the forms.
    type: list
    elements: str
    default: []
  protect_containers:
    description: Never end processes in these containers or guests. See O(allow_containers) for the forms.
    type: list
    elements: str
    default: []
  protect_sessions:
    description:
      - Never end processes of these sessions, each given as the PID of the process that began it (the column C(SID) of
        C(ps)).
      - A server that M(inferops.sglang.sglang_process) runs has a session of its own, with all its workers.
    type: list
    elements: int
    default: []
  stop_services:
    description:
      - Whether the systemd service, docker or podman container, supervisord program or service of an LXC guest that
        runs a process is stopped, instead of killing what it would start again. What is left of it afterwards is
        ended as usual.
      - A service that also runs a holder that is not to be ended (a protected one, one that a filter leaves out, one on
        a GPU outside the selection) is refused before anything is touched.
      - Units that run other people's processes (SSH, cron, container engines, kubelet, slurmd, login sessions) and the
        one that this task runs in are never stopped. Pods of Kubernetes cannot be stopped from here and are named.
      - A stopped service stays stopped. It is neither disabled nor started again.
    type: bool
    default: false
  service_timeout:
    description: How many seconds one service gets to stop.
    type: float
    default: 90.0
  stop_mps:
    description:
      - Whether the CUDA Multi-Process Service is shut down through its control daemon once its clients have ended. Its
        server keeps some memory of the GPUs otherwise.
      - Refused while it serves processes that are not ended.
    type: bool
    default: false
  ignore_recovery_action:
    description: Whether processes are ended although the driver wants the GPU drained or the host rebooted.
    type: bool
    default: false
attributes:
  check_mode:
    description: Reads and decides everything and signals nobody.
    support: full
  diff_mode:
    description: Shows the processes on the selected GPUs before and after.
    support: full
  platform:
    description: The platforms it runs on.
    support: full
    platforms: linux
seealso:
  - module: inferops.sglang.gpu_info
  - module: inferops.sglang.gpu_wait_free
"""

EXAMPLES = r"""
- name: End what uses the GPUs, except for the weight cache
  inferops.sglang.gpu_reclaim:
    expected_count: 8
    protect_users: [weightcache]
  become: true

- name: End only the processes of one user on two GPUs, with half a minute to finish
  inferops.sglang.gpu_reclaim:
    gpus: [GPU-dcf0d3fb, "0000:00:07.0"]
    users: [llm]
    grace: 30
  become: true

- name: Stop the services and containers that use the GPUs, and end what they leave behind
  inferops.sglang.gpu_reclaim:
    stop_services: true
    protect_units: ["weight-cache@*"]
  become: true

- name: End only what runs in one Proxmox guest, seen from its host
  inferops.sglang.gpu_reclaim:
    containers: ["lxc:129"]
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
processes:
  description:
    - The processes that were on the selected GPUs at the start, by ascending PID, with what became of them.
    - Each has the keys of RV(holders) and the following.
  returned: when the selected GPUs could be read
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
    action:
      description:
        - V(terminated) (ended after SIGTERM), V(killed) (needed SIGKILL), V(stopped_service) (ended with its service),
          V(vanished) (was gone before a signal reached it), V(survived), V(protected), V(skipped) (left alone by an
          option) or V(unresolved) (not known to be a process of this host, so not signalled).
        - In check mode V(would_terminate) or V(would_stop_service) instead of the first five.
      returned: always
      type: str
      sample: terminated
    why:
      description: Why this was done, or why it could not be done.
      returned: always
      type: str
      sample: listed by the driver
    signals:
      description: The signals that were sent, in this order.
      returned: always
      type: list
      elements: str
      sample: [SIGTERM]
    seconds:
      description: The time from the first signal to the end of the process, in seconds.
      returned: always
      type: float
      sample: 0.312
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
      unit: null
      cgroup: /user.slice/user-1000.slice/session-3.scope
      container: null
      namespace_pid: null
      protected: false
      protected_by: ""
      action: terminated
      why: listed by the driver
      signals: [SIGTERM]
      seconds: 0.312
survivors:
  description: Those of RV(processes) that were signalled and still live, with the same keys.
  returned: when the selected GPUs could be read
  type: list
  elements: dict
  sample: []
remaining:
  description:
    - The processes that use the selected GPUs at the end, or have them open, with the keys of RV(holders).
    - In check mode those that would stay.
  returned: when the selected GPUs could be read
  type: list
  elements: dict
  sample: []
blockers:
  description:
    - A sentence for each of RV(remaining) that keeps its GPU from being free and is not allowed to stay.
    - In check mode it tells beforehand that the GPUs could not be freed.
  returned: when the selected GPUs could be read
  type: list
  elements: str
  sample: ["python3 (PID 900, alice): its user alice is not in users"]
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
  description: How long the module took, in seconds.
  returned: when the selected GPUs could be read
  type: float
  sample: 0.521
reason:
  description:
    - Why the module failed, as a stable code.
    - V(survivors), V(unresolved), V(retaken) (a process came back or a new one is on the GPUs), V(service) (a service
      could not be stopped), V(unknown) (a GPU cannot be read), V(recovery_action) (the driver wants a reboot or a
      drain), or what kept the driver from being asked, such as V(library_mismatch), V(count) or V(selection).
  returned: failure
  type: str
  sample: survivors
"""

from ansible_collections.inferops.sglang.plugins.module_utils.modules.gpu_reclaim import main

if __name__ == "__main__":
    main()
