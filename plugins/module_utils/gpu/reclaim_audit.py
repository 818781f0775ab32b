# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the audit log is told of a reclaim: who is ended, and on which evidence."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Holder
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.plan import Decision
from ansible_collections.inferops.sglang.plugins.module_utils.system.audit import AuditLog
from ansible_collections.inferops.sglang.plugins.module_utils.system.audit_signals import (
    Described,
    SignalAudit,
    process_target,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import Stopped, Supervisor


def witness_of(log: AuditLog, decisions: Sequence[Decision]) -> SignalAudit:
    """Records the signals to the holders that were decided upon."""
    known = {d.holder.process.identity: d for d in decisions if d.holder.process is not None}

    def describe(identity: ProcessIdentity) -> Described:
        decision = known[identity]
        return holder_target(decision.holder), holder_evidence(decision)

    return SignalAudit(log, describe)


def holder_target(holder: Holder) -> Dict[str, Any]:
    """The process behind a holder."""
    return process_target(holder.process) if holder.process is not None else {"pid": holder.pid}


def holder_evidence(decision: Decision) -> Dict[str, Any]:
    """Why it is ended, where it was found, on which GPUs and with how much of their memory (MiB)."""
    holder = decision.holder
    return {
        "why": decision.why,
        "found": list(holder.evidence),
        "gpus": list(holder.gpus),
        "attached": list(holder.attached),
        "memory_mib": holder.memory_mib,
    }


def service_target(supervisor: Supervisor) -> Dict[str, Any]:
    """A service that is stopped."""
    return {"service": supervisor.label, "kind": supervisor.kind, "command": list(supervisor.stop)}


def service_evidence(supervisor: Supervisor, holders: Iterable[Holder]) -> Dict[str, Any]:
    """Why a service is stopped: it runs these holders, and would start them again."""
    holders = list(holders)
    gpus: List[str] = sorted({uuid for holder in holders for uuid in holder.gpus})
    return {"policy": supervisor.policy, "pids": sorted(holder.pid for holder in holders), "gpus": gpus}


def service_outcome(stopped: Stopped) -> str:
    """What became of it in a word; it is stopped and yet has survivors where processes of it are left."""
    if stopped.ok:
        return "stopped"
    return "survived" if stopped.inactive else "failed"
