# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which service has to be stopped for which holder, instead of killing what it would start again.  Pure."""

from __future__ import annotations

from typing import Callable, Dict, List, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Holder
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.plan import END, Plan
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessInfo
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import Supervisor

Key = Tuple[str, str]  # kind and name of a supervisor


def key_of(supervisor: Supervisor) -> Key:
    """What tells one supervisor from another."""
    return supervisor.kind, supervisor.name


def stoppable(supervisors: Dict[int, Supervisor]) -> Dict[int, Supervisor]:
    """Those, by the PID they keep alive, that can be told to stop."""
    return {pid: supervisor for pid, supervisor in supervisors.items() if supervisor.stoppable}


def bystanders(
    services: Dict[int, Supervisor],
    others: Sequence[Holder],
    plan: Plan,
    supervisor_of: Callable[[ProcessInfo], object],
) -> List[str]:
    """A sentence for each service that must not be stopped, as somebody who is not to be ended would end with it.

    others are the holders of the GPUs outside the selection.
    """
    doomed = {holder.key for holder in plan.targets}
    stays = [(holder, "which uses a GPU that is not selected") for holder in others]
    stays += [(d.holder, "which is %s: %s" % (d.action, d.why)) for d in plan.decisions if d.action != END]
    stopped = {key_of(supervisor) for supervisor in services.values()}
    sentences = []
    for holder, why in stays:
        if holder.process is None or holder.key in doomed:
            continue
        supervisor = supervisor_of(holder.process)
        if isinstance(supervisor, Supervisor) and key_of(supervisor) in stopped:
            sentences.append(
                "%s also runs %s, %s. Stop it yourself, or leave stop_services out"
                % (describe(supervisor), holder.label, why)
            )
    return sorted(set(sentences))


def describe(supervisor: Supervisor) -> str:
    """A supervisor in words, with its policy where it has one."""
    return "%s (%s)" % (supervisor.label, supervisor.policy) if supervisor.policy else supervisor.label
