# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Containers as supervisors: what docker, podman and nerdctl say about one, and how they stop it.

Source: the documents that `docker inspect`, `podman inspect` and `nerdctl inspect` print.  They hold the
container's environment too; nothing of that is kept.
"""

from __future__ import annotations

import json
import math
import pwd
import shlex
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.system.containers import Container, UnitName, belongs
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import (
    CONTAINERD,
    DOCKER,
    PODMAN,
    QUERY_TIMEOUT,
    Condition,
    Found,
    Runner,
    Supervisor,
    cgroup_path,
)

ENGINE = "engine"  # the manager of these supervisors

# The engines that may know a container, by the runtime that its control group tells.
_ENGINES: Dict[str, Sequence[str]] = {
    "docker": (DOCKER,),
    "podman": (PODMAN,),
    "containerd": (CONTAINERD,),
    "oci": (DOCKER, PODMAN),
}
_PROGRAMS = {DOCKER: "docker", PODMAN: "podman", CONTAINERD: "nerdctl"}
_OVER = frozenset(("exited", "dead", "created", "stopped", "configured"))
_SWARM_SERVICE = "com.docker.swarm.service.name"
_SYSTEMD_UNIT = "PODMAN_SYSTEMD_UNIT"


def home_of(uid: int) -> Optional[Tuple[str, str]]:
    """Name and home of a user, or None."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return None
    return entry.pw_name, entry.pw_dir


@dataclass(frozen=True)
class Inspected:
    """What matters of an inspection.

    policy is "" where the engine does not tell; pid 0 means that no main process runs; swarm and unit name
    what manages the container itself: a service of a swarm, a systemd unit.
    """

    name: str
    status: str
    restarting: bool
    pid: int
    restarts: int
    policy: str
    swarm: str
    unit: str

    @property
    def over(self) -> bool:
        """Whether its main process has ended and is not started again."""
        return not self.restarting and (self.status in _OVER or (self.pid == 0 and self.status != "restarting"))


def parse(text: str) -> Optional[Inspected]:
    """Make sense of an inspection; None where it is none."""
    try:
        document = json.loads(text)
        data = document[0] if isinstance(document, list) else document
        state = _mapping(data["State"])
        policy = _mapping(_mapping(data.get("HostConfig")).get("RestartPolicy"))
        labels = _mapping(_mapping(data.get("Config")).get("Labels"))
        return Inspected(
            name=str(data.get("Name") or "").lstrip("/"),
            status=str(state.get("Status") or "").lower(),
            restarting=bool(state.get("Restarting")),
            pid=int(state.get("Pid") or 0),
            restarts=int(data.get("RestartCount") or state.get("RestartCount") or 0),
            policy=str(policy.get("Name") or "") or ("no" if policy else ""),
            swarm=str(labels.get(_SWARM_SERVICE) or ""),
            unit=str(labels.get(_SYSTEMD_UNIT) or ""),
        )
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return None


def _mapping(value: Any) -> Dict[str, Any]:
    return value if isinstance(value, dict) else {}


class _Answer(NamedTuple):
    """An engine's answer about one container: what it is, that there is none (absent), or why neither."""

    inspected: Optional[Inspected]
    absent: bool
    problem: str


class ContainerEngines:
    """Finds the engine that runs a container, and asks for its state.

    grace: seconds that an engine gives a container between its own SIGTERM and SIGKILL.  service finds the
    supervisor that a systemd unit is: podman may run a container for one, which then is what to stop.
    """

    def __init__(
        self,
        run: Runner,
        procfs: ProcFs,
        own_uid: int,
        grace: float,
        service: Callable[[UnitName], Found] = lambda _unit: Found(),
        home: Callable[[int], Optional[Tuple[str, str]]] = home_of,
    ) -> None:
        self._run = run
        self._procfs = procfs
        self._own_uid = own_uid
        self._grace = math.ceil(grace)
        self._service = service
        self._home = home

    def find(
        self,
        container: Container,
        uid: Optional[int] = None,
        inside: Sequence[Tuple[str, ...]] = ((),),
        guest: str = "",
        kind: str = "",
    ) -> Found:
        """The supervisor that a container is.

        uid: below whose user manager it runs (rootless).  inside: commands that lead into the guest that it
        runs in, tried in turn, guest that guest's name, and kind what the supervisor then is.
        """
        problems: List[str] = []
        for engine in _ENGINES.get(container.runtime, ()):
            for way in inside:
                client = (*way, *self._client(engine, uid))
                answer = self._inspect(client, container.id)
                if answer.inspected is not None:
                    name = (guest + ": " if guest else "") + (answer.inspected.name or container.short_id)
                    return self._found(kind or engine, name, container, client, answer.inspected, uid, host=not guest)
                if answer.absent and container.runtime != "oci":
                    return Found(note="orphan of container %s, which %s no longer knows" % (container.label, engine))
                problems.append(answer.problem)
        if container.runtime == "oci" or not problems:
            return Found()
        advice = "the engine does not tell about %s (%s): stop it where it is managed" % (container.label, problems[0])
        return Found(Supervisor(kind or container.runtime, container.short_id, advice=advice, cgroup=container.cgroup))

    def _found(
        self,
        kind: str,
        name: str,
        container: Container,
        client: Tuple[str, ...],
        inspected: Inspected,
        uid: Optional[int],
        host: bool,
    ) -> Found:
        if host and inspected.unit:
            found = self._service(UnitName(inspected.unit, uid, container.cgroup))
            if found.supervisor is not None and found.supervisor.stoppable:
                return found
        if inspected.over:
            return Found(note="left over from container %s, which is %s" % (name, inspected.status or "not running"))
        # Whoever may make control groups can give one the name of somebody else's container.
        main = cgroup_path(self._procfs, inspected.pid) if host and inspected.pid else ""
        if main and not belongs(main, container.cgroup):
            return Found(note="not in container %s, although its control group has that name" % name)
        stop: Tuple[str, ...] = (*client, "stop", "-t", str(self._grace), container.id)
        restarts = inspected.policy != "no" if inspected.policy else None
        policy = "restart policy %s" % inspected.policy if inspected.policy else ""
        advice = "stop it with: " + " ".join(shlex.quote(word) for word in (*client, "stop", container.short_id))
        if inspected.swarm:  # it starts another one wherever this one ends
            stop, restarts, policy = (), True, "task of the swarm service %s" % inspected.swarm
            advice = "on a manager of the swarm, run: docker service scale %s=0" % shlex.quote(inspected.swarm)
        return Found(
            Supervisor(
                kind=kind,
                name=name,
                restarts=restarts,
                policy=policy,
                stop=stop,
                advice=advice,
                manager=ENGINE,
                query=(*client, "inspect", "--type", "container", container.id),
                cgroup=container.cgroup,
                main_pid=inspected.pid,
                starts=inspected.restarts,
            )
        )

    def condition(self, supervisor: Supervisor) -> Condition:
        """Ask the engine for the state of the container now."""
        answer = self._ask(supervisor.query)
        if answer.absent:
            return Condition("it is removed", stopped=True)
        inspected = answer.inspected
        if inspected is None:
            return Condition("its state cannot be read: %s" % answer.problem, known=False)
        waiting = inspected.restarting or inspected.status == "restarting"
        words = "it is %s" % (inspected.status or "in an unknown state")
        if waiting and inspected.policy:
            words += ", restart policy %s" % inspected.policy
        return Condition(words, True, inspected.over, waiting, inspected.pid, inspected.restarts)

    def _inspect(self, client: Tuple[str, ...], identifier: str) -> _Answer:
        return self._ask((*client, "inspect", "--type", "container", identifier))

    def _ask(self, argv: Sequence[str]) -> _Answer:
        completed = self._run(argv, QUERY_TIMEOUT)
        if completed.ok:
            inspected = parse(completed.out)
            return _Answer(inspected, False, "" if inspected is not None else "no answer of %s inspect" % argv[0])
        said = (completed.err + completed.out).lower()
        absent = not completed.missing and ("no such container" in said or "no such object" in said)
        return _Answer(None, absent, completed.reason)

    def _client(self, engine: str, uid: Optional[int]) -> Tuple[str, ...]:
        """The engine's program, told which user's engine is meant."""
        program = _PROGRAMS[engine]
        if uid is None:
            return (program,)
        if engine == DOCKER:
            return (program, "-H", "unix:///run/user/%d/docker.sock" % uid)
        user = self._home(uid)
        if uid == self._own_uid or user is None:
            return (program,)
        name, home = user
        return ("runuser", "-u", name, "--", "env", "HOME=" + home, "XDG_RUNTIME_DIR=/run/user/%d" % uid, program)
