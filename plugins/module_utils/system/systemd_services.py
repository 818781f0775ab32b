# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services as supervisors: of this host's systemd, of a user's, and of the systemd inside a guest.

Source: systemctl(1), systemd.service(5) (which end of a process Restart= answers to), pct(1), lxc-attach(1).
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Dict, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.system.containers import Container, UnitName
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import (
    LXC,
    NSPAWN,
    QUERY_TIMEOUT,
    SYSTEMD,
    SYSTEMD_USER,
    Condition,
    Found,
    Runner,
    Supervisor,
    try_ways,
)

Ways = Sequence[Tuple[str, ...]]

_PROPERTIES = "Id,LoadState,ActiveState,SubState,Restart,RestartUSec,MainPID,NRestarts,ControlGroup"
# A unit's name may come from a guest, where anybody could have made up the name of a control group.
_NAME = re.compile(r"[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]*\.service$")
_GUEST = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*$")
# Values of Restart= with which a main process that was ended by a signal stays ended.
_STAYS_ENDED = frozenset(("no", "on-watchdog"))

# Services that run other people's processes, or without which the host does not work.  Without ".service".
_NEVER = (
    *("ssh", "sshd", "ssh@*", "sshd@*", "sshd-*", "dropbear*", "telnet*"),
    *("cron", "crond", "cronie", "anacron", "fcron", "atd"),
    *("docker", "dockerd", "snap.docker.*", "containerd", "buildkit*", "crio", "cri-o", "cri-docker*"),
    *("podman", "podman-*", "podman@*", "kubelet", "k3s*", "rke2*", "k0s*", "snap.microk8s.*"),
    *("lxc", "lxc@*", "lxc-*", "lxcfs", "lxd*", "snap.lxd.*", "incus*", "pve*", "qemu-*", "libvirt*", "virt*"),
    *("slurmd", "slurmd@*", "slurmstepd*", "slurmctld", "pbs*", "sge*", "condor", "nomad"),
    *("supervisor", "supervisord", "supervisor@*", "supervisord@*"),
    *("user@*", "user-runtime-dir@*", "dbus", "dbus-*", "systemd-*", "polkit*", "NetworkManager*"),
    *("getty*", "serial-getty*", "console-getty", "container-getty*", "emergency", "rescue"),
    *("display-manager", "gdm*", "sddm*", "lightdm*", "lxdm*", "xdm*", "ly", "greetd"),
    *("nvidia-*", "nvsm*", "dcgm*", "nv-*", "nvlsm*"),
)


def may_be_stopped(unit: UnitName) -> bool:
    """Whether a unit is a service that was started for what it runs."""
    stem = unit.name[: -len(".service")]
    return unit.is_service and not any(fnmatchcase(stem, pattern) for pattern in _NEVER)


def host_ways(uid: Optional[int], own_uid: int) -> Ways:
    """How to reach the system's manager (uid None) or that of a user."""
    if uid is None:
        return [("systemctl",)]
    session = ("env", "XDG_RUNTIME_DIR=/run/user/%d" % uid, "systemctl", "--user")
    if uid == own_uid:
        return [session]
    # systemctl reaches another user's manager since systemd 248.
    return [
        ("systemctl", "--user", "--machine=%d@" % uid),
        ("setpriv", "--reuid=%d" % uid, "--clear-groups", *session),
    ]


def guest_commands(guest: Container) -> Ways:
    """How to run a command inside a guest; none where this host has no way in."""
    if not _GUEST.match(guest.id):
        return []
    if guest.runtime == LXC:
        proxmox = [("pct", "exec", guest.id, "--")] if guest.id.isdigit() else []
        others = [
            ("lxc-attach", "-n", guest.id, "--"),
            ("incus", "exec", guest.id, "--"),
            ("lxc", "exec", guest.id, "--"),
        ]
        return [*proxmox, *others]
    return []


def guest_ways(guest: Container) -> Ways:
    """How to reach the systemd inside a guest."""
    if guest.runtime == NSPAWN and _GUEST.match(guest.id):
        return [("systemctl", "--machine=" + guest.id)]
    return [(*command, "systemctl") for command in guest_commands(guest)]


@dataclass(frozen=True)
class _Unit:
    """What `systemctl show` says."""

    load: str
    active: str
    sub: str
    restart: str
    delay: str
    main_pid: int
    starts: int
    cgroup: str

    @property
    def idle(self) -> bool:
        return self.active in ("inactive", "failed")


def parse(text: str) -> Optional[_Unit]:
    """Make sense of `systemctl show`; None where it is no such text."""
    values: Dict[str, str] = {}
    for line in text.splitlines():
        key, _equals, value = line.partition("=")
        values[key] = value
    try:
        return _Unit(
            load=values["LoadState"],
            active=values["ActiveState"],
            sub=values["SubState"],
            restart=values.get("Restart", ""),
            delay=values.get("RestartUSec", ""),
            main_pid=int(values.get("MainPID") or 0),
            starts=int(values.get("NRestarts") or 0),  # systemd before 235 does not count them
            cgroup=values.get("ControlGroup", ""),
        )
    except (KeyError, ValueError):
        return None


class SystemdServices:
    """Finds the service that runs a process, and asks for its state."""

    def __init__(self, run: Runner, own_uid: int) -> None:
        self._run = run
        self._own_uid = own_uid

    def on_host(self, unit: UnitName) -> Found:
        """The supervisor that a unit of this host is."""
        kind = SYSTEMD if unit.uid is None else SYSTEMD_USER
        name = unit.name if unit.uid is None else "%s of user %d" % (unit.name, unit.uid)
        return self._find(kind, name, unit, host_ways(unit.uid, self._own_uid))

    def in_guest(self, unit: UnitName, guest: Container) -> Found:
        """The supervisor that a unit inside a guest is."""
        if unit.uid is not None:  # of a user's manager in there
            return Found()
        return self._find(guest.runtime, "%s: %s" % (guest.id, unit.name), unit, guest_ways(guest))

    def _find(self, kind: str, name: str, unit: UnitName, ways: Ways) -> Found:
        if not may_be_stopped(unit) or not _NAME.match(unit.name):
            return Found()
        show = ("show", "--no-pager", "--property", _PROPERTIES, unit.name)
        way, completed = try_ways(self._run, ways, show)
        state = parse(completed.out) if way else None
        if state is None:
            advice = "systemd does not tell the state of %s (%s): stop it where it is managed" % (
                name,
                completed.reason if not way else "no answer of systemctl show",
            )
            return Found(Supervisor(kind, name, advice=advice, cgroup=unit.cgroup))
        if state.load not in ("loaded", "masked"):
            return Found(note="left over from the unit %s, which systemd does not know" % name)
        if state.idle:
            return Found(note="left over from the unit %s, which is %s" % (name, state.active))
        stop = (*way, "stop", unit.name)
        return Found(
            Supervisor(
                kind=kind,
                name=name,
                restarts=state.restart not in _STAYS_ENDED if state.restart else None,
                policy=_policy(state),
                stop=stop,
                advice="stop it with: " + " ".join(shlex.quote(word) for word in stop),
                manager=SYSTEMD,
                query=(*way, *show),
                cgroup=unit.cgroup,
                main_pid=state.main_pid,
                starts=state.starts,
            )
        )

    def condition(self, supervisor: Supervisor) -> Condition:
        """Ask systemd for the state of the unit now."""
        completed = self._run(supervisor.query, QUERY_TIMEOUT)
        state = parse(completed.out) if completed.ok else None
        if state is None:
            return Condition("its state cannot be read: %s" % completed.reason, known=False)
        words = "it is %s (%s)" % (state.active, state.sub)
        waiting = state.sub.startswith("auto-restart")
        if waiting:
            words += ", %s" % _policy(state)
        return Condition(words, True, state.idle, waiting, state.main_pid, state.starts)


def _policy(state: _Unit) -> str:
    if not state.restart:
        return ""
    delay = " after %s" % state.delay if state.delay and state.restart not in _STAYS_ENDED else ""
    return "Restart=%s%s" % (state.restart, delay)
