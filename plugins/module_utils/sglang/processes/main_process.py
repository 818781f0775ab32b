# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The main process of a server while it is watched: whether it lives, what belongs to it, and its log.

One class for each manager, with the same methods:

look()              its state now
owns(process)       whether a process belongs to this server
log(secrets)        the cleaned lines at the end of what it logged since its start
log_start(secrets)  the same for the beginning, as far as that is at hand
identity            PID and start time, None before the first process was seen
stale(release, t)   why the process cannot be running a release that is the current one since then, "" if it can
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Callable, Iterable, List, Optional

from ansible_collections.inferops.sglang.plugins.module_utils.sglang import log_tail
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.current_since import Since
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.managers.unit_state import (
    UnitState,
    journal_of,
    last_invocation,
    read_unit,
    sync_journal,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.ownership import Claim, Ownership
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.process_status import ProcessStatus
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.server_process import (
    launch_of,
    read_pid_file,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity, ProcessInfo, ProcFs
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import Runner


class MainProcess:
    """What both kinds have in common."""

    def __init__(self, procfs: ProcFs) -> None:
        self._procfs = procfs
        self.identity: Optional[ProcessIdentity] = None
        self._claim = Claim()
        self._ownership = Ownership(self._claim, procfs)

    def look(self) -> ProcessStatus:
        """Its state now."""
        raise NotImplementedError

    def log(self, secrets: Iterable[str]) -> List[str]:
        """The end of its log."""
        raise NotImplementedError

    def log_start(self, secrets: Iterable[str]) -> List[str]:
        """The beginning of its log."""
        raise NotImplementedError

    def stale(self, release: Release, since: Optional[Since]) -> str:
        """Why it cannot be running the release, which is the current one since then."""
        raise NotImplementedError

    def owns(self, process: ProcessInfo) -> bool:
        """Whether a process belongs to this server."""
        claim = self._claim_on(process)
        if claim != self._claim:
            self._claim, self._ownership = claim, Ownership(claim, self._procfs)
        return self._ownership.owns(process)

    def _claim_on(self, process: ProcessInfo) -> Claim:
        """What would show that a process belongs to this server: the main process, its session, what is below it."""
        main = self.identity
        return Claim() if main is None else Claim(roots=(main,), session=main.pid, session_since=main.start_time)

    def _alive(self) -> bool:
        return self.identity is not None and self._procfs.alive(self.identity)


class PidFileProcess(MainProcess):
    """A server that sglang_process has started.  Raises PidFileError where its PID file is broken."""

    def __init__(self, pid_file: Path, log_file: Path, procfs: ProcFs) -> None:
        super().__init__(procfs)
        self._pid_file = pid_file
        self._log_file = str(log_file)
        self._record = read_pid_file(pid_file)
        if self._record is not None and self._record.boot_id == procfs.boot_id():
            self.identity = self._record.identity

    def look(self) -> ProcessStatus:
        if self._alive() and self.identity is not None:
            return ProcessStatus(self.identity.pid)
        present = read_pid_file(self._pid_file)
        if present != self._record:
            what = "%s was removed" if present is None else "%s names another process now"
            return ProcessStatus(None, dead=present is None, replaced=present is not None, detail=what % self._pid_file)
        if self._record is None:
            missing = "there is no PID file %s, so it was not started" % self._pid_file
            return ProcessStatus(None, dead=True, detail=missing)
        if self.identity is None:
            return ProcessStatus(None, dead=True, detail="the host was booted since it was started")
        return ProcessStatus(None, dead=True, detail="its main process %d has ended" % self._record.pid)

    def log(self, secrets: Iterable[str]) -> List[str]:
        return log_tail.read_lines(self._log_file, secrets)

    def log_start(self, secrets: Iterable[str]) -> List[str]:
        return log_tail.clean(log_tail.read_start(self._log_file), secrets)

    def stale(self, release: Release, since: Optional[Since]) -> str:
        if self._record is not None and self._record.command_sha256 != launch_of(release).digest():
            return "it was started from %s" % (
                "the release %s" % self._record.release if self._record.release else "another command"
            )
        return ""


class UnitProcess(MainProcess):
    """A server that runs as a systemd unit.  Raises UnitError where systemd does not tell its state.

    container gives the identifier of the container that the unit runs, "" for none: what is inside is not
    below the unit, because the engine's daemon starts it.
    """

    def __init__(self, name: str, run: Runner, procfs: ProcFs, container: Optional[Callable[[], str]] = None) -> None:
        super().__init__(procfs)
        self._name = name
        self._run = run
        self._container = container
        self._state: Optional[UnitState] = None
        self._invocation = ""
        self._inside = ""

    def look(self) -> ProcessStatus:
        if self._alive() and self.identity is not None and self._state is not None:
            # systemd starts no other main process while this one lives: no need to ask it each time.
            return ProcessStatus(self.identity.pid, restarts=self._state.restarts)
        state = read_unit(self._name, self._run)
        before, self._state = self._state, state
        self._invocation = state.invocation or self._invocation
        if not state.exists:
            return ProcessStatus(None, dead=True, detail="systemd has no unit %s (%s)" % (self._name, state.load))
        if before is not None and self.identity is not None and self._is_other_start(before, state):
            return ProcessStatus(
                state.main_pid or None,
                replaced=True,
                detail="%s; before, its main process was %d" % (state.describe(), self.identity.pid),
                exit_status=state.exit_status,
                killed=state.killed,
                restarts=state.restarts,
            )
        if state.dead:
            return ProcessStatus(
                None,
                dead=True,
                detail=state.describe(),
                exit_status=state.exit_status,
                killed=state.killed,
                restarts=state.restarts,
            )
        if self.identity is None and state.main_pid:
            self.identity = self._procfs.identity(state.main_pid)
        return ProcessStatus(state.main_pid or None, restarts=state.restarts)

    def _is_other_start(self, before: UnitState, now: UnitState) -> bool:
        if now.restarts > before.restarts or (before.invocation and now.invocation not in ("", before.invocation)):
            return True
        return self.identity is not None and now.main_pid not in (0, self.identity.pid)

    def _claim_on(self, process: ProcessInfo) -> Claim:
        group = self._state.control_group if self._state is not None else ""
        if self._container is not None and process.container is not None and not self._inside:
            # Another container means another main process of the unit, so the engine need not be asked each time.
            self._inside = self._container()
        return replace(super()._claim_on(process), unit=self._name, group=group, container=self._inside)

    def log(self, secrets: Iterable[str]) -> List[str]:
        if self._state is None:
            return []
        kind, _colon, path = self._state.output.partition(":")
        if kind in ("append", "file", "truncate") and path:
            return log_tail.read_lines(path, secrets)
        # What a process wrote last may still be on its way into the journal.
        sync_journal(self._run)
        invocation = self._invocation or last_invocation(self._name, self._run)
        return log_tail.clean(journal_of(invocation, self._run), secrets)

    def log_start(self, secrets: Iterable[str]) -> List[str]:
        return []  # the journal is read from its end

    def stale(self, release: Release, since: Optional[Since]) -> str:
        process = self._procfs.read(self.identity.pid) if self.identity is not None else None
        if process is None or since is None or not since.is_after_start_of(process):
            return ""
        return "it was started before this release became the current one"
