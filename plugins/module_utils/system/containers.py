# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which container, guest or pod a process runs in, read off the path of its control group.

Every engine names the groups it makes after what it runs, each in its own way, and differently for
each of the two drivers (systemd and cgroupfs).  Nothing is asked of an engine here: the path is all
that remains when the engine no longer knows the container.

The monitor that an engine runs *beside* a container (conmon, lxc.monitor, nspawn's supervisor) has a
group of its own, which is not inside the container.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import List, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import visible

_SHORT = 12  # digits of a long identifier that people are used to


@dataclass(frozen=True)
class Container:
    """One container or guest.

    runtime: docker, podman, containerd, crio, kubernetes (a pod's, of an engine that the path does not
    name), oci (some engine's, likewise), lxc, libvirt-lxc, nspawn or qemu.  id: the engine's identifier;
    for a guest its name, which is the VMID on Proxmox.  pod: UID of the Kubernetes pod.  inner: the
    container inside this one, nearest first.  cgroup: the path of its control group.
    """

    runtime: str
    id: str
    name: str = ""
    pod: str = ""
    inner: Optional[Container] = None
    cgroup: str = field(default="", compare=False, repr=False)

    @property
    def short_id(self) -> str:
        """The identifier as engines print it: a long hexadecimal one is cut to 12 digits."""
        return self.id[:_SHORT] if _LONG_ID.match(self.id) else self.id

    @property
    def label(self) -> str:
        """RUNTIME:NAME, or RUNTIME:ID where no name is known."""
        return "%s:%s" % (self.runtime, visible(self.name or self.short_id))

    @property
    def innermost(self) -> Container:
        """The container that the process itself sees around it."""
        return self.inner.innermost if self.inner is not None else self


@dataclass(frozen=True)
class UnitName:
    """A systemd unit.

    uid: whose user manager it belongs to, None for the system's.  cgroup: the path of its control group.
    """

    name: str
    uid: Optional[int] = None
    cgroup: str = field(default="", compare=False, repr=False)

    @property
    def is_service(self) -> bool:
        """Whether it is a service: a scope holds processes that somebody else started."""
        return self.name.endswith(".service")


@dataclass(frozen=True)
class Place:
    """What the path of a control group tells.

    container: the outermost one.  unit: the systemd unit on this side of it, guest_unit: the one inside
    it, before any further container.  uid: below whose user manager all that is, None for the system's.
    """

    container: Optional[Container] = None
    unit: Optional[UnitName] = None
    guest_unit: Optional[UnitName] = None
    uid: Optional[int] = None


class _Layer(NamedTuple):
    """A container found in a path: parts first to last (exclusive) name it."""

    container: Container
    first: int
    last: int


_LONG_ID = re.compile(r"[0-9a-f]{64}$")
_HEX = r"(?P<id>[0-9a-f]{12,64})"

# One part of a path that says it all.
_NAMED: Sequence[Tuple[str, str]] = (
    (r"docker-%s\.scope$" % _HEX, "docker"),
    (r".*:docker:%s$" % _HEX, "docker"),
    (r"libpod-(?:payload-)?%s(?:\.scope)?$" % _HEX, "podman"),
    (r".*:libpod:%s$" % _HEX, "podman"),
    (r"cri-containerd-%s(?:\.scope)?$" % _HEX, "containerd"),
    (r".*:cri-containerd:%s$" % _HEX, "containerd"),
    (r"nerdctl-%s(?:\.scope)?$" % _HEX, "containerd"),
    (r".*:nerdctl:%s$" % _HEX, "containerd"),
    (r"crio-%s(?:\.scope)?$" % _HEX, "crio"),
    (r".*:crio:%s$" % _HEX, "crio"),
    (r"lxc\.payload\.(?P<id>.+)$", "lxc"),
    # libvirt registers its guests with systemd-machined, and so does systemd-nspawn: the driver's
    # name and a number tell the former.
    (r"machine-qemu-(?P<id>\d+)-(?P<name>.+)\.scope$", "qemu"),
    (r"machine-lxc-(?P<id>\d+)-(?P<name>.+)\.scope$", "libvirt-lxc"),
    (r"qemu-(?P<id>\d+)-(?P<name>.+)\.libvirt-qemu$", "qemu"),
    (r"(?P<id>.+)\.libvirt-qemu$", "qemu"),
    (r"lxc-(?P<id>\d+)-(?P<name>.+)\.libvirt-lxc$", "libvirt-lxc"),
    (r"(?P<id>.+)\.libvirt-lxc$", "libvirt-lxc"),
    (r"machine-(?P<id>.+)\.scope$", "nspawn"),
    (r"systemd-nspawn@(?P<id>.+)\.service$", "nspawn"),
)
_PATTERNS = tuple((re.compile(pattern), runtime) for pattern, runtime in _NAMED)
# A part that is nothing but an identifier: who made it stands before it.
_PARENTS = {
    "docker": "docker",
    "ecs": "docker",
    "actions_job": "docker",
    "default": "containerd",
    "k8s.io": "containerd",
}
_POD = re.compile(
    r"(?:.*-)?pod(?P<uid>[0-9a-f]{8}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{12}"
    r"|[0-9a-f]{32})(?:\.slice)?(?::.*)?$"
)
_LXC_FOLDERS = frozenset(("lxc", "lxc.payload"))
_QEMU_FOLDER = "qemu.slice"  # Proxmox: qemu.slice/VMID.scope
# LXC puts -1, -2, ... behind the name where a group of an earlier run is still there; a VMID has no dash.
_RENAMED_VMID = re.compile(r"(\d+)-\d+$")
# systemd makes no others; a user to whom a part of the hierarchy was given may make a group of any name.
_UNIT_NAME = re.compile(r"[A-Za-z0-9:_.\\@-]+\.(?:service|scope)")
_USER_MANAGER = re.compile(r"user@(\d+)\.service$")


def container_of(cgroup_path: str) -> Optional[Container]:
    """The outermost container of a process: that is the one this host can stop.  None outside of any."""
    return place_of(cgroup_path).container


def guest_unit(cgroup_path: str) -> Optional[str]:
    """The systemd unit inside the outermost container, which is no unit of this host; None without one."""
    unit = place_of(cgroup_path).guest_unit
    return unit.name if unit is not None else None


def place_of(cgroup_path: str) -> Place:
    """Everything that the path of a control group tells about where its processes run."""
    parts = _parts(cgroup_path)
    layers = _layers(parts)
    first = layers[0].first if layers else len(parts)
    unit, uid = _unit(parts, 0, first), _manager(parts[:first])
    if not layers:
        return Place(unit=unit, uid=uid)
    container: Optional[Container] = None
    for layer in reversed(layers):
        container = replace(layer.container, inner=container, cgroup=_path(parts[: layer.last]))
    second = layers[1].first if len(layers) > 1 else len(parts)
    return Place(container, unit, _unit(parts, layers[0].last, second), uid)


def belongs(cgroup_path: str, group: str) -> bool:
    """Whether a control group is this one or lies below it."""
    parts, wanted = _parts(cgroup_path), _parts(group)
    return bool(wanted) and parts[: len(wanted)] == wanted


def _parts(path: str) -> List[str]:
    return [part for part in path.split("/") if part not in ("", ".", "..")]


def _path(parts: Sequence[str]) -> str:
    return "/" + "/".join(parts)


def unescape(name: str) -> str:
    r"""A name that was made part of a unit's name: systemd then writes some of its characters as \xNN."""
    return re.sub(r"(?:\\x[0-9a-f]{2})+", _decode, name)


def _decode(match: re.Match[str]) -> str:
    return bytes.fromhex(match.group(0).replace("\\x", "")).decode("utf-8", "replace")


def _layers(parts: Sequence[str]) -> List[_Layer]:
    """The containers that a path names, outermost first."""
    found: List[_Layer] = []
    begin = 0  # behind the last container
    position = 0
    while position < len(parts):
        layer = _layer_at(parts, begin, position)
        if layer is not None:
            found.append(layer)
            begin = layer.last
        position = max(position + 1, begin)
    return found


def _layer_at(parts: Sequence[str], begin: int, position: int) -> Optional[_Layer]:
    """The container that the part at `position` names; the parts from `begin` on belong to the same level."""
    part = unescape(parts[position])
    before = parts[begin:position]
    pod = _pod(parts[begin : position + 1])
    for pattern, runtime in _PATTERNS:
        match = pattern.match(part)
        if match is None:
            continue
        names = match.groupdict()
        if runtime == "nspawn" and parts[position + 1 : position + 2] == ["supervisor"]:
            return None  # systemd-nspawn itself
        identifier = _guest_name(names["id"]) if runtime == "lxc" else names["id"]
        return _Layer(Container(runtime, identifier, names.get("name") or "", pod), position, position + 1)
    if _LONG_ID.match(part) and before[-1:] != ["libpod_parent"]:  # there it is a pod of podman's
        return _Layer(Container(_engine(before, pod), part, pod=pod), position, position + 1)
    if part in _LXC_FOLDERS and position + 1 < len(parts):
        return _Layer(Container("lxc", _guest_name(parts[position + 1])), position, position + 2)
    if before[-1:] == [_QEMU_FOLDER] and part.endswith(".scope"):
        return _Layer(Container("qemu", part[: -len(".scope")]), position, position + 1)
    return None


def _engine(before: Sequence[str], pod: str) -> str:
    """Whose a group is that has only an identifier for a name."""
    if pod:
        return "kubernetes"
    for part in reversed(before):
        if part in _PARENTS:
            return _PARENTS[part]
    return "oci"


def _pod(parts: Sequence[str]) -> str:
    """UID of the Kubernetes pod that a path goes through; systemd's names have _ for its dashes."""
    for part in reversed(parts):
        match = _POD.match(part)
        if match is not None:
            return match.group("uid").replace("_", "-")
    return ""


def _guest_name(name: str) -> str:
    renamed = _RENAMED_VMID.match(name)
    return renamed.group(1) if renamed is not None else name


def _manager(parts: Sequence[str]) -> Optional[int]:
    """Whose user manager a path goes through."""
    uids = [int(match.group(1)) for match in map(_USER_MANAGER.match, parts) if match is not None]
    return uids[-1] if uids else None


def _unit(parts: Sequence[str], first: int, last: int) -> Optional[UnitName]:
    """The innermost service or scope among the parts of one level, and whose manager runs it."""
    for position in range(last - 1, first - 1, -1):
        part = parts[position]
        if _UNIT_NAME.fullmatch(part):
            # A name that could be taken for a file of the kernel's has _ before it; any other stands as it is.
            name = part[1:] if part.startswith("_") else part
            return UnitName(name, _manager(parts[first:position]), _path(parts[: position + 1]))
    return None
