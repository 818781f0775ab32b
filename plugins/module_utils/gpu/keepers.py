# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who keeps the holders of GPUs alive, as this task may ask and stop them.

The code that speaks to service managers and engines is imported when the first of them has to be asked:
it would double the start of a module that needs none.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Callable, Optional

from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessInfo, ProcFs

if TYPE_CHECKING:
    from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisors import Supervisors


def own_supervisors(procfs: ProcFs, grace: float = 10.0) -> Supervisors:
    """The supervisors of this host; the unit that this task runs in is none of them."""
    from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import run
    from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisors import Supervisors

    me: Optional[ProcessInfo] = procfs.read(os.getpid())
    return Supervisors(
        run,
        procfs_root=procfs.root,
        own_unit=(me.unit or "") if me is not None else "",
        own_cgroup=me.cgroup if me is not None else "",
        grace=grace,
    )


def container_names(supervisors: Callable[[], Supervisors]) -> Callable[[ProcessInfo], str]:
    """Asks the engine of a process's container for the container's name; "" where it has none."""
    made: list[Supervisors] = []

    def name(process: ProcessInfo) -> str:
        if not made:
            made.append(supervisors())
        found = made[0].of(process)
        return found.name if found is not None and found.kind in ("docker", "podman") else ""

    return name
