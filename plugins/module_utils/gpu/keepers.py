# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who keeps the holders of GPUs alive, as this task may ask and stop them."""

from __future__ import annotations

import os
from typing import Callable, Optional

from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import run
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessInfo, ProcFs
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import DOCKER, PODMAN
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisors import Supervisors


def own_supervisors(procfs: ProcFs, grace: float = 10.0) -> Supervisors:
    """The supervisors of this host; the unit that this task runs in is none of them."""
    me: Optional[ProcessInfo] = procfs.read(os.getpid())
    return Supervisors(
        run,
        procfs_root=procfs.root,
        own_unit=(me.unit or "") if me is not None else "",
        own_cgroup=me.cgroup if me is not None else "",
        grace=grace,
    )


def container_name(supervisors: Supervisors) -> Callable[[ProcessInfo], str]:
    """Asks the engine of a process's container for the container's name; "" where it has none."""

    def name(process: ProcessInfo) -> str:
        supervisor = supervisors.of(process)
        return supervisor.name if supervisor is not None and supervisor.kind in (DOCKER, PODMAN) else ""

    return name
