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
  - Ends the processes that NVML lists on the selected GPUs, first with SIGTERM, then with SIGKILL.
  - A process is identified by its PID and its start time, and both are checked when it is signalled. A name never
    decides anything.
  - A process that is listed on a selected GPU is ended even if it uses other GPUs too. A process that is listed on
    other
    GPUs only is never touched.
  - Never ended are the module itself and all its parents, PIDs up to 2, the daemons of the NVIDIA driver (persistence
    daemon, DCGM host engine and exporter, fabric manager, NVLink subnet manager, IMEX, MPS control daemon and
    server),
    NVIDIA System Management, X servers and display managers, as told from their executables and systemd units, and
    whoever O(protect_users) and O(protect_executables) name.
  - A listed PID that is no process of this host (it has ended, or runs in another PID namespace), or whose process
    has no
    NVIDIA device open, is never signalled. It is V(unresolved), and if it stays on the list the task fails.
  - The task fails before it signals anybody if the state of a selected GPU is V(unknown).
  - It does not stop services. Where a service manager starts the process again, this is noticed if it happens at
    once,
    and the task fails and names the new process. Stop the service first.
  - Ending a process is not the end of the wait for its memory, so have M(inferops.sglang.gpu_wait_free) follow.
extends_documentation_fragment:
  - inferops.sglang.gpu_selection
options:
  grace:
    description:
      - How many seconds the processes get to end after SIGTERM, before SIGKILL.
      - With V(0), SIGKILL is sent at once.
    type: float
    default: 10.0
  kill_timeout:
    description:
      - How many seconds to wait for the end of processes after SIGKILL, and then for NVML to drop them from its
        lists.
    type: float
    default: 60.0
  users:
    description:
      - End only processes of these users (names or numeric ids). Empty means of any user.
      - Others stay, and are V(skipped).
    type: list
    elements: str
    default: []
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
  allow_users:
    description:
      - Processes of these users (names or numeric ids) may stay. They are not ended, and are no RV(blockers).
    type: list
    elements: str
    default: []
  allow_executables:
    description:
      - Processes that run one of these executables may stay. See O(protect_executables) for the forms.
    type: list
    elements: str
    default: []
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
    action:
      description:
        - V(terminated) (ended after SIGTERM), V(killed) (needed SIGKILL), V(vanished) (was gone before a signal
          reached it),
          V(survived), V(protected), V(skipped) (not of O(users)) or V(unresolved) (not known to be a process of this
          host, so not signalled).
        - In check mode V(would_terminate) instead of the first four.
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
      evidence: [nvml_compute]
      memory_mib: 1634
      per_gpu_mib:
        GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e: 1634
      state: S
      unit: null
      container: null
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
    - The processes that are on the selected GPUs at the end, with the keys of RV(holders).
    - In check mode those that would stay.
  returned: when the selected GPUs could be read
  type: list
  elements: dict
  sample: []
blockers:
  description:
    - A sentence for each of RV(remaining) that keeps its GPU from being free, as neither O(allow_users) nor
      O(allow_executables) covers it.
    - In check mode it tells beforehand that the GPUs could not be freed.
  returned: when the selected GPUs could be read
  type: list
  elements: str
  sample: ["python3 (PID 900, alice): its user alice is not in users"]
elapsed:
  description: How long the module took, in seconds.
  returned: when the selected GPUs could be read
  type: float
  sample: 0.521
reason:
  description:
    - Why the module failed, as a stable code.
    - V(survivors), V(unresolved), V(retaken) (a new process is on the GPUs), V(unknown) (a GPU cannot be read), or
      what
      kept NVML from being used, such as V(library_mismatch), V(count) or V(selection).
  returned: failure
  type: str
  sample: survivors
"""

import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import options, reclaim
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import UNKNOWN, GpuError
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.nvml_session import NvmlSession
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.observer import Look, Observer, select
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.open import open_session
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.plan import END, Plan, plan_reclaim
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.protection import Allowance
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.pynvml_guard import DISTRIBUTION, PynvmlMissing
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.results import (
    holder_results,
    look_result,
    not_free,
    recovery_warnings,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.users import user_ids
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.verdict import Limits
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs
from ansible_collections.inferops.sglang.plugins.module_utils.system.termination import end_processes

LIMITS = Limits()


class Reclaim:
    """One run: look, plan, act, look again."""

    def __init__(
        self,
        module: AnsibleModule,
        session: NvmlSession,
        procfs: ProcFs,
        users: frozenset[int],
        allowance: Allowance,
    ) -> None:
        self.module = module
        self.params = module.params
        self.session = session
        self.procfs = procfs
        self.users = users
        self.allowance = allowance
        self.began = time.monotonic()

    def run(self, observer: Observer) -> None:
        """Do it, and leave the module with its result."""
        before = observer.look()
        for warning in recovery_warnings(before.readings):
            self.module.warn(warning)
        if any(verdict.state == UNKNOWN for verdict in before.verdicts(LIMITS)):
            self.module.fail_json(
                msg="Nobody was signalled, because not every selected GPU can be read. %s"
                % " ".join(text for text in not_free(before, LIMITS) if " is %s " % UNKNOWN in text),
                changed=False,
                reason=UNKNOWN,
                **look_result(self.session.system, before, LIMITS),
            )
        plan = plan_reclaim(before.holders, before.uuids, self.users)
        if self.module.check_mode:
            self.preview(before, plan)
        self.act(observer, before, plan)

    def preview(self, before: Look, plan: Plan) -> None:
        """Leave with what would be done."""
        doomed = frozenset(holder.pid for holder in plan.targets)
        self.module.exit_json(
            changed=bool(doomed),
            processes=reclaim.planned_rows(plan),
            survivors=[],
            remaining=holder_results([holder for holder in before.holders if holder.pid not in doomed]),
            blockers=reclaim.blockers([d for d in plan.decisions if d.action != END], self.allowance),
            elapsed=self.elapsed(),
            **self.diff(reclaim.diff_text(before.holders), reclaim.diff_text(before.holders, without=doomed)),
            **look_result(self.session.system, before, LIMITS),
        )

    def act(self, observer: Observer, before: Look, plan: Plan) -> None:
        """End the targets and leave with what became of them."""
        outcomes = end_processes(
            reclaim.identities(plan.targets), self.params["grace"], self.params["kill_timeout"], procfs=self.procfs
        )
        after = reclaim.settle(
            observer.look,
            leaving=reclaim.leaving_pids(plan, outcomes),
            patience=reclaim.patience_for(outcomes, self.params["kill_timeout"]),
            clock=time.monotonic,
            sleep=time.sleep,
        )
        rows = reclaim.final_rows(plan, outcomes, after)
        result: dict[str, Any] = {
            "changed": any(outcome.action in ("terminated", "killed") for outcome in outcomes),
            "processes": rows,
            "survivors": [row for row in rows if row["action"] == reclaim.SURVIVED],
            "remaining": holder_results(after.holders),
            "blockers": reclaim.blockers(
                plan_reclaim(after.holders, before.uuids, self.users).decisions, self.allowance
            ),
            "elapsed": self.elapsed(),
        }
        result.update(self.diff(reclaim.diff_text(before.holders), reclaim.diff_text(after.holders)))
        result.update(look_result(self.session.system, after, LIMITS))
        problems = reclaim.problems(plan, outcomes, after, before.uuids, self.users)
        if problems:
            sentences = [sentence for found in problems.values() for sentence in found]
            self.module.fail_json(
                msg="Not all selected GPUs could be reclaimed: %s." % ". ".join(s.rstrip(".") for s in sentences),
                reason=next(iter(problems)),
                **result,
            )
        self.module.exit_json(**result)

    def elapsed(self) -> float:
        """Seconds since the start."""
        return round(time.monotonic() - self.began, 3)

    def diff(self, before: str, after: str) -> dict[str, Any]:
        """The diff, where one is asked for."""
        if not self.module._diff:
            return {}
        return {"diff": {"before": before, "after": after, "before_header": "holders", "after_header": "holders"}}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={**options.selection_spec(), **options.reclaim_spec(), **options.allow_spec()},
        supports_check_mode=True,
    )
    procfs = ProcFs()
    try:
        options.check_selection(module.params)
        options.check_reclaim(module.params)
        options.check_allow(module.params)
        users = user_ids("users", module.params["users"])
        protect_uids = user_ids("protect_users", module.params["protect_users"])
        allowance = Allowance(
            user_ids("allow_users", module.params["allow_users"]), tuple(module.params["allow_executables"])
        )
        with open_session(module.params["nvml_timeout"], procfs) as session:
            observer = Observer(
                session,
                procfs,
                select(session, module.params["gpus"], module.params["expected_count"]),
                protect_uids=protect_uids,
                protect_executables=module.params["protect_executables"],
                allowance=allowance,
            )
            Reclaim(module, session, procfs, users, allowance).run(observer)
    except PynvmlMissing as exc:
        module.fail_json(msg=missing_required_lib(DISTRIBUTION), reason="pynvml_missing", exception=exc.trace)
    except GpuError as exc:
        module.fail_json(msg=str(exc), reason=exc.failure.code)


if __name__ == "__main__":
    main()
