# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds what keeps a process alive, stops it properly, and notices when it starts the process again.

The outermost supervisor that this host can stop counts: stopping something inside it would only have it
started again.  A session, a job scheduler, an engine's own daemon and the like run other people's
processes: they are no supervisors here, and never stopped.
"""

from __future__ import annotations

import os
import time
from typing import Callable, Collection, Dict, Optional, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.system.container_engines import ENGINE, ContainerEngines
from ansible_collections.inferops.sglang.plugins.module_utils.system.containers import (
    Container,
    Place,
    UnitName,
    place_of,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessInfo, ProcFs
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import (
    KUBERNETES,
    LXC,
    NSPAWN,
    QEMU,
    SUPERVISORD,
    SYSTEMD,
    Condition,
    Found,
    Manager,
    Runner,
    Stopped,
    Supervisor,
    cgroup_path,
    members,
    name_processes,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisord import Supervisord
from ansible_collections.inferops.sglang.plugins.module_utils.system.systemd_services import (
    SystemdServices,
    guest_commands,
)

# A manager may learn a moment later than /proc that a process has ended: how long that is waited for (seconds).
_SETTLE = 2.0
_POLL = 0.1
_VM_ADVICE = "shut the virtual machine down, with qm shutdown or virsh shutdown"
_POD_ADVICE = "scale its workload down, or drain this node with kubectl drain"


class Supervisors:
    """Finds supervisors and remembers them, one for each unit and container.

    own_unit and own_cgroup are this task's own: neither is ever stopped.  grace: seconds that a container
    engine gives between SIGTERM and SIGKILL.
    """

    def __init__(
        self,
        run: Runner,
        procfs_root: str = "/proc",
        own_unit: str = "",
        own_cgroup: str = "",
        grace: float = 10.0,
        own_uid: Optional[int] = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        uid = os.geteuid() if own_uid is None else own_uid
        self._run = run
        self._procfs = ProcFs(procfs_root)
        self._own_unit = own_unit
        self._own = place_of(own_cgroup)
        self._clock = clock
        self._sleep = sleep
        self._services = SystemdServices(run, uid)
        self._engines = ContainerEngines(run, self._procfs, uid, grace, service=self._services.on_host)
        self._programs = Supervisord(run, self._procfs, uid)
        self._managers: Dict[str, Manager] = {
            SYSTEMD: self._services,
            ENGINE: self._engines,
            SUPERVISORD: self._programs,
        }
        self._found: Dict[Tuple[object, ...], Found] = {}
        self._pods: Dict[str, Dict[str, int]] = {}  # the containers of a pod when it was found

    # -- finding

    def of(self, process: ProcessInfo) -> Optional[Supervisor]:
        """The outermost supervisor of a process, or None: then nobody has to be asked before it is ended."""
        return self._find(process).supervisor

    def note(self, process: ProcessInfo) -> str:
        """Why a process has no supervisor although its control group names one, or ""."""
        return self._find(process).note

    def _find(self, process: ProcessInfo) -> Found:
        place = self._from_here(place_of(process.cgroup))
        groups = [item.cgroup for item in (place.unit, place.container, place.guest_unit) if item is not None]
        key = (place, *groups)
        if key not in self._found:
            self._found[key] = self._in_place(place)
        found = self._found[key]
        if found.supervisor is None and not found.note and place.container is None:
            return self._programs.find(process)
        return found

    def _from_here(self, place: Place) -> Place:
        """A place as it looks from inside the container that this task itself runs in."""
        own, other = self._own.container, place.container
        if own is None or other is None or (own.cgroup, own.id) != (other.cgroup, other.id):
            return place
        return Place(other.inner, place.guest_unit)

    def _in_place(self, place: Place) -> Found:
        if place.unit is not None and not self._is_ours(place.unit):
            found = self._services.on_host(place.unit)
            if found.supervisor is not None or (found.note and place.container is None):
                return found
        if place.container is None:
            return Found()
        return self._in_container(place.container, place)

    def _is_ours(self, unit: UnitName) -> bool:
        own = self._from_here(self._own).unit
        return unit.name == self._own_unit or (own is not None and (own, own.cgroup) == (unit, unit.cgroup))

    def _in_container(self, container: Container, place: Place) -> Found:
        if container.pod:
            self._pods.setdefault(container.pod, self._containers_of_pod(container.pod))
            name = "pod %s (%s)" % (container.pod, container.label)
            return Found(Supervisor(KUBERNETES, name, True, "the kubelet", (), _POD_ADVICE, cgroup=container.cgroup))
        if container.runtime == QEMU:
            return Found(Supervisor(QEMU, container.name or container.id, advice=_VM_ADVICE, cgroup=container.cgroup))
        if container.runtime in (LXC, NSPAWN):
            return self._in_guest(container, place.guest_unit)
        return self._engines.find(container, place.uid)

    def _in_guest(self, guest: Container, unit: Optional[UnitName]) -> Found:
        """What runs a process inside a guest: the guest as a whole is somebody's machine and is not stopped."""
        if unit is not None:
            found = self._services.in_guest(unit, guest)
            if found.supervisor is not None:
                return found
        ways = guest_commands(guest)
        if guest.inner is not None and not guest.inner.pod and ways:
            return self._engines.find(guest.inner, inside=ways, guest=guest.id, kind=guest.runtime)
        return Found()

    # -- stopping

    def stop(self, supervisor: Supervisor, timeout: float) -> Stopped:
        """Stop a supervisor and say how that went.

        timeout is in seconds and bounds the stop itself; a few seconds more may go into asking what state it
        is in.  Where the time is over the manager may still go on with it.
        """
        if not supervisor.stop:
            return Stopped(False, "%s is not stopped from here: %s" % (supervisor.label, supervisor.advice))
        began = self._clock()
        completed = self._run(supervisor.stop, timeout)
        condition = self._condition(supervisor)
        present = members(self._procfs, supervisor.cgroup)
        alive = [process for process in present if not process.dead]
        problem = ""
        if completed.timed_out:
            problem = "was not stopped within %g s" % timeout
        elif not completed.ok:
            problem = "could not be stopped (%s)" % completed.reason
        elif not condition.known:
            problem = "was told to stop, and whether it has is unknown"
        elif not condition.stopped:
            problem = "was told to stop and has not"
        elif alive:
            problem = "is stopped, but not all of its processes are"
        inactive = condition.known and condition.stopped
        if problem and inactive and not alive:  # it is done all the same, only later or in another way
            problem = ""
        words = [condition.words]
        if present and (problem or alive):
            words.append("still there: " + name_processes(present))
        message = "%s %s: %s" % (supervisor.label, problem or "is stopped", "; ".join(words))
        warning = _remark(completed.err) if completed.ok else ""
        if warning:
            message += " (%s)" % warning
        left = tuple(process.pid for process in alive)
        return Stopped(not problem, message, self._clock() - began, inactive, left)

    # -- noticing that it starts again

    def revives(self, supervisor: Supervisor, since_pids: Collection[int]) -> str:
        """A sentence, if the supervisor starts again what was ended (since_pids are those processes), else ""."""
        if supervisor.kind == KUBERNETES:
            return self._revived_pod(supervisor)
        if not supervisor.query:
            return ""
        deadline = self._clock() + _SETTLE
        while True:
            condition = self._condition(supervisor)
            if not condition.known or condition.stopped:
                return ""
            if condition.waiting:
                return self._revival(supervisor, "is about to start it again", condition)
            again = condition.main_pid not in (0, supervisor.main_pid)
            if (again and condition.main_pid not in since_pids) or condition.starts > supervisor.starts:
                return self._revival(
                    supervisor, "has started it again (main process %d)" % condition.main_pid, condition
                )
            if condition.main_pid not in since_pids or self._clock() >= deadline:
                return ""
            self._sleep(_POLL)  # it does not know yet that its main process has ended

    def _revival(self, supervisor: Supervisor, what: str, condition: Condition) -> str:
        details = [words for words in (supervisor.policy, condition.words) if words]
        if supervisor.policy and supervisor.policy in condition.words:
            details = [condition.words]
        return "%s %s: %s; %s" % (supervisor.label, what, ", ".join(details), supervisor.advice)

    def _revived_pod(self, supervisor: Supervisor) -> str:
        """The kubelet makes a new container in the same pod."""
        container = place_of(supervisor.cgroup).container
        if container is None:
            return ""
        before = self._pods.get(container.pod, {})
        new = [pid for identifier, pid in self._containers_of_pod(container.pod).items() if identifier not in before]
        if not new:
            return ""
        return "%s has a new container, with process %d; %s" % (supervisor.label, min(new), supervisor.advice)

    def _containers_of_pod(self, pod: str) -> Dict[str, int]:
        """The containers that run in a pod now, each with one of its processes."""
        found: Dict[str, int] = {}
        for pid in self._procfs.pids():
            container = place_of(cgroup_path(self._procfs, pid)).container
            if container is not None and container.pod == pod:
                found.setdefault(container.id, pid)
        return found

    def _condition(self, supervisor: Supervisor) -> Condition:
        manager = self._managers.get(supervisor.manager)
        return manager.condition(supervisor) if manager is not None else Condition("its state is unknown", known=False)


def _remark(text: str) -> str:
    """What systemctl says besides: that something else may start the unit again."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines)[:300] if any("activated" in line for line in lines) else ""
