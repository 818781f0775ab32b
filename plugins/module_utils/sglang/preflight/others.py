# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who else is on the host: other instances, servers that somebody started by hand, listeners on the port."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import Check
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.request import Host, Request
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.neighbours import (
    check_neighbours,
    neighbours,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.ports import check_port
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.running import Running
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.unmanaged import (
    check_unmanaged,
    find_unmanaged,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessInfo


@dataclass(frozen=True)
class Others:
    """As they are returned by the module, and what was found about them."""

    neighbours: List[Dict[str, Any]]
    unmanaged: Optional[Dict[str, Any]]
    checks: List[Check]


def look_around(request: Request, host: Host, running: Running, gpus: Sequence[str]) -> Others:
    """Look for everybody that the server could get in the way of; gpus are UUIDs."""
    settings = request.settings
    found = neighbours(request.paths, host.procfs, host.run_command)
    stranger = find_unmanaged(settings.host, settings.port, host.procfs, running.owns, host.run_command)

    def accounted_for(process: ProcessInfo) -> bool:
        # What is to become of a server that somebody started by hand is decided below.
        return running.owns(process) or (stranger is not None and stranger.owns(process))

    checks = check_port(settings.host, settings.port, host.procfs.listeners, host.procfs.read, accounted_for)
    checks += check_neighbours(found, gpus, settings.port, settings.host)
    checks += check_unmanaged(stranger, request.unmanaged)
    return Others(
        [neighbour.to_dict() for neighbour in found],
        stranger.to_dict() if stranger is not None else None,
        checks,
    )
