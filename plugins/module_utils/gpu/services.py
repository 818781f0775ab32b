# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which service has to be stopped for which holder, instead of killing what it would start again.  Pure."""

from __future__ import annotations

from typing import Callable, Dict, List, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Holder
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.plan import Plan
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessInfo
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import Supervisor

Key = Tuple[str, str]  # kind and name of a supervisor


def key_of(supervisor: Supervisor) -> Key:
    """What tells one supervisor from another."""
    return supervisor.kind, supervisor.name


def stoppable(supervisors: Dict[int, Supervisor]) -> Dict[int, Supervisor]:
    """Those, by the PID they keep alive, that can be told to stop."""
    return {pid: supervisor for pid, supervisor in supervisors.items() if supervisor.stoppable}


def outside_users(
    services: Dict[int, Supervisor],
    others: Sequence[Holder],
    plan: Plan,
    supervisor_of: Callable[[ProcessInfo], object],
) -> List[str]:
    """A sentence for each service that cannot be stopped, as it also uses GPUs that are not selected.

    others are the holders of the GPUs outside the selection.
    """
    doomed = {holder.key for holder in plan.targets}
    by_key = {key_of(supervisor): supervisor for supervisor in services.values()}
    sentences = []
    for holder in others:
        if holder.process is None or holder.key in doomed:
            continue
        supervisor = supervisor_of(holder.process)
        if isinstance(supervisor, Supervisor) and key_of(supervisor) in by_key:
            sentences.append(
                "%s also runs %s on a GPU that is not selected: select all of its GPUs, or stop it yourself"
                % (describe(supervisor), holder.label)
            )
    return sorted(set(sentences))


def describe(supervisor: Supervisor) -> str:
    """A supervisor in words, with its policy where it has one."""
    return "%s (%s)" % (supervisor.label, supervisor.policy) if supervisor.policy else supervisor.label
