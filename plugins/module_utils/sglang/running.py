# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of an instance as it runs now, without asking the server itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Optional

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import (
    PROCESS,
    SYSTEMD,
    InstancePaths,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.server_process import (
    PidFileError,
    inspect,
    read_pid_file,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.unit_state import Runner, UnitError, read_unit
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessInfo, ProcFs


class RunningError(Exception):
    """It cannot be told whether the instance runs; the message has the remedy."""


@dataclass(frozen=True)
class Running:
    """The processes of an instance.

    process is its main process, None where that does not run; unit is "" without systemd; session is
    the main process's, 0 where it is not known; release is the ID of what it was started from, "" where
    that is not known.
    """

    manager: str
    process: Optional[ProcessInfo] = None
    unit: str = ""
    session: int = 0
    release: str = ""

    def to_dict(self) -> Optional[Dict[str, Any]]:
        """As it is returned by the module: None where the main process does not run."""
        if self.process is None:
            return None
        return {
            "pid": self.process.pid,
            "start_ticks": self.process.start_time,
            "manager": self.manager,
            "unit": self.unit,
            "user": self.process.user,
            "release": self.release,
        }

    def owns(self, process: ProcessInfo) -> bool:
        """Whether stopping the instance ends this process: by its unit, or by its session."""
        if self.unit:
            return process.unit == self.unit
        return self.session > 0 and process.session == self.session


def find_running(paths: InstancePaths, manager: str, procfs: ProcFs, run_command: Runner) -> Running:
    """The instance as its manager knows it.  Raises RunningError."""
    if manager == SYSTEMD:
        return _find_unit(paths.unit_name, procfs, run_command)
    return _find_process(paths.pid_file, procfs)


def _find_unit(unit: str, procfs: ProcFs, run_command: Runner) -> Running:
    try:
        state = read_unit(unit, run_command)
    except UnitError as error:
        raise RunningError(f"{error}. Where there is no systemd, set manager to process.") from None
    except OSError as error:
        raise RunningError(
            f"systemctl cannot be run ({error.strerror}): where there is no systemd, set manager to process."
        ) from None
    process = procfs.read(state.main_pid) if state.main_pid > 0 else None
    return Running(SYSTEMD, process, unit=unit)


def _find_process(path: Path, procfs: ProcFs) -> Running:
    try:
        found = inspect(read_pid_file(path), procfs)
    except PidFileError as error:
        raise RunningError(str(error)) from None
    if found.record is None or not (found.running or found.leftovers):
        return Running(PROCESS)
    process = procfs.read(found.record.pid) if found.running else None
    return Running(PROCESS, process, session=found.record.pid, release=found.record.release)
