# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the module gpu_reclaim does; plugins/modules/gpu_reclaim.py has its options."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any, Optional, Type

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import options, reclaim_report, recovery
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.keepers import container_names, own_supervisors
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import UNKNOWN, GpuError, Holder
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.mps import MpsControl
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.observer import (
    EVERYTHING,
    Look,
    Observer,
    select,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.open import open_session
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.plan import END, Plan
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.protection import Allowance
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.pynvml_guard import DISTRIBUTION, PynvmlMissing
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reclaim import (
    STOPPED_SERVICE,
    SURVIVED,
    Done,
    Reclaim,
    Settings,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.results import (
    holder_results,
    look_result,
    not_free,
    warnings_of,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.selection import Target
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.services import bystanders, stoppable
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.verdict import Limits
from ansible_collections.inferops.sglang.plugins.module_utils.system.audit import AuditLog, audit_options
from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import run as run_command
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity, ProcFs
from ansible_collections.inferops.sglang.plugins.module_utils.system.quick_exit import leave_quickly
from ansible_collections.inferops.sglang.plugins.module_utils.system.stuck import explain
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import Supervisor

# Whether a GPU is sound is asked separately: a reset is no reason not to end what uses the GPU.
LIMITS = Limits(ignore_recovery=True)
# What is reported: such a GPU is not free, whoever has left it.
REPORTED = Limits()


class Task:
    """One run of the module: look, plan, act, look again."""

    def __init__(self, module: AnsibleModule, session: Any, procfs: ProcFs, audit: AuditLog) -> None:
        params = module.params
        self.module = module
        self.audit = audit
        self.session = session
        self.procfs = procfs
        self.began = time.monotonic()
        self.allowance = Allowance(options.who_from(params, "allow"))
        self.supervisors = own_supervisors(procfs, params["grace"])
        self.mps = MpsControl(run_command, procfs)
        self.targets = select(session, params["gpus"], params["expected_count"])
        self.observer = self.observe(self.targets)
        self.reclaim = Reclaim(
            self.observer,
            options.rules_from(params),
            Settings(params["grace"], params["kill_timeout"], params["service_timeout"], params["stop_mps"]),
            procfs,
            self.supervisors,
            self.mps,
            clock=time.monotonic,
            sleep=time.sleep,
            audit=audit,
        )

    def observe(self, targets: tuple[Target, ...]) -> Observer:
        """Looks at these GPUs."""
        return Observer(
            self.session,
            self.procfs,
            targets,
            protect=options.who_from(self.module.params, "protect"),
            allowance=self.allowance,
            container_name=container_names(lambda: self.supervisors),
        )

    def run(self) -> None:
        """Do it, and leave the module with its result."""
        before = self.observer.look(EVERYTHING, LIMITS)
        for warning in warnings_of(before, root=os.geteuid() == 0):
            self.module.warn(warning)
        self.refuse_unsound(before)
        plan = self.reclaim.plan(before)
        keepers = self.reclaim.supervisors_of(plan)
        services = stoppable(keepers) if self.module.params["stop_services"] else {}
        self.refuse_outside(before, plan, services)
        if self.module.check_mode:
            self.preview(before, plan, keepers, services)
        self.report(before, self.reclaim.run(before, plan, keepers, services))

    # -- reasons not to begin

    def refuse(self, before: Look, reason: str, why: str) -> None:
        """Fail before anybody was signalled."""
        self.module.fail_json(
            msg="Nobody was signalled: %s" % why,
            changed=False,
            reason=reason,
            **look_result(self.session, before, REPORTED),
        )

    def refuse_unsound(self, before: Look) -> None:
        """A GPU that cannot be read may hold anybody; one that wants a reboot is not freed by ending processes."""
        if not self.module.params["ignore_recovery_action"]:
            beyond = recovery.beyond_processes(before.readings)
            if beyond:
                why = " ".join("GPU %d (%s): %s" % (r.index, r.uuid, recovery.sentence(r)) for r in beyond)
                self.refuse(before, recovery.REASON, "%s Follow it, or set ignore_recovery_action." % why)
        # A GPU without memory figures is unknown, too; who uses it is known nevertheless.
        unread = [reading for reading in before.readings if not reading.processes_read]
        if any(verdict.state == UNKNOWN for verdict in replace(before, readings=tuple(unread)).verdicts(LIMITS)):
            why = " ".join(not_free(replace(before, readings=tuple(unread)), LIMITS, UNKNOWN))
            self.refuse(before, UNKNOWN, "not every selected GPU can be read. %s" % why)

    def refuse_outside(self, before: Look, plan: Plan, services: dict[int, Supervisor]) -> None:
        """Services and MPS may reach beyond the selection; then they are not stopped."""
        if services:
            indices = {target.index for target in self.targets}
            others = tuple(Target(i) for i in range(self.session.system.count) if i not in indices)
            outside = self.observe(others).look().holders if others else ()
            sentences = bystanders(services, outside, plan, self.supervisors.of)
            if sentences:
                self.refuse(before, "service", "%s." % ". ".join(sentences))
        if self.module.params["stop_mps"]:
            doomed = {holder.pid for holder in plan.targets}
            served = self.reclaim.mps_clients()
            daemons = self.reclaim.mps_daemons(plan)
            foreign = sorted(pid for pid in served if pid not in doomed and self.reclaim.mps_daemon_of(pid) in daemons)
            if foreign:
                self.refuse(
                    before,
                    "service",
                    "stop_mps would end work of processes that are not to be ended: PID %s. End them first, or leave "
                    "stop_mps out." % ", ".join(str(pid) for pid in foreign),
                )

    # -- results

    def preview(
        self, before: Look, plan: Plan, keepers: dict[int, Supervisor], services: dict[int, Supervisor]
    ) -> None:
        """Leave with what would be done."""
        doomed = frozenset(holder.pid for holder in plan.targets)
        rows = reclaim_report.planned_rows(plan, services, keepers, self.reclaim.notes(plan))
        self.mark_mps(rows, reclaim_report.WOULD_STOP_SERVICE)
        self.module.exit_json(
            changed=any(row["action"].startswith("would_") for row in rows),
            processes=rows,
            survivors=[],
            remaining=holder_results([holder for holder in before.holders if holder.pid not in doomed]),
            blockers=reclaim_report.blockers(
                [d for d in plan.decisions if d.action != END], before, LIMITS, self.allowance
            ),
            elapsed=self.elapsed(),
            **self.diff(
                reclaim_report.diff_text(before.holders), reclaim_report.diff_text(before.holders, without=doomed)
            ),
            **look_result(self.session, before, REPORTED),
        )

    def report(self, before: Look, done: Done) -> None:
        """Leave with what became of the holders."""
        rows = reclaim_report.final_rows(done)
        if done.mps_stopped == "":
            self.mark_mps(rows, STOPPED_SERVICE)
        for warning in [*done.suspicions, *self.audit.problems]:
            self.module.warn(warning)
        after = self.reclaim.plan(done.after)
        result: dict[str, Any] = {
            "changed": done.changed,
            "processes": rows,
            "survivors": [row for row in rows if row["action"] == SURVIVED],
            "remaining": holder_results(done.after.holders),
            "blockers": reclaim_report.blockers(after.decisions, done.after, LIMITS, self.allowance),
            "elapsed": self.elapsed(),
        }
        result.update(self.diff(reclaim_report.diff_text(before.holders), reclaim_report.diff_text(done.after.holders)))
        result.update(look_result(self.session, done.after, REPORTED))
        problems = reclaim_report.problems(
            done, after, self.reclaim.newcomers(done.after, done), self.why_stuck, self.supervisor_of
        )
        leave_quickly()
        if problems:
            sentences = [sentence for found in problems.values() for sentence in found]
            self.module.fail_json(
                msg="Not all selected GPUs could be reclaimed: %s." % ". ".join(s.rstrip(".") for s in sentences),
                reason=next(iter(problems)),
                **result,
            )
        self.module.exit_json(**result)

    def mark_mps(self, rows: list[dict[str, Any]], action: str) -> None:
        """Say of the daemons of MPS that they are shut down."""
        if self.module.params["stop_mps"]:
            for row in rows:
                if row["exe"].rpartition("/")[2].startswith("nvidia-cuda-mps-"):
                    row.update(action=action, why="stop_mps")

    def why_stuck(self, identity: ProcessIdentity) -> str:
        """Why a process is still there after SIGKILL, and what to do."""
        process = self.procfs.read(identity.pid)
        return explain(process, self.procfs) if process is not None and process.identity == identity else ""

    def supervisor_of(self, holder: Holder) -> Optional[Supervisor]:
        """Who started a holder."""
        return self.supervisors.of(holder.process) if holder.process is not None else None

    def elapsed(self) -> float:
        """Seconds since the start."""
        return round(time.monotonic() - self.began, 3)

    def diff(self, before: str, after: str) -> dict[str, Any]:
        """The diff, where one is asked for."""
        if not self.module._diff:
            return {}
        return {"diff": {"before": before, "after": after, "before_header": "holders", "after_header": "holders"}}


def main(module_class: Type[AnsibleModule] = AnsibleModule) -> None:
    """Run the module; module_class makes it out of its options."""
    module = module_class(
        argument_spec={
            **options.selection_spec(),
            **options.reclaim_spec(),
            **options.allow_spec(),
            **audit_options(),
        },
        supports_check_mode=True,
    )
    procfs = ProcFs()
    audit = AuditLog.of_module(module)
    try:
        options.check_selection(module.params)
        options.check_reclaim(module.params)
        options.check_allow(module.params)
        for verb in ("protect", "allow"):
            options.who_from(module.params, verb)
        options.rules_from(module.params)
        with open_session(module.params["nvml_timeout"], procfs, module.params["reader"]) as session:
            Task(module, session, procfs, audit).run()
    except PynvmlMissing as exc:
        module.fail_json(msg=missing_required_lib(DISTRIBUTION), reason="pynvml_missing", exception=exc.trace)
    except GpuError as exc:
        for warning in audit.problems:
            module.warn(warning)
        module.fail_json(msg=str(exc), reason=exc.failure.code)
