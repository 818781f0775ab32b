# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happens after a plan: waiting for the driver to agree, and telling how it went."""

from __future__ import annotations

from typing import Any, Callable, Dict, FrozenSet, Iterable, List, Mapping, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Holder
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.observer import Look
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.plan import (
    END,
    UNRESOLVED,
    Decision,
    Plan,
    plan_reclaim,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.protection import Allowance
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.results import holder_result
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity
from ansible_collections.inferops.sglang.plugins.module_utils.system.termination import Outcome

SURVIVED = "survived"
VANISHED = "vanished"
WOULD_TERMINATE = "would_terminate"
# How long (seconds) a listed PID that is no live process gets to leave the driver's list.
_UNRESOLVED_PATIENCE = 5.0
_POLL = 0.05


def identities(holders: Iterable[Holder]) -> List[ProcessIdentity]:
    """The processes behind holders that have one."""
    return [holder.process.identity for holder in holders if holder.process is not None]


def settle(
    look: Callable[[], Look],
    leaving: FrozenSet[int],
    patience: float,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> Look:
    """Look again until the driver lists none of these PIDs any more, at most `patience` seconds."""
    deadline = clock() + patience
    while True:
        seen = look()
        unread = any(r.failure is not None and not r.failure.permanent for r in seen.readings)
        listed = leaving.intersection(holder.pid for holder in seen.holders)
        left = deadline - clock()
        if not (listed or unread) or left <= 0:
            return seen
        sleep(min(_POLL, left))


def leaving_pids(plan: Plan, outcomes: Sequence[Outcome]) -> FrozenSet[int]:
    """The PIDs that the driver should stop listing by itself now."""
    ended = {outcome.identity.pid for outcome in outcomes if outcome.action != SURVIVED}
    return frozenset(ended.union(holder.pid for holder in plan.having(UNRESOLVED)))


def patience_for(outcomes: Sequence[Outcome], kill_timeout: float) -> float:
    """Seconds to wait for the driver's list: long only where something has just been ended."""
    ended = any(outcome.action != SURVIVED for outcome in outcomes)
    return kill_timeout if ended else min(kill_timeout, _UNRESOLVED_PATIENCE)


def blockers(decisions: Iterable[Decision], allowance: Allowance) -> List[str]:
    """A sentence for each process that stays on the selected GPUs although nobody allows it to."""
    return [
        "%s: %s" % (decision.holder.label, decision.why)
        for decision in decisions
        if not allowance.covers(decision.holder)
    ]


def planned_rows(plan: Plan) -> List[Dict[str, Any]]:
    """The holders with what would become of them."""
    return [
        _row(decision, WOULD_TERMINATE if decision.action == END else decision.action) for decision in plan.decisions
    ]


def final_rows(plan: Plan, outcomes: Sequence[Outcome], after: Look) -> List[Dict[str, Any]]:
    """The holders of the plan with what became of them."""
    by_identity: Mapping[ProcessIdentity, Outcome] = {outcome.identity: outcome for outcome in outcomes}
    still_listed = {holder.pid for holder in after.holders}
    rows = []
    for decision in plan.decisions:
        process = decision.holder.process
        outcome = by_identity.get(process.identity) if process is not None and decision.action == END else None
        if outcome is not None:
            row = _row(decision, outcome.action, outcome.signals, outcome.seconds, outcome.error)
            if outcome.action == SURVIVED:
                row["state"] = outcome.state
        elif decision.action == UNRESOLVED and decision.holder.pid not in still_listed:
            row = _row(decision, VANISHED)
        else:
            row = _row(decision, decision.action)
        rows.append(row)
    return rows


def _row(
    decision: Decision, action: str, signals: Tuple[str, ...] = (), seconds: float = 0.0, error: str = ""
) -> Dict[str, Any]:
    row = holder_result(decision.holder)
    row.update(action=action, why=error or decision.why, signals=list(signals), seconds=round(seconds, 3))
    return row


def problems(
    plan: Plan, outcomes: Sequence[Outcome], after: Look, selected: FrozenSet[str], users: FrozenSet[int]
) -> Dict[str, List[str]]:
    """What went wrong, in sentences under a stable code; empty where all went well."""
    found: Dict[str, List[str]] = {}
    labels = {holder.process.identity: holder.label for holder in plan.targets if holder.process is not None}
    for outcome in outcomes:
        if outcome.action == SURVIVED:
            found.setdefault("survivors", []).append(_survivor(labels[outcome.identity], outcome))

    ended = {outcome.identity.pid for outcome in outcomes if outcome.action != SURVIVED}
    known = {holder.key for holder in plan.targets}
    for decision in plan_reclaim(after.holders, selected, users).decisions:
        holder = decision.holder
        if decision.action == UNRESOLVED and holder.pid in ended:
            found.setdefault("unresolved", []).append(
                "PID %d has ended, but the driver still lists it: a process that inherited its GPU handles, or a "
                "CUDA IPC peer, keeps the memory; find and end it" % holder.pid
            )
        elif decision.action == UNRESOLVED:
            found.setdefault("unresolved", []).append(
                "PID %d was not signalled: %s; look from the host itself, outside containers"
                % (holder.pid, decision.why)
            )
        elif decision.action == END and holder.key not in known:
            found.setdefault("retaken", []).append(
                "%s appeared meanwhile: stop what starts it (a service manager, a container's restart policy, "
                "another job), then try again" % holder.label
            )
    for reading in after.readings:
        if reading.failure is not None:
            found.setdefault("unknown", []).append("GPU %d cannot be read: %s" % (reading.index, reading.failure.text))
    return found


def _survivor(label: str, outcome: Outcome) -> str:
    if outcome.error:
        return "%s could not be signalled (%s): run the task as root (become: true)" % (label, outcome.error)
    return (
        "%s is in state %s %.1f s after the first signal (%s): it hangs in the kernel; look at the kernel log, reboot"
        % (
            label,
            outcome.state or "?",
            outcome.seconds,
            ", ".join(outcome.signals),
        )
    )


def diff_text(holders: Sequence[Holder], without: FrozenSet[int] = frozenset()) -> str:
    """The holders as lines, for diff mode."""
    lines = ["%s on %s\n" % (h.label, ", ".join(h.gpus)) for h in holders if h.pid not in without]
    return "".join(lines)
