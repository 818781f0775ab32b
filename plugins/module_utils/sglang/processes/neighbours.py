# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The other instances of a host: what they run, and whether an instance would get into their way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import (
    Check,
    failed,
    ok,
    skipped,
    warning,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import (
    PROCESS,
    SYSTEMD,
    InstanceError,
    InstancePaths,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.ports import conflict
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.running import RunningError, find_running
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import ReleaseError, read_current
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import Runner

_NAME = "neighbours"


@dataclass(frozen=True)
class Neighbour:
    """Another instance in the same folder of releases.

    pid, start_ticks and session are 0, unit and container "", where they do not apply or it does not run;
    gpus are UUIDs, () where they are not known; problem says why it cannot be told what it runs.
    """

    instance: str
    manager: str = ""
    host: str = ""
    port: int = 0
    gpus: Tuple[str, ...] = ()
    running: bool = False
    pid: int = 0
    start_ticks: int = 0
    session: int = 0
    unit: str = ""
    container: str = ""
    problem: str = ""

    def to_dict(self) -> Dict[str, Any]:
        """What others need to leave it alone."""
        return {
            "instance": self.instance,
            "pid": self.pid,
            "unit": self.unit,
            "container": self.container,
            "session": self.session,
        }


def neighbours(paths: InstancePaths, procfs: ProcFs, run: Runner) -> List[Neighbour]:
    """The other instances in the same folder of releases, by name.  Never raises for one that is broken."""
    found = []
    for name in _names(Path(paths.state_dir)):
        if name == paths.instance:
            continue
        try:
            theirs = replace(paths, instance=name)
        except InstanceError:
            continue  # a folder of something else
        found.append(_look(theirs, procfs, run))
    return found


def _names(state_dir: Path) -> List[str]:
    try:
        return sorted(path.name for path in state_dir.iterdir() if (path / "current").is_symlink())
    except OSError:
        return []


def _look(paths: InstancePaths, procfs: ProcFs, run: Runner) -> Neighbour:
    seen = Neighbour(paths.instance)
    try:
        release = read_current(paths)
    except ReleaseError as error:
        seen = replace(seen, problem=str(error))
        release = None
    if release is not None:
        seen = replace(seen, manager=release.manager, host=release.host, port=release.port, gpus=tuple(release.gpus))
    # Without a release that can be read, either manager may run it.
    for manager in [seen.manager] if seen.manager else [PROCESS, SYSTEMD]:
        try:
            running = find_running(paths, manager, procfs, run)
        except RunningError as error:
            seen = replace(seen, problem=seen.problem or str(error))
            continue
        members = running.members() if running.process is None else []
        if running.process is None and not members:
            continue
        # Workers that outlived their main process still hold its GPUs.
        process = running.process if running.process is not None else members[0].process
        return replace(
            seen,
            manager=manager,
            running=True,
            pid=process.pid,
            start_ticks=process.start_time,
            session=running.session,
            unit=running.unit,
            container=running.container,
            problem="",
        )
    return seen


def check_neighbours(found: Sequence[Neighbour], gpus: Sequence[str], port: int, host: str = "") -> List[Check]:
    """Refuse what a neighbour has already: GPUs while it runs, and its port.

    gpus are the UUIDs that this instance would use; host is the address that it would listen on, "" to
    compare the ports alone.
    """
    checks: List[Check] = []
    for other in found:
        checks += _check_port(other, port, host)
        checks += _check_gpus(other, gpus)
        if other.problem and not other.running:
            checks.append(
                warning(_NAME, f"It cannot be told whether the instance {other.instance} runs: {other.problem}")
            )
    if checks:
        return checks
    if not found:
        return [ok(_NAME, "There is no other instance on this host.")]
    return [ok(_NAME, f"No conflict with {', '.join(other.instance for other in found)}.")]


def _check_port(other: Neighbour, port: int, host: str) -> List[Check]:
    if not other.port or other.port != port:
        return []
    if host and other.host and not conflict(host, other.host):
        return []
    state = "runs" if other.running else "is stopped now, and would not start beside it"
    return [
        failed(_NAME, f"port {port} is the one of the instance {other.instance}, which {state}: choose another port.")
    ]


def _check_gpus(other: Neighbour, gpus: Sequence[str]) -> List[Check]:
    if not other.running:
        return []
    if not gpus or not other.gpus:
        whose = f"the instance {other.instance} uses" if gpus else "this instance would use"
        return [skipped(_NAME, f"Which GPUs {whose} is not known, so they were not compared.")]
    both = sorted(set(gpus) & set(other.gpus))
    if not both:
        return []
    return [
        failed(
            _NAME,
            f"gpus: {', '.join(both)} are in use by the instance {other.instance} (PID {other.pid}): "
            f"give this instance other GPUs, or stop {other.instance} first.",
        )
    ]
