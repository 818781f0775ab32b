# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of an instance as it runs now, without asking the server itself."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.settings import (
    ContainerError,
    ContainerSettings,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.state import (
    ContainerState,
    container_state,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.current_since import current_since
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.files import read_text, user_id
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import (
    PROCESS,
    SYSTEMD,
    InstancePaths,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.managers.systemd_unit import is_ours
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.managers.unit_state import (
    UnitError,
    UnitState,
    read_unit,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.ownership import Claim, Member, Ownership
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.server_process import (
    Found,
    PidFileError,
    inspect,
    read_pid_file,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import (
    Release,
    ReleaseError,
    read_current,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import (
    ProcessIdentity,
    ProcessInfo,
    ProcFs,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import Runner

_ROOT = 0


class RunningError(Exception):
    """It cannot be told whether the instance runs; the message has the remedy."""


@dataclass(frozen=True)
class Running:
    """The processes of an instance.

    process is its main process, None where that does not run; unit is "" without systemd; session is
    the main process's, 0 where it is not known; release is the ID of what it was started from, "" where
    that is not known; container is its name, "" where it runs in none.  With a container the main process
    is the first one in it, and launcher the engine's client that the unit runs.

    state is what systemd says, found what the PID file leads to, claim what shows that a process belongs
    to the instance.
    """

    manager: str
    process: Optional[ProcessInfo] = None
    unit: str = ""
    session: int = 0
    release: str = ""
    container: str = ""
    launcher: Optional[ProcessInfo] = None
    claim: Claim = field(default_factory=Claim, repr=False)
    state: Optional[UnitState] = field(default=None, repr=False)
    found: Optional[Found] = field(default=None, repr=False)
    ownership: Optional[Ownership] = field(default=None, repr=False, compare=False)

    def to_dict(self) -> Optional[Dict[str, Any]]:
        """As it is returned by the module: None where the main process does not run."""
        if self.process is None:
            return None
        return {
            "pid": self.process.pid,
            "start_ticks": self.process.start_time,
            "manager": self.manager,
            "unit": self.unit,
            "container": self.container,
            "session": self.session,
            "user": self.process.user,
            "release": self.release,
        }

    def owns(self, process: ProcessInfo) -> bool:
        """Whether stopping the instance ends this process."""
        return self.ownership is not None and self.ownership.owns(process)

    def members(self) -> List[Member]:
        """All live processes of the instance, the main process first."""
        return self.ownership.members() if self.ownership is not None else []


def find_running(paths: InstancePaths, manager: str, procfs: ProcFs, run: Runner) -> Running:
    """The instance as its manager knows it.  Raises RunningError."""
    try:
        release = read_current(paths)
    except ReleaseError:
        release = None  # it is reported by whoever needs it; what runs is told without it
    if manager == SYSTEMD:
        return _find_unit(paths, release, procfs, run)
    return _find_process(paths, release, procfs)


def find_all(
    paths: InstancePaths, manager: str, release: Optional[Release], procfs: ProcFs, run: Runner
) -> List[Running]:
    """The instance as each manager knows it that may run it, the one that was asked for first.

    A configuration that changes the manager leaves the server to the one that started it.  Raises RunningError.
    """
    found = []
    for name in _possible(paths, manager, release):
        try:
            found.append(find_running(paths, name, procfs, run))
        except RunningError:
            # A manager that is not there runs nothing; it matters only where it was asked for.
            if name in (manager, PROCESS):
                raise
    return found


def _possible(paths: InstancePaths, manager: str, release: Optional[Release]) -> List[str]:
    managers = [manager]
    if release is not None:
        managers.append(release.manager)
    if paths.pid_file.exists():
        managers.append(PROCESS)
    if has_unit(paths):
        managers.append(SYSTEMD)
    return list(dict.fromkeys(managers))


def has_unit(paths: InstancePaths) -> bool:
    """Whether there is a unit file of the instance that this collection wrote: another one is somebody else's."""
    try:
        return is_ours(read_text(paths.unit_file) or "")
    except OSError:
        return False


def _find_unit(paths: InstancePaths, release: Optional[Release], procfs: ProcFs, run: Runner) -> Running:
    try:
        state = read_unit(paths.unit_name, run)
    except UnitError as error:
        raise RunningError(f"{error}. Where there is no systemd, set manager to process.") from None
    launcher = procfs.read(state.main_pid) if state.main_pid > 0 else None
    process, name, identifier = launcher, "", ""
    if release is not None and release.container:
        name = paths.container_name
        inside = _container(release, paths, procfs, run)
        identifier = inside.id if inside is not None else ""
        process = procfs.read(inside.pid) if inside is not None and inside.pid else None
    else:
        launcher = None
    roots = tuple(item.identity for item in (process, launcher) if item is not None)
    claim = _claim(
        paths, release, process, roots, unit=paths.unit_name, group=state.control_group, container=identifier
    )
    return Running(
        SYSTEMD,
        process,
        unit=paths.unit_name,
        release=_started_from(paths, release, process, procfs),
        container=name,
        launcher=launcher,
        claim=claim,
        state=state,
        ownership=Ownership(claim, procfs),
    )


def container_id(release: Optional[Release], paths: InstancePaths, procfs: ProcFs, run: Runner) -> str:
    """The identifier of the container that runs a release now; "" where none does, or it cannot be told."""
    if release is None or not release.container:
        return ""
    try:
        state = _container(release, paths, procfs, run)
    except RunningError:
        return ""
    return state.id if state is not None else ""


def _container(release: Release, paths: InstancePaths, procfs: ProcFs, run: Runner) -> Optional[ContainerState]:
    """The container of the instance; one of the same name that somebody else made is none."""
    try:
        state = container_state(ContainerSettings.from_dict(release.container), paths, run, procfs)
    except ContainerError as error:
        raise RunningError(f"{error}. Start the engine, or see what keeps it from answering.") from None
    return state if state is not None and state.ours else None


def _started_from(
    paths: InstancePaths, release: Optional[Release], process: Optional[ProcessInfo], procfs: ProcFs
) -> str:
    """The current release, unless the process is older than that."""
    if release is None or process is None:
        return ""
    since = current_since(paths, procfs)
    return "" if since is None or since.is_after_start_of(process) else release.id


def _find_process(paths: InstancePaths, release: Optional[Release], procfs: ProcFs) -> Running:
    try:
        found = inspect(read_pid_file(paths.pid_file), procfs)
    except PidFileError as error:
        raise RunningError(str(error)) from None
    record = found.record
    if record is None or record.boot_id != procfs.boot_id():
        claim = _claim(paths, release, None, ())
        return Running(PROCESS, claim=claim, found=found, ownership=Ownership(claim, procfs))
    process = procfs.read(record.pid) if found.running else None
    claim = _claim(
        paths,
        release,
        process,
        (record.identity,),
        session=record.pid,
        session_since=record.start_ticks,
    )
    alive = found.running or bool(found.leftovers)
    return Running(
        PROCESS,
        process,
        session=record.pid if alive else 0,
        release=record.release if alive else "",
        claim=claim,
        found=found,
        ownership=Ownership(claim, procfs),
    )


def _claim(
    paths: InstancePaths,
    release: Optional[Release],
    process: Optional[ProcessInfo],
    roots: Tuple[ProcessIdentity, ...],
    **evidence: Any,
) -> Claim:
    return Claim(
        instance=paths.instance,
        state_dir=paths.state_dir,
        uid=process.uid if process is not None else _user_of(release),
        roots=roots,
        **evidence,
    )


def _user_of(release: Optional[Release]) -> Optional[int]:
    """The user that the server runs as when it runs; None where that cannot be told."""
    if release is None:
        return os.geteuid()
    if release.user:
        return user_id(release.user)
    return _ROOT if release.manager == SYSTEMD else os.geteuid()
