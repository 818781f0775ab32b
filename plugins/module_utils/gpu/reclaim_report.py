# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tells what would become, or has become, of the processes on the selected GPUs."""

from __future__ import annotations

from typing import AbstractSet, Any, Callable, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Holder
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.observer import Look
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.plan import END, UNRESOLVED, Decision, Plan
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.protection import Allowance
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reclaim import (
    STOPPED_SERVICE,
    SURVIVED,
    Done,
    over,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.results import holder_result
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.services import describe, key_of
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.verdict import Limits
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import Supervisor
from ansible_collections.inferops.sglang.plugins.module_utils.system.termination import Outcome

VANISHED = "vanished"
WOULD_TERMINATE = "would_terminate"
WOULD_STOP_SERVICE = "would_stop_service"


def blockers(decisions: Iterable[Decision], look: Look, limits: Limits, allowance: Allowance) -> List[str]:
    """A sentence for each process that stays, keeps its GPU from being free, and is not allowed to.

    It does so by using the GPU, or as the likely user of memory that nobody is listed for.
    """
    unexplained = look.unexplained(limits)

    def keeps_busy(holder: Holder) -> bool:
        likely = not holder.monitor and not unexplained.isdisjoint(holder.attached)
        return likely or not look.uuids.isdisjoint(holder.gpus)

    return [
        "%s: %s" % (decision.holder.label, decision.why)
        for decision in decisions
        if not allowance.covers(decision.holder) and keeps_busy(decision.holder)
    ]


def planned_rows(
    plan: Plan, services: Mapping[int, Supervisor], keepers: Mapping[int, Supervisor], notes: Mapping[int, str]
) -> List[Dict[str, Any]]:
    """The holders with what would become of them."""
    rows = []
    for decision in plan.decisions:
        action, why = decision.action, decision.why
        if action == END:
            action = WOULD_TERMINATE
            if decision.holder.pid in services:
                action = WOULD_STOP_SERVICE
                why = "%s; %s is stopped first" % (why, describe(services[decision.holder.pid]))
            elif decision.holder.pid in keepers and keepers[decision.holder.pid].restarts:
                why = "%s; %s would start it again" % (why, describe(keepers[decision.holder.pid]))
            elif decision.holder.pid in notes:
                why = "%s; %s" % (why, notes[decision.holder.pid])
        rows.append(_row(decision, action, why=why))
    return rows


def final_rows(done: Done) -> List[Dict[str, Any]]:
    """The holders of the plan with what became of them."""
    by_identity: Dict[ProcessIdentity, Outcome] = {outcome.identity: outcome for outcome in done.outcomes}
    still_listed = {holder.pid for holder in done.after.holders}
    rows = []
    for decision in done.plan.decisions:
        process = decision.holder.process
        identity = process.identity if process is not None and decision.action == END else None
        service = done.services.get(decision.holder.pid) if identity is not None else None
        outcome = by_identity.get(identity) if identity is not None else None
        if identity is not None and identity in done.ended_by_service:
            row = _row(decision, STOPPED_SERVICE, why="%s was stopped" % describe(service) if service else "")
        elif service is not None and not over(done.stopped[key_of(service)]):
            row = _row(decision, SURVIVED, why=done.stopped[key_of(service)].message)
        elif outcome is not None:
            row = _row(
                decision, outcome.action, outcome.signals, outcome.seconds, outcome.error or _why(decision, done)
            )
            if outcome.action == SURVIVED:
                row["state"] = outcome.state
        elif decision.action == UNRESOLVED and decision.holder.pid not in still_listed:
            row = _row(decision, VANISHED)
        else:
            row = _row(decision, decision.action)
        rows.append(row)
    return rows


def _why(decision: Decision, done: Done) -> str:
    if decision.holder.pid in done.notes:
        return "%s; %s" % (decision.why, done.notes[decision.holder.pid])
    if decision.holder.pid not in done.mps_clients:
        return decision.why
    error = done.mps_clients[decision.holder.pid]
    if error:
        return "%s; the MPS control daemon did not end its work: %s" % (decision.why, error)
    return "%s; the MPS control daemon ended its work first" % decision.why


def _row(
    decision: Decision, action: str, signals: Tuple[str, ...] = (), seconds: float = 0.0, why: str = ""
) -> Dict[str, Any]:
    row = holder_result(decision.holder)
    row.update(action=action, why=why or decision.why, signals=list(signals), seconds=round(seconds, 3))
    return row


def problems(
    done: Done,
    after: Plan,
    newcomers: Sequence[Holder],
    stuck: Callable[[ProcessIdentity], str],
    supervisor_of: Callable[[Holder], Optional[Supervisor]],
) -> Dict[str, List[str]]:
    """What went wrong, in sentences under a stable code; empty where all went well.

    after: the decisions about the last look; stuck says why a process does not end; supervisor_of says
    who started a newcomer.
    """
    found: Dict[str, List[str]] = {}
    for _key, stopped in sorted(done.stopped.items()):
        if not over(stopped):
            found.setdefault("service", []).append(stopped.message)
    labels = {holder.process.identity: holder.label for holder in done.plan.targets if holder.process is not None}
    for outcome in done.outcomes:
        if outcome.action == SURVIVED:
            found.setdefault("survivors", []).append(_survivor(labels[outcome.identity], outcome, stuck))
    if done.mps_stopped:
        found.setdefault("service", []).append("MPS was not shut down: %s" % done.mps_stopped)
    for decision in after.decisions:
        if decision.action == UNRESOLVED:
            found.setdefault("unresolved", []).append(_unresolved(decision, done.signalled_pids, after))
    found.setdefault("retaken", []).extend(done.respawned)
    found["retaken"].extend(_newcomer(holder, supervisor_of(holder)) for holder in newcomers)
    if not found["retaken"]:
        del found["retaken"]
    for reading in done.after.readings:
        if reading.failure is not None and not reading.processes_read:
            found.setdefault("unknown", []).append("GPU %d cannot be read: %s" % (reading.index, reading.failure.text))
    return found


def _unresolved(decision: Decision, ended: AbstractSet[int], after: Plan) -> str:
    pid = decision.holder.pid
    suspects = [
        other.holder.label
        for other in after.decisions
        if other.holder is not decision.holder
        and not other.holder.monitor
        and other.action != END
        and set(other.holder.attached).intersection(decision.holder.gpus)
    ]
    hint = "; perhaps kept by %s (attached: any ends it)" % ", ".join(suspects) if suspects else ""
    if pid in ended:
        return (
            "PID %d has ended, but the driver still lists it: a process that inherited its GPU handles, or a CUDA IPC "
            "peer, keeps the memory%s" % (pid, hint)
        )
    return "PID %d was not signalled: %s%s; look from the host itself, outside containers" % (pid, decision.why, hint)


def _newcomer(holder: Holder, supervisor: Optional[Supervisor]) -> str:
    if supervisor is not None:
        return "%s has taken the GPU again, started by %s: %s" % (
            holder.label,
            describe(supervisor),
            supervisor.advice or "stop that first, or set stop_services",
        )
    return (
        "%s appeared meanwhile: stop what starts it (a service manager, a container's restart policy, another job), "
        "then try again" % holder.label
    )


def _survivor(label: str, outcome: Outcome, stuck: Callable[[ProcessIdentity], str]) -> str:
    if outcome.error:
        return "%s could not be signalled (%s): run the task as root (become: true)" % (label, outcome.error)
    return "%s is in state %s %.1f s after the first signal (%s): %s" % (
        label,
        outcome.state or "?",
        outcome.seconds,
        ", ".join(outcome.signals),
        stuck(outcome.identity) or "it has ended meanwhile",
    )


def diff_text(holders: Sequence[Holder], without: FrozenSet[int] = frozenset()) -> str:
    """The holders as lines, for diff mode."""
    lines = []
    for holder in holders:
        if holder.pid not in without:
            on = "on %s" % ", ".join(holder.gpus) if holder.gpus else "has open %s" % ", ".join(holder.attached)
            lines.append("%s %s\n" % (holder.label, on))
    return "".join(lines)
