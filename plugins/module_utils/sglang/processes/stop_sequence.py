# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A whole stop of one instance, in order: find, take over, drain, end, clean up, look at the port.

A stop that was interrupted anywhere is finished by the next one: every step begins with what is there.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import failures
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.command_line import option_value
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.run import stop_words
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.settings import (
    PODMAN,
    ContainerSettings,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.files import locked, remove_file
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import HttpClient
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import SYSTEMD, InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.managers import exit_status
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes import adoption, leftovers
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.drain import Drained, drain
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.leftovers import (
    REMOVED,
    WOULD_REMOVE,
    Identity,
    Leftover,
    Leftovers,
    Scene,
    live_pids,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.ownership import (
    INHERITED,
    MAIN,
    Claim,
    Member,
    Ownership,
    marked_instance,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.ports import (
    PortState,
    look_at_port,
    port_owner,
    wait_until_free,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.running import Running, find_all
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.stopping import (
    ByEngine,
    BySignal,
    ByUnit,
    Ended,
    Limits,
    Stopped,
    Tools,
    Way,
    describe_survivor,
    role_of,
    stop,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.unmanaged import (
    REFUSE,
    TAKE_OVER,
    Unmanaged,
    address_of,
    check_unmanaged,
    find_unmanaged,
    server_arguments,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.releases.store import Plan, apply, plan_adopted
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.tls import (
    Tls,
    tls_of_arguments,
    tls_of_release,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.audit import STOP
from ansible_collections.inferops.sglang.plugins.module_utils.system.audit_signals import process_target
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity, ProcessInfo

# A listener that was just ended may show for a moment (seconds).
_PORT_PATIENCE = 3.0
# How long whoever writes releases now is waited for (seconds).
_LOCK_TIMEOUT = 60.0


class StopError(Exception):
    """A stop that failed; the message names what is left and what to do."""


@dataclass(frozen=True)
class Wish:
    """What was asked for.  Times are in seconds; host and port are where nobody is to listen afterwards."""

    manager: str
    grace: float = 300.0
    kill_timeout: float = 60.0
    drain_timeout: float = 30.0
    host: str = "127.0.0.1"
    port: int = 0
    api_key: Optional[str] = None
    unmanaged: str = REFUSE
    remove_leftovers: bool = True

    @property
    def limits(self) -> Limits:
        """Those of ending processes."""
        return Limits(self.grace, self.kill_timeout)


@dataclass
class Report:
    """What a stop found and did; ended are rows as the module returns them."""

    changed: bool = False
    ended: List[Dict[str, Any]] = field(default_factory=list)
    drain: Drained = field(default_factory=Drained)
    exit_status: Optional[int] = None
    clean_exit: Optional[bool] = None
    leftovers: List[Leftover] = field(default_factory=list)
    port: Dict[str, Any] = field(default_factory=dict)
    adopted: str = ""
    unmanaged: Optional[Dict[str, Any]] = None
    steps: List[Dict[str, Any]] = field(default_factory=list)
    warnings: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Server:
    """One server that is to end: what it is, how it is ended, and how it is asked."""

    main: Optional[ProcessInfo]
    members: Callable[[], List[Member]]
    way: Way
    host: str
    port: int
    api_key: Optional[str]
    version: str
    tls: Optional[Tls] = None
    # Whether the main process is podman's client.
    podman: bool = False


class StopSequence:
    """One stop.  `now` gives the time in seconds since the epoch."""

    def __init__(
        self,
        paths: InstancePaths,
        wish: Wish,
        release: Optional[Release],
        tools: Tools,
        folders: Optional[Sequence[str]] = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.report = Report()
        self._paths = paths
        self._wish = wish
        self._release = release
        self._tools = tools
        self._folders = [leftovers.SHARED_MEMORY, leftovers.TEMPORARY] if folders is None else list(folders)
        self._now = now
        self._running: List[Running] = []
        self._unmanaged: Optional[Unmanaged] = None
        self._adopted_version = ""
        self._began = now()

    def run(self, act: bool) -> Report:
        """Stop the instance, or find out what that would take.  Raises StopError, ReleaseError and RunningError.

        The report has what was done so far also where this raises.
        """
        with self._step("find"):
            self._find()
        if self._taken_over is not None:
            with self._step("adopt"):
                self._adopt(self._taken_over, act)
        servers = self._servers()
        uid = self._user(servers)
        used: Set[Identity] = set()
        keeper = Leftovers(self._tools.procfs, *self._folders)
        survivors: List[str] = []
        for server in servers:
            survivors += self._deal_with(server, keeper, used, act)
        if self._orphans(self._members()):
            nobodys = _Server(None, lambda: self._orphans(self._members()), BySignal(self._tools), "", 0, None, "")
            survivors += self._deal_with(nobodys, keeper, used, act)
        if survivors:
            raise StopError("%s could not be stopped. Still there: %s." % (self._paths.instance, "; ".join(survivors)))
        self._forget(act)
        with self._step("leftovers"):
            self._clean(keeper, used, uid, set() if act else self._pids_of(servers), act)
        with self._step("port"):
            self._check_port(act)
        return self.report

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        began = self._tools.clock()
        try:
            yield
        finally:
            self.report.steps.append({"name": name, "seconds": round(self._tools.clock() - began, 3)})

    # -- finding

    def _find(self) -> None:
        self._running = find_all(self._paths, self._wish.manager, self._release, self._tools.procfs, self._tools.run)
        if self._wish.port:
            self._unmanaged = find_unmanaged(
                self._wish.host, self._wish.port, self._tools.procfs, self._is_ours, self._tools.run
            )
        if self._unmanaged is not None:
            self.report.unmanaged = self._unmanaged.to_dict()
        if self._unmanaged is not None and self._wish.unmanaged == TAKE_OVER:
            self._refuse_taking_over(self._unmanaged)

    def _refuse_taking_over(self, found: Unmanaged) -> None:
        problems = failures(check_unmanaged(found, TAKE_OVER))
        if problems:
            raise StopError("Nothing was touched. %s" % problems[0].message)
        mains = [running.process for running in self._running if running.process is not None]
        if mains:
            # There is one release to go back to, and that is the one of the server that runs.
            raise StopError(
                "Nothing was touched. %s runs itself (PID %d), and %s: end that one (kill %d), or choose another port."
                % (self._paths.instance, mains[0].pid, found.describe(), found.process.pid)
            )

    def _is_ours(self, process: ProcessInfo) -> bool:
        return any(running.owns(process) for running in self._running)

    @property
    def _taken_over(self) -> Optional[Unmanaged]:
        return self._unmanaged if self._wish.unmanaged == TAKE_OVER else None

    # -- what is to end

    def _servers(self) -> List[_Server]:
        """The servers to end, in this order."""
        members = self._members()
        servers = [
            self._ours(running)
            for running, its_members in zip(self._running, members)
            if self._has_anything(running, its_members)
        ]
        if self._taken_over is not None:
            servers.append(self._theirs(self._taken_over))
        # A server whose PID file was lost is one all the same: it ends its workers itself.
        orphans = self._orphans(members)
        return servers + [self._below(member.process, "") for member in orphans if _is_main(member, orphans)]

    def _members(self) -> List[List[Member]]:
        """The processes of the instance now, as each manager tells them.  Every call looks at all of the host's."""
        return [running.members() for running in self._running]

    @staticmethod
    def _has_anything(running: Running, members: Sequence[Member]) -> bool:
        if running.state is not None and running.state.exists and not running.state.idle:
            return True
        return any(member.evidence != INHERITED for member in members)

    @staticmethod
    def _members_of(running: Running) -> List[Member]:
        """Its processes as its manager knows them.  Which manager's the others are does not show."""
        return [member for member in running.members() if member.evidence != INHERITED]

    @staticmethod
    def _orphans(by_manager: Sequence[Sequence[Member]]) -> List[Member]:
        """Processes that only their inherited variable tells."""
        known: Set[ProcessIdentity] = set()
        marked: Dict[ProcessIdentity, Member] = {}
        for members in by_manager:
            for member in members:
                if member.evidence == INHERITED:
                    marked[member.process.identity] = member
                else:
                    known.add(member.process.identity)
        return [member for identity, member in sorted(marked.items(), key=_by_pid) if identity not in known]

    def _ours(self, running: Running) -> _Server:
        release, wish, main = self._release, self._wish, running.process
        key = wish.api_key or (release.api_key() if release is not None else None)
        host, port = (release.host, release.port) if release is not None else (wish.host, wish.port)
        arguments = server_arguments(main) if main is not None else None
        if arguments is not None and (release is None or option_value(arguments, "--port") is not None):
            # It listens where its own command says, which the current release need not be.
            host, port = address_of(arguments)
        return _Server(
            main=main,
            members=lambda: self._members_of(running),
            way=self._way(running),
            host=host,
            port=port,
            api_key=key,
            version=release.sglang_version if release is not None else "",
            tls=_tls_of(release, arguments),
            podman=release is not None and release.container.get("engine") == PODMAN,
        )

    def _way(self, running: Running) -> Way:
        state = running.state
        if running.manager != SYSTEMD or state is None:
            return BySignal(self._tools)
        if state.exists and not state.idle:
            return ByUnit(self._tools, running.unit, lambda: self._members_of(running))
        if running.container and self._release is not None:
            settings = ContainerSettings.from_dict(self._release.container)
            return ByEngine(self._tools, stop_words(settings, self._paths, self._wish.grace))
        return BySignal(self._tools)

    def _theirs(self, found: Unmanaged) -> _Server:
        key = self._wish.api_key or adoption.api_key_of(found)
        below = self._below(found.process, self._adopted_version)
        return replace(below, host=found.host, port=found.port, api_key=key, tls=tls_of_arguments(found.arguments))

    def _below(self, main: ProcessInfo, version: str) -> _Server:
        """A server that no manager knows.

        Its processes are those below it: its session and process group may be its operator's shell's.
        """
        ownership = Ownership(Claim(roots=(main.identity,)), self._tools.procfs)
        arguments = server_arguments(main) or ()
        host, port = address_of(arguments)
        tls = tls_of_arguments(arguments)
        return _Server(main, ownership.members, BySignal(self._tools), host, port, self._wish.api_key, version, tls)

    def _user(self, servers: Sequence[_Server]) -> Optional[int]:
        """The user that the server runs as, for whom leftovers are looked for."""
        for server in servers:
            # A container's client, which is a member as well, may be somebody else's.
            for process in [server.main] if server.main is not None else [item.process for item in server.members()]:
                return process.uid
        return self._running[0].claim.uid if self._running else None

    # -- taking over

    def _adopt(self, found: Unmanaged, act: bool) -> None:
        key = self._wish.api_key or adoption.api_key_of(found)
        client = HttpClient(found.host, found.port, key, tls=tls_of_arguments(found.arguments))
        try:
            release = adoption.make_release(
                found,
                self._paths,
                self._wish.manager,
                self._wish.grace or 1.0,
                client,
                self._tools.procfs,
                prove=act,
            )
        except adoption.AdoptionError as error:
            raise StopError(str(error)) from None
        self._tools.audit.hide(release.secrets())
        if act:
            # Somebody may be writing a release of this instance meanwhile.
            with locked(Path(self._paths.state_dir), _LOCK_TIMEOUT):
                plan = self._plan_adopted(release)
                apply(plan, self._paths, self._tools.audit, "adopted from PID %d" % found.process.pid)
        else:
            plan = self._plan_adopted(release)
        self._adopted_version = release.sglang_version
        self.report.adopted = plan.release.id
        self.report.changed = True

    def _plan_adopted(self, release: Release) -> Plan:
        return plan_adopted(release, self._paths, datetime.fromtimestamp(self._now(), timezone.utc))

    # -- ending

    def _deal_with(self, server: _Server, keeper: Leftovers, used: Set[Identity], act: bool) -> List[str]:
        """End one server, or say what that would take; sentences about what survived."""
        if act:
            return self._end(server, keeper, used)
        used |= keeper.used_by(member.process.pid for member in server.members())
        self._rehearse(server)
        return []

    def _end(self, server: _Server, keeper: Leftovers, used: Set[Identity]) -> List[str]:
        report, tools, main = self.report, self._tools, server.main
        if main is not None and server.port:
            with self._step("drain"):
                report.drain = self._drain(server, main.identity)
            if report.drain.notable:
                report.warnings.append("Drain: %s." % report.drain.message)
        used |= keeper.used_by(member.process.pid for member in server.members())
        with self._step("end"):
            stopped = self._stop(server)
        report.ended += [_row(item) for item in stopped.ended]
        # A unit that had no process left, such as one that waits to start again, is stopped as well.
        stopped_empty = not stopped.ended and not stopped.main.problem
        report.changed = report.changed or stopped_empty or len(stopped.survivors) < len(stopped.ended)
        self._judge(server, stopped)
        found = [describe_survivor(item, tools.procfs) for item in stopped.survivors]
        if stopped.main.problem and (main is None or tools.procfs.alive(main.identity) or not found):
            found.append(stopped.main.problem)
        return found

    def _stop(self, server: _Server) -> Stopped:
        """End it, and record that."""
        wish, tools = self._wish, self._tools
        target = dict(process_target(server.main), instance=self._paths.instance)
        drained = server.main is not None and server.port and self.report.drain.asked
        evidence = {
            "way": server.way.how,
            "grace": wish.grace,
            "in_flight": self.report.drain.in_flight if drained else None,
        }
        with tools.audit.event(STOP, target, evidence) as event:
            stopped = stop(server.main, server.way, server.members, wish.limits, tools)
            event.outcome = _stop_outcome(stopped)
            event.detail = stopped.main.problem or stopped.main.limit
            event.evidence["ended"] = ["%d %s" % (item.process.pid, item.outcome.action) for item in stopped.ended]
        return stopped

    def _drain(self, server: _Server, identity: ProcessIdentity) -> Drained:
        tools = self._tools
        pids = {member.process.pid for member in server.members()} | {identity.pid}
        owner = port_owner(lambda process: process.pid in pids, server.host, server.port, tools.procfs)
        if owner.foreign:
            # Somebody else would be asked, and get the key.
            return Drained(message="it is not waited for: %s" % owner.foreign, notable=True)
        key = server.api_key if owner.known else None
        client = HttpClient(server.host, server.port, key, tls=server.tls)
        return drain(client, self._wish.drain_timeout, lambda: tools.procfs.alive(identity), tools.clock, tools.sleep)

    def _judge(self, server: _Server, stopped: Stopped) -> None:
        outcome = stopped.main.outcome
        if outcome is None or outcome.action == "survived":
            return
        killed = "SIGKILL" in outcome.signals
        status = stopped.main.exit_status
        clean, warning = exit_status.judge(status, server.version, killed, stopped.main.limit, server.podman)
        if clean is None:
            clean = stopped.main.orderly
        self.report.exit_status, self.report.clean_exit = status, clean
        if warning:
            self.report.warnings.append(warning)

    def _rehearse(self, server: _Server) -> None:
        """What would be signalled: while a main process lives, it ends its workers itself."""
        self.report.changed = True
        main = server.main
        for member in server.members():
            if main is not None and member.process.identity == main.identity:
                action = "would_terminate" if self._wish.grace > 0 else "would_kill"
                self.report.ended.append(ended_row(member.process, MAIN, action))
            elif main is None and not self._is_listed(member.process):
                self.report.ended.append(ended_row(member.process, role_of(member), "would_kill"))

    def _is_listed(self, process: ProcessInfo) -> bool:
        return any(row["pid"] == process.pid for row in self.report.ended)

    def _forget(self, act: bool) -> None:
        """A PID file whose processes are gone has no use any more."""
        if not self._paths.pid_file.exists():
            return
        self.report.changed = True
        if act:
            remove_file(self._paths.pid_file)

    # -- afterwards

    def _pids_of(self, servers: Sequence[_Server]) -> Set[int]:
        members = [member for server in servers for member in server.members()]
        return {member.process.pid for member in [*members, *self._orphans(self._members())]}

    def _clean(self, keeper: Leftovers, used: Set[Identity], uid: Optional[int], ending: Set[int], act: bool) -> None:
        procfs = self._tools.procfs
        processes = [process for process in map(procfs.read, procfs.pids()) if process is not None and not process.dead]
        scene = Scene(
            used=used,
            uid=uid,
            stopped_at=self._began,
            others=self._others_run(uid, processes),
            live_pids=live_pids(processes),
            ending=ending,
        )
        found = keeper.clean(scene, act, self._wish.remove_leftovers)
        self.report.leftovers = found
        if any(item.action in (REMOVED, WOULD_REMOVE) for item in found):
            self.report.changed = True
        removed = [item.file.path for item in found if item.action == REMOVED]
        if removed:
            why = {"why": "nobody uses them after the stop", "files": removed}
            self._tools.audit.record(STOP, {"instance": self._paths.instance}, why, REMOVED)

    def _others_run(self, uid: Optional[int], processes: Sequence[ProcessInfo]) -> bool:
        """Whether another server of this user is among the live processes."""
        for process in processes:
            if process.uid != uid or process.pid == os.getpid() or self._is_to_end(process):
                continue
            if _is_sglang(process) or marked_instance(process.pid, self._tools.procfs):
                return True
        return False

    def _check_port(self, act: bool) -> None:
        wish = self._wish
        if not wish.port:
            return
        if self._unmanaged is not None and self._taken_over is None:
            problem = check_unmanaged(self._unmanaged, wish.unmanaged)[0].message
            self.report.port = {"number": wish.port, "free": False, "listener": self._unmanaged.describe()}
            raise StopError("The port of %s is not free. %s" % (self._paths.instance, problem))
        state = self._port()
        if act and not state.free:
            state = wait_until_free(self._port, _PORT_PATIENCE, self._tools.clock, self._tools.sleep)
        self.report.port = {
            "number": wish.port,
            "free": state.free,
            "listener": state.foreign[0] if state.foreign else "this instance" if state.ours else "",
        }
        if state.foreign:
            raise StopError("The port of %s is not free: %s" % (self._paths.instance, state.foreign[0]))
        if act and state.ours:
            raise StopError(
                "A process of %s still listens on port %d after everything of it was ended: run the stop again."
                % (self._paths.instance, wish.port)
            )

    def _port(self) -> PortState:
        procfs = self._tools.procfs
        return look_at_port(self._wish.host, self._wish.port, procfs.listeners, procfs.read, self._is_to_end)

    def _is_to_end(self, process: ProcessInfo) -> bool:
        return self._is_ours(process) or (self._taken_over is not None and self._taken_over.owns(process))


def _tls_of(release: Optional[Release], arguments: Optional[Sequence[str]]) -> Optional[Tls]:
    """How a server of the instance is asked: as its own command says, which the current release need not be.

    That command may name a file that only a container has; then the release tells.
    """
    found = tls_of_arguments(arguments) if arguments is not None else None
    if found is not None or release is None or (arguments is not None and "--config" not in arguments):
        return found
    return tls_of_release(release)


def _stop_outcome(stopped: Stopped) -> str:
    """What became of a server in a word."""
    if stopped.survivors:
        return "survived"
    if stopped.main.problem:
        return "failed"
    outcome = stopped.main.outcome
    return "killed" if outcome is not None and "SIGKILL" in outcome.signals else "stopped"


def _by_pid(item: Tuple[ProcessIdentity, Member]) -> int:
    return item[0].pid


def _is_main(member: Member, orphans: Sequence[Member]) -> bool:
    """Whether it is a server's main process, and no fork of another one."""
    parents = [other.process.pid for other in orphans]
    return server_arguments(member.process) is not None and member.process.ppid not in parents


def _is_sglang(process: ProcessInfo) -> bool:
    if process.argv and process.argv[0].startswith("sglang::"):
        return True
    return server_arguments(process) is not None


# -- rows of the result


def ended_row(process: ProcessInfo, role: str, action: str) -> Dict[str, Any]:
    """One process that would be ended."""
    return {
        "pid": process.pid,
        "start_ticks": process.start_time,
        "name": process.name,
        "role": role,
        "action": action,
        "signals": [],
        "seconds": 0.0,
        "state": "",
        "error": "",
    }


def _row(item: Ended) -> Dict[str, Any]:
    outcome = item.outcome
    return {
        **ended_row(item.process, item.role, outcome.action),
        "signals": list(outcome.signals),
        "seconds": round(outcome.seconds, 3),
        "state": outcome.state,
        "error": outcome.error,
    }
