# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carries out a plan: services first, then MPS clients, then signals, until the driver agrees.

Nobody is ended twice.  Who turns up after the start was started by somebody, and that somebody has to
be stopped instead: such a process is reported, with its supervisor, and left alone.  Who was there
before and only now shows as a user (a child that inherited the GPU of an ended process, the importer of
its memory) is ended in a further round.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Callable, Dict, FrozenSet, Iterable, List, Optional, Sequence, Set, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Holder
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.mps import MpsControl
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.observer import (
    EVERYTHING,
    KNOWN,
    NOTHING,
    Look,
    Observer,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.plan import END, UNRESOLVED, Plan, Rules, plan_reclaim
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reclaim_audit import (
    holder_target,
    service_evidence,
    service_outcome,
    service_target,
    witness_of,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.services import Key, key_of
from ansible_collections.inferops.sglang.plugins.module_utils.system.audit import NO_AUDIT, STOP, AuditLog
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity, ProcFs
from ansible_collections.inferops.sglang.plugins.module_utils.system.respawn import NewChild, living, new_children
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import Stopped, Supervisor
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisors import Supervisors
from ansible_collections.inferops.sglang.plugins.module_utils.system.termination import Outcome, end_processes

SURVIVED = "survived"
STOPPED_SERVICE = "stopped_service"

# At most so many rounds of ending; more than two have not been seen.
_ROUNDS = 4
_POLL = 0.005  # seconds between two looks at the driver's lists
_FIRST_SCAN = 0.5  # seconds after which it is asked who keeps the memory of a process that has ended
# How long (seconds) a listed PID that is no live process gets to leave the driver's list.
_UNRESOLVED_PATIENCE = 5.0
# How long (seconds) a former parent gets to start another process: one in a loop does so as soon as it is scheduled.
_FORK_PATIENCE = 0.1
# How long (seconds) a process that a former parent has started gets to take a GPU.
_RESPAWN_PATIENCE = 3.0
_MPS_SERVER = "nvidia-cuda-mps-server"
_MPS_TIMEOUT = 10.0  # seconds for one command to the MPS control daemon


@dataclass(frozen=True)
class Settings:
    """Times in seconds; stop_mps: shut MPS down when its clients are gone."""

    grace: float
    kill_timeout: float
    service_timeout: float
    stop_mps: bool = False


@dataclass
class Done:
    """What was done.

    plan: all decisions that were carried out, of all rounds; outcomes: of the signals; stopped: of the
    services, by supervisor; services: the supervisor behind a PID; after: the last look; notes: what is
    odd about a PID's supervisor; respawned and suspicions: sentences about who came, or may come, back.
    """

    plan: Plan
    after: Look
    outcomes: List[Outcome] = field(default_factory=list)
    services: Dict[int, Supervisor] = field(default_factory=dict)
    stopped: Dict[Key, Stopped] = field(default_factory=dict)
    ended_by_service: Set[ProcessIdentity] = field(default_factory=set)
    mps_clients: Dict[int, str] = field(default_factory=dict)
    mps_stopped: Optional[str] = None
    mps_servers: FrozenSet[int] = frozenset()
    notes: Dict[int, str] = field(default_factory=dict)
    respawned: List[str] = field(default_factory=list)
    suspicions: List[str] = field(default_factory=list)
    started_at: int = 0

    @property
    def signalled_pids(self) -> FrozenSet[int]:
        """The PIDs of those that signals were meant for and that have ended."""
        return frozenset(outcome.identity.pid for outcome in self.outcomes if outcome.action != SURVIVED)

    @property
    def ended_pids(self) -> FrozenSet[int]:
        """The PIDs of all that have ended, with their service or by signals."""
        return self.signalled_pids.union(identity.pid for identity in self.ended_by_service)

    @property
    def changed(self) -> bool:
        """Whether anything was ended or stopped; what was only asked to end, and has not, is no change."""
        return bool(
            self.ended_by_service
            or any(outcome.action in ("terminated", "killed") for outcome in self.outcomes)
            or any(over(stopped) for stopped in self.stopped.values())
            or self.mps_stopped == ""
        )


def over(stopped: Stopped) -> bool:
    """Whether a service starts nothing any more, so that what is left of it may be ended."""
    return stopped.ok or stopped.inactive


def _mps_servers(plan: Plan) -> List[Holder]:
    """The MPS servers on the selected GPUs."""
    return [
        decision.holder
        for decision in plan.decisions
        if decision.holder.process is not None and os.path.basename(decision.holder.process.exe) == _MPS_SERVER
    ]


class Reclaim:
    """One run on a fixed selection."""

    def __init__(
        self,
        observer: Observer,
        rules: Rules,
        settings: Settings,
        procfs: ProcFs,
        supervisors: Supervisors,
        mps: MpsControl,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        audit: AuditLog = NO_AUDIT,
    ) -> None:
        self._observer = observer
        self._rules = rules
        self._settings = settings
        self._procfs = procfs
        self._supervisors = supervisors
        self._mps = mps
        self._clock = clock
        self._sleep = sleep
        self._audit = audit
        self._mps_clients: Optional[Dict[int, int]] = None

    def plan(self, look: Look) -> Plan:
        """What is to become of the holders in a look."""
        return plan_reclaim(look.holders, look.uuids, self._rules)

    def supervisors_of(self, plan: Plan) -> Dict[int, Supervisor]:
        """Who keeps the targets alive, by PID; asked while they live, as nothing tells it afterwards."""
        found = {}
        for holder in plan.targets:
            supervisor = self._supervisors.of(holder.process) if holder.process is not None else None
            if supervisor is not None:
                found[holder.pid] = supervisor
        return found

    def notes(self, plan: Plan) -> Dict[int, str]:
        """Why a target has no supervisor although it seems to (its container was removed), by PID."""
        found = {h.pid: self._supervisors.note(h.process) for h in plan.targets if h.process is not None}
        return {pid: note for pid, note in found.items() if note}

    def run(self, before: Look, plan: Plan, keepers: Dict[int, Supervisor], services: Dict[int, Supervisor]) -> Done:
        """Do it.

        keepers are the supervisors of the targets; services are those of them that are stopped first.
        """
        done = Done(plan, before, services=dict(services), notes=self.notes(plan), started_at=self._procfs.ticks_now())
        parents = self._parents(plan)
        daemons = self.mps_daemons(plan) if self._settings.stop_mps else frozenset()
        self._stop_services(plan, services, done)
        current = plan
        for _round in range(_ROUNDS):
            self._end(current, done)
            self._settle(done)
            current = self._leftovers(done)
            if not current.targets:
                break
            done.plan = Plan(
                tuple(sorted(done.plan.decisions + current.decisions, key=lambda decision: decision.holder.pid))
            )
        if daemons:
            done.mps_stopped = self._quit_mps(daemons)
            done.mps_servers = frozenset(holder.pid for holder in _mps_servers(plan))
            self._settle(done)
        self._find_respawned(keepers, parents, done)
        return done

    def mps_clients(self) -> Dict[int, int]:
        """PID of each MPS client to that of its server; asked once, as a daemon that hangs costs time."""
        if self._mps_clients is None:
            self._mps_clients = self._mps.clients()
        return self._mps_clients

    def mps_daemon_of(self, client: int) -> int:
        """The PID of the control daemon that an MPS client belongs to, 0 where there is none."""
        daemon = self._mps.daemon_of(client)
        return daemon.identity.pid if daemon is not None else 0

    def mps_daemons(self, plan: Plan) -> FrozenSet[int]:
        """The PIDs of the control daemons whose server or clients are on the selected GPUs.

        A daemon that serves other GPUs only is none of our business.
        """
        self.mps_clients()
        found = {self.mps_daemon_of(holder.pid) for holder in plan.targets}.difference([0])
        servers = [holder.process for holder in _mps_servers(plan) if holder.process is not None]
        if servers:
            running = {daemon.identity.pid for daemon in self._mps.daemons()}
            parents = {server.ppid for server in servers}
            # A server whose parent is no daemon was adopted: any of them may be the one it belongs to.
            found |= parents if parents <= running else running
        return frozenset(found)

    # -- steps

    def _stop_services(self, plan: Plan, services: Dict[int, Supervisor], done: Done) -> None:
        for supervisor in {key_of(s): s for s in services.values()}.values():
            run_by_it = [h for h in plan.targets if h.pid in services and key_of(services[h.pid]) == key_of(supervisor)]
            evidence = service_evidence(supervisor, run_by_it)
            with self._audit.event(STOP, service_target(supervisor), evidence) as event:
                stopped = self._supervisors.stop(supervisor, self._settings.service_timeout)
                event.outcome, event.detail = service_outcome(stopped), stopped.message
            done.stopped[key_of(supervisor)] = stopped
        for holder in plan.targets:
            identity = holder.process.identity if holder.process is not None else None
            if holder.pid in services and identity is not None and not self._procfs.alive(identity):
                done.ended_by_service.add(identity)

    def _end(self, plan: Plan, done: Done) -> None:
        """Signal the targets, except for those whose service went away or could not be stopped."""
        targets = []
        for holder in plan.targets:
            if holder.process is None or holder.process.identity in done.ended_by_service:
                continue
            service = done.services.get(holder.pid)
            if service is not None and not over(done.stopped[key_of(service)]):
                continue  # killing it would only make its service start it again
            targets.append(holder)
        self._end_mps_clients(targets, done)
        done.outcomes += end_processes(
            [holder.process.identity for holder in targets if holder.process is not None],
            self._settings.grace,
            self._settings.kill_timeout,
            procfs=self._procfs,
            witness=witness_of(self._audit, plan.decisions),
        )

    def _quit_mps(self, daemons: FrozenSet[int]) -> str:
        """Shut control daemons of MPS down; why that failed, "" where it did not."""
        evidence = {"why": "stop_mps", "daemons": sorted(daemons)}
        with self._audit.event(STOP, {"service": "MPS"}, evidence) as event:
            problem = self._mps.quit(min(_MPS_TIMEOUT, self._settings.service_timeout), daemons)
            event.outcome, event.detail = ("failed" if problem else "stopped"), problem
        return problem

    def _end_mps_clients(self, targets: Iterable[Holder], done: Done) -> None:
        """Have the MPS server end the work of its clients: one that dies in the middle can hang the server."""
        suspects = [holder for holder in targets if "nvml_mps" in holder.evidence]
        if not suspects:
            return
        clients = self.mps_clients()
        for holder in suspects:
            if holder.pid in clients:
                evidence = {"why": "its work is ended before it is signalled", "mps_server": clients[holder.pid]}
                with self._audit.event(STOP, holder_target(holder), evidence) as event:
                    problem = self._mps.terminate(holder.pid, _MPS_TIMEOUT)
                    event.outcome, event.detail = ("failed" if problem else "stopped"), problem
                done.mps_clients[holder.pid] = problem

    def _settle(self, done: Done) -> None:
        """Look until the driver lists nobody any more that has ended, or somebody is found who keeps its GPU."""
        leaving = self._leaving(done)
        patience = (
            self._settings.kill_timeout if done.ended_pids else min(self._settings.kill_timeout, _UNRESOLVED_PATIENCE)
        )
        began = self._clock()
        scan_at = began + _FIRST_SCAN
        while True:
            seen = self._observer.look(NOTHING)
            unread = any(r.failure is not None and not r.failure.permanent for r in seen.readings)
            listed = leaving.intersection(holder.pid for holder in seen.holders)
            now = self._clock()
            if not (listed or unread):
                break
            if listed and now >= scan_at:
                scan_at = now + 2 * (now - began)
                done.after = self._observer.look(EVERYTHING)
                if self._leftovers(done).targets:
                    return
            if now - began >= patience:
                break
            self._sleep(_POLL)
        done.after = self._observer.look(KNOWN)

    def _leaving(self, done: Done) -> FrozenSet[int]:
        """The PIDs that the driver should stop listing by itself now."""
        servers = done.mps_servers if done.mps_stopped == "" else ()
        return done.ended_pids.union(servers, (holder.pid for holder in done.plan.having(UNRESOLVED)))

    def _leftovers(self, done: Done) -> Plan:
        """The targets of the last look that nobody has dealt with and that were there before the start."""
        known = {holder.key for holder in done.plan.targets}
        decisions = [
            decision
            for decision in self.plan(done.after).decisions
            if decision.holder.process is not None
            and decision.action == END
            and decision.holder.key not in known
            and decision.holder.process.start_time < done.started_at
        ]
        return Plan(tuple(decisions))

    # -- who comes back

    def _parents(self, plan: Plan) -> Dict[int, int]:
        """The parents of the targets with their start times: one of them may start its child again."""
        doomed = {holder.pid for holder in plan.targets}
        parents = {}
        for holder in plan.targets:
            parent = holder.process.ppid if holder.process is not None else 0
            if parent > 1 and parent not in doomed:
                identity = self._procfs.identity(parent)
                if identity is not None:
                    parents[parent] = identity.start_time
        return parents

    def _find_respawned(self, keepers: Dict[int, Supervisor], parents: Dict[int, int], done: Done) -> None:
        gone = done.ended_pids
        for supervisor in {key_of(s): s for pid, s in keepers.items() if pid in gone}.values():
            if key_of(supervisor) not in done.stopped:
                sentence = self._supervisors.revives(supervisor, gone)
                if sentence:
                    done.respawned.append(sentence)
        if done.respawned or not gone:
            return
        deadline = self._clock() + _FORK_PATIENCE
        children = new_children(self._procfs, parents, gone, done.started_at)
        while not children and self._clock() < deadline and living(self._procfs, parents):
            self._sleep(_POLL * 4)
            children = new_children(self._procfs, parents, gone, done.started_at)
        self._watch(done, children)

    def _watch(self, done: Done, children: Sequence[NewChild]) -> None:
        """Give processes that a former parent has started the time to take a GPU, or to end."""
        if not children:
            return
        deadline = self._clock() + _RESPAWN_PATIENCE
        while self._clock() < deadline:
            newcomers = {holder.pid for holder in self.newcomers(self._observer.look(NOTHING), done)}
            if newcomers:
                done.respawned += [child.message for child in children if child.child.pid in newcomers]
                break
            if not any(self._procfs.alive(child.child.identity) for child in children):
                break
            self._sleep(_POLL * 4)
        if not done.respawned:  # a server needs longer than that until it reaches its GPU
            alive = [child for child in children if self._procfs.alive(child.child.identity)]
            done.suspicions += ["%s; it may take the GPU again" % child.message for child in alive]
        done.after = self._observer.look(KNOWN)

    def newcomers(self, look: Look, done: Done) -> Tuple[Holder, ...]:
        """The targets in a look that were started after the start of this run."""
        return tuple(
            holder
            for holder in self.plan(look).targets
            if holder.process is not None and holder.process.start_time >= done.started_at
        )
