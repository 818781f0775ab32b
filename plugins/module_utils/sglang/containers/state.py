# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container of an instance as it is now, asked of its engine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, Optional

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.settings import (
    LABEL,
    ContainerError,
    ContainerSettings,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import (
    QUERY_TIMEOUT,
    Runner,
    cgroup_path,
)


@dataclass(frozen=True)
class ContainerState:
    """One look at a container.

    id is complete; pid is that of its first process (the init) in the host's numbering, 0 where none runs;
    exit_code is None while it runs; cgroup is the path of the control group of that first process, ""
    where none runs; ours: it carries the label of this instance.
    """

    id: str
    running: bool
    pid: int
    exit_code: Optional[int]
    cgroup: str
    ours: bool


def container_state(
    settings: ContainerSettings, paths: InstancePaths, run: Runner, procfs: Optional[ProcFs] = None
) -> Optional[ContainerState]:
    """Look at the container that has the name of the instance; None where there is none.

    A container that is not `ours` has the name and nothing else to do with the instance.  Raises
    ContainerError where the engine gives no answer, which is not the same as "there is none".
    """
    name = paths.container_name
    done = run([settings.engine_path or settings.engine, "inspect", "--type", "container", name], QUERY_TIMEOUT)
    if not done.ok:
        said = (done.err + done.out).lower()
        if not done.missing and ("no such container" in said or "no such object" in said):
            return None
        raise ContainerError(f"{settings.engine} does not say whether there is a container {name}: {done.reason}")
    state = parse_state(done.out, paths.instance)
    if state is None:
        raise ContainerError(f"{settings.engine} inspect {name} gives an answer that makes no sense")
    if not state.pid:
        return state
    group = cgroup_path(ProcFs() if procfs is None else procfs, state.pid)
    return ContainerState(state.id, state.running, state.pid, state.exit_code, group, state.ours)


def parse_state(text: str, instance: str) -> Optional[ContainerState]:
    """Make sense of an inspection, without the control group; None where it is none."""
    try:
        document = json.loads(text)
        data = document[0] if isinstance(document, list) else document
        state: Dict[str, Any] = data["State"]
        labels = (data.get("Config") or {}).get("Labels") or {}
        running = bool(state["Running"])
        return ContainerState(
            id=str(data["Id"]),
            running=running,
            pid=int(state.get("Pid") or 0) if running else 0,
            exit_code=None if running else int(state.get("ExitCode") or 0),
            cgroup="",
            ours=labels.get(LABEL) == instance,
        )
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return None
