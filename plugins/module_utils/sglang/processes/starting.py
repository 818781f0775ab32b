# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts a server by its manager, and looks whether it dies at once.

That it answers is nobody's claim here: loading a model takes minutes.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Set

from ansible_collections.inferops.sglang.plugins.module_utils.sglang import log_tail
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.files import make_folder, remove_file
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import PROCESS, SYSTEMD, InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.managers import unit_control
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.managers.unit_state import (
    UnitError,
    UnitState,
    read_unit,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes import server_process, stopping
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.failure_reasons import classify
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.main_process import UnitProcess
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.ownership import Claim, Member, Ownership
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.ports import look_at_port
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.running import Running, has_unit
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.server_process import Launch, PidRecord
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import secrets_of
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release
from ansible_collections.inferops.sglang.plugins.module_utils.system.audit import (
    CONFIGURATION,
    NO_AUDIT,
    START,
    AuditLog,
    Event,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import Runner, name_processes

_NOT_STARTED_AT_BOOT = frozenset(["disabled"])
_MASKED = "masked"
# The outcome of a start in the audit log: it was executed and did not die at once.
STARTED = "started"


class StartError(Exception):
    """A server that was not started, or died at once; results are those of the module, as far as they are known."""

    def __init__(self, message: str, **results: Any) -> None:
        super().__init__(message)
        self.results = results


@dataclass(frozen=True)
class Tools:
    """The host, and time.  watched: how long a new server is looked at, in seconds."""

    procfs: ProcFs
    run: Runner
    watched: float
    kill_timeout: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    audit: AuditLog = NO_AUDIT


def refuse_left_over(instance: str, running: Running) -> None:
    """Raise StartError where the main process has ended and others have not."""
    members = running.members() if running.process is None else []
    if members:
        raise StartError(
            "%s has ended, but processes of it still run and may hold GPUs: %s. Stop them first (state=stopped)."
            % (instance, _named(members))
        )


def _named(members: Sequence[Member]) -> str:
    return "PID " + name_processes([member.process for member in members])


def refuse_other_manager(instance: str, others: Sequence[Running]) -> None:
    """Raise StartError where another manager than the one that was asked for runs the server, or will."""
    for other in others:
        unit = other.state is not None and not other.state.idle
        if other.process is None and not unit:
            continue
        raise StartError(
            "%s runs already by the manager %s (%s): stop it first (state=stopped)."
            % (instance, other.manager, "PID %d" % other.process.pid if other.process is not None else other.unit)
        )


def refuse_taken_port(release: Optional[Release], running: Running, procfs: ProcFs) -> None:
    """Raise StartError where somebody else has the port: SGLang would find that out only after loading the model."""
    if release is None:
        return
    state = look_at_port(release.host, release.port, procfs.listeners, procfs.read, running.owns)
    if state.foreign:
        raise StartError("%s was not started: %s" % (release.instance, state.foreign[0]))


def secrets_in(launch: Launch) -> Set[str]:
    """What must not be shown of what a server is started with."""
    return secrets_of(launch.command, launch.environment, launch.secret_args)


# -- a process of its own


class ProcessStart:
    """Starts what a release, or a command, says as a process of its own."""

    def __init__(self, paths: InstancePaths, launch: Launch, release: Optional[Release], tools: Tools) -> None:
        self._paths = paths
        self._launch = launch
        self._release = release  # None where a command was given in its place
        self._release_id = release.id if release is not None else ""
        self._tools = tools

    def run(self, running: Running, act: bool) -> bool:
        """Start it unless it runs already; whether anything changes.

        Raises StartError, ServerProcessError and OSError.
        """
        found, launch = running.found, self._launch
        if found is not None and found.running and found.record is not None:
            if found.record.command_sha256 == launch.digest():
                return False
            what = "the release %s" % self._release_id if self._release_id else "the one given"
            raise StartError(
                "%s runs already (PID %d), with another command, environment or user than %s. "
                "Stop it first (state=stopped)." % (self._paths.instance, found.record.pid, what)
            )
        refuse_left_over(self._paths.instance, running)
        refuse_taken_port(self._release, running, self._tools.procfs)
        account = server_process.account_of(launch.user)
        environment = server_process.base_environment(os.environ, account)
        environment.update(launch.environment)
        environment.update(self._paths.markers)
        server_process.check_launch(launch, environment)
        if act:
            self._have_no_unit_started_at_boot()
            target = {"instance": self._paths.instance, "release": self._release_id, "user": launch.user}
            with self._tools.audit.event(START, target, {"manager": PROCESS}) as event:
                self._start(environment, account, event)
        return True

    def _start(self, environment: Mapping[str, str], account: Any, event: Event) -> None:
        paths, tools = self._paths, self._tools
        make_folder(paths.log_file.parent)
        server_process.rotate_log(paths.log_file)
        child = server_process.spawn(self._launch, environment, account, paths.log_file)
        identity = tools.procfs.identity(child.pid)
        event.target.update(pid=child.pid, start_ticks=identity.start_time if identity else 0)
        record = PidRecord(
            pid=child.pid,
            # The child is not waited for yet, so that it is in /proc even if it is dead.
            start_ticks=identity.start_time if identity else 0,
            boot_id=tools.procfs.boot_id(),
            release=self._release_id,
            command_sha256=self._launch.digest(),
        )
        try:
            server_process.write_pid_file(paths.pid_file, record)
        except OSError:
            self._end(record)
            raise
        status = server_process.died_within(child, tools.watched, tools.clock, tools.sleep)
        if status is None:
            event.outcome = STARTED
            return
        # What it may have left in its session would be found by nobody later.
        self._end(record)
        remove_file(paths.pid_file)
        lines = log_tail.read_lines(str(paths.log_file), secrets_in(self._launch))
        why = classify(lines, status)
        raise StartError(
            "%s ended right after its start %s. %s" % (paths.instance, _ending(status), why.message()),
            changed=True,
            reason=why.code,
            exit_status=status,
            log_tail=log_tail.tail(lines),
        )

    def _end(self, record: PidRecord) -> None:
        """Kill a server that was just started, with everything below it and in its session."""
        procfs, run = self._tools.procfs, self._tools.run
        claim = Claim(roots=(record.identity,), session=record.pid, session_since=record.start_ticks)
        tools = stopping.Tools(
            procfs,
            run,
            self._tools.clock,
            self._tools.sleep,
            audit=self._tools.audit,
            instance=self._paths.instance,
        )
        limits = stopping.Limits(0, self._tools.kill_timeout)
        stopping.stop(None, stopping.BySignal(tools), Ownership(claim, procfs).members, limits, tools)

    def _have_no_unit_started_at_boot(self) -> None:
        """The unit of an earlier release would bring that back with the next boot."""
        if not has_unit(self._paths):
            return
        name, run = self._paths.unit_name, self._tools.run
        try:
            enabled = read_unit(name, run).file_state == "enabled"
        except UnitError:
            return  # where no systemd answers, none starts it
        try:
            if enabled:
                why = {"why": "a process of its own is started instead", "enabled": False}
                with self._tools.audit.event(CONFIGURATION, {"unit": name}, why):
                    unit_control.disable(name, run)
        except UnitError as error:
            raise StartError(
                "%s was not started, because its unit would be started beside it with the next boot: %s. Remove %s."
                % (self._paths.instance, error, self._paths.unit_file)
            ) from None


def _ending(status: int) -> str:
    return "by signal %d" % -status if status < 0 else "with status %d" % status


# -- a unit


@dataclass
class UnitStart:
    """Starts the unit of an instance, and has it started at boot."""

    paths: InstancePaths
    release: Optional[Release]
    enabled: bool
    tools: Tools

    def run(self, running: Running, act: bool) -> bool:
        """Start it unless it runs already; whether anything changes.  Raises StartError and UnitError."""
        name, run = self.paths.unit_name, self.tools.run
        state = running.state
        if state is not None and state.active == "deactivating":
            raise StartError("%s is being stopped: wait until that is over, then start it." % self.paths.instance)
        if state is not None and not state.idle and not state.dead:
            self._refuse_older(running)
            return self._enable(state, act)
        refuse_left_over(self.paths.instance, running)
        refuse_taken_port(self.release, running, self.tools.procfs)
        if state is not None and state.load == _MASKED:
            raise StartError(_unusable(state))
        if not act:
            return True
        unit_control.reload(run)
        state = read_unit(name, run)
        if not state.exists:
            raise StartError(_unusable(state))
        release_id = self.release.id if self.release is not None else ""
        target = {"instance": self.paths.instance, "unit": name, "release": release_id}
        with self.tools.audit.event(START, target, {"manager": SYSTEMD}) as event:
            self._start(UnitProcess(name, run, self.tools.procfs), state)
            event.outcome = STARTED
        try:
            self._enable(read_unit(name, run), act)
        except UnitError as error:
            raise StartError(
                "%s runs, but it cannot be told that it is started with the next boot: %s. "
                "Run this again, or set enabled to false." % (self.paths.instance, error),
                changed=True,
            ) from None
        return True

    def _start(self, watcher: UnitProcess, state: UnitState) -> None:
        name, run = self.paths.unit_name, self.tools.run
        if state.active == "failed":
            unit_control.forget_failures(name, run)
        try:
            unit_control.start(name, run)
        except UnitError as error:
            raise self._failure(watcher, str(error)) from None
        self._watch(watcher)

    def _refuse_older(self, running: Running) -> None:
        """A unit that runs an older release would be taken for the current one."""
        if self.release is not None and running.process is not None and not running.release:
            raise StartError(
                "%s runs already (PID %d), since before the release %s became the current one. "
                "Stop it first (state=stopped)." % (self.paths.instance, running.process.pid, self.release.id)
            )

    def _enable(self, state: UnitState, act: bool) -> bool:
        if not self.enabled or state.file_state not in _NOT_STARTED_AT_BOOT:
            return False
        if act:
            why = {"why": "the option enabled", "enabled": True}
            with self.tools.audit.event(CONFIGURATION, {"unit": self.paths.unit_name}, why):
                unit_control.enable(self.paths.unit_name, self.tools.run)
        return True

    def _watch(self, watcher: UnitProcess) -> None:
        tools = self.tools
        deadline = tools.clock() + tools.watched
        while True:
            status = watcher.look()
            if status.dead or status.replaced:
                raise self._failure(watcher, "%s: %s" % (self.paths.instance, status.detail))
            left = deadline - tools.clock()
            if left <= 0:
                return
            tools.sleep(min(0.1, left))

    def _failure(self, watcher: UnitProcess, what: str) -> StartError:
        status = watcher.look()
        secrets = self.release.secrets() if self.release is not None else set()
        lines = watcher.log(secrets)
        why = classify(lines, status.exit_status, status.killed)
        detail = "" if status.detail and status.detail in what else status.detail
        return StartError(
            " ".join(
                part for part in ("The server did not start: %s." % what, _sentence(detail), why.message()) if part
            ),
            changed=True,
            reason=why.code,
            exit_status=status.exit_status,
            log_tail=log_tail.tail(lines),
        )


def _unusable(state: UnitState) -> str:
    if state.load == _MASKED:
        return "Somebody has masked the unit %s, so that nobody starts it: systemctl unmask %s." % (
            state.name,
            state.name,
        )
    return "systemd has no unit %s (%s): deploy a release with manager systemd (sglang_release)." % (
        state.name,
        state.load,
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "." if text else ""


def launch_from(
    release: Optional[Release], command: Optional[Sequence[str]], environment: Optional[Dict[str, str]]
) -> Launch:
    """What is started: what the release says, with what was given in its place."""
    launch = server_process.launch_of(release) if release is not None else Launch((), {})
    if command is not None:
        launch = replace(launch, command=tuple(command))
    if environment is not None:
        launch = replace(launch, environment=environment)
    return launch
