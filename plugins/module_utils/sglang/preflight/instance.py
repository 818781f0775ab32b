# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The instance as it is: its releases, and what of it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import Check, failed, ok
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.request import Host, Request
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.running import (
    Running,
    RunningError,
    find_running,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import (
    Release,
    ReleaseError,
    read_current,
    read_last_good,
)

_NAME = "instance"


@dataclass(frozen=True)
class InstanceState:
    """The releases are None where there are none; running is what the manager of the current one knows."""

    current: Optional[Release]
    last_good: Optional[Release]
    running: Running
    checks: List[Check]


def read_state(request: Request, host: Host) -> InstanceState:
    """Read it all; problems are collected."""
    paths = request.paths
    checks: List[Check] = []
    releases: List[Optional[Release]] = []
    for read in (read_current, read_last_good):
        try:
            releases.append(read(paths))
        except ReleaseError as error:
            releases.append(None)
            checks.append(failed(_NAME, str(error)))
    current = releases[0]
    running = Running(request.manager)
    # What runs was started by the manager of the current release, which also stops it.
    manager = request.manager if current is None else current.manager
    try:
        running = find_running(paths, manager, host.procfs, host.run_command)
        if manager != request.manager:
            # The new one must work too, and may run a server of the same name already.
            other = find_running(paths, request.manager, host.procfs, host.run_command)
            checks += _check_other(request, running, other)
    except RunningError as error:
        checks.append(failed(_NAME, str(error)))
    if not checks:
        what = f"runs as PID {running.process.pid}" if running.process is not None else "does not run"
        by = f" under the manager {manager}, which will stop it" if manager != request.manager else ""
        checks.append(ok(_NAME, f"{paths.instance} {what}{by if running.process is not None else ''}."))
    return InstanceState(current, releases[1], running, checks)


def _check_other(request: Request, running: Running, other: Running) -> List[Check]:
    """A second server under the wanted manager would not be stopped, since the current release is not its."""
    if other.process is None or (running.process is not None and running.process.identity == other.process.identity):
        return []
    return [
        failed(
            _NAME,
            f"{request.paths.instance} runs as PID {other.process.pid} under the manager {request.manager}, although "
            f"its current release says {running.manager}: stop that process first.",
        )
    ]
