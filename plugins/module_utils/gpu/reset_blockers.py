# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything that keeps GPUs from being reset, found before anything is touched.  Pure.

A blocker is a stable code and a sentence with the remedy.  What the plan takes out of the way itself
(daemons, persistence mode, the kernel module where that was asked for) is none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Callable, FrozenSet, List, Mapping, Optional, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import reset_needs, reset_units
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import GpuReading, Holder
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.protection import daemon_of
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_drm import Drm
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_needs import Need
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_peers import Links
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_traits import GpuTraits
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_units import Unit
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessInfo

# What to do about nvidia_drm.
AUTO = "auto"
REFUSE = "refuse"
UNLOAD = "unload"
IGNORE = "ignore"
# What to do about the fabric manager.
KEEP = "keep"
STOP = "stop"

_SERVER = re.compile(r"sglang-([a-z0-9][a-z0-9_-]{0,47})")
_DISPLAY = ("the X server", "the desktop", "a display manager")
_MPS = ("the CUDA MPS control daemon", "the CUDA MPS server")
_FABRIC_MANAGER = "the NVIDIA fabric manager"
_PERSISTENCED = "the NVIDIA persistence daemon"
_THIS_TASK = frozenset(["this task itself"])


@dataclass(frozen=True)
class Blocker:
    """Why a reset cannot be, in a stable code and in words.  pid: of the process that is meant, if it is one."""

    code: str
    message: str
    pid: Optional[int] = None


@dataclass(frozen=True)
class Choices:
    """What the options allow."""

    when: str = reset_needs.NEEDED
    include_peers: bool = False
    fabric_manager: str = AUTO
    nvidia_drm: str = AUTO
    in_guest: bool = False


def instance_by_name(holder: Holder) -> str:
    """The server that a process's unit or container is that of, "" where it is none of ours."""
    process = holder.process
    if process is None:
        return ""
    names = [(process.unit or "").rpartition(".service")[0]]
    if process.container is not None:
        names.append(process.container.name)
    found = [match.group(1) for match in map(_SERVER.fullmatch, names) if match]
    return found[0] if found else ""


@dataclass(frozen=True)
class Host:
    """What was found on the host.

    readings: of the GPUs of the selection; holders: of all that are to be reset; needs by index; units: the
    daemons that run and may be stopped; stuck: PIDs that could not be looked into; hidden: why
    there may be processes that do not show at all, or ""; instance_of names the
    server of ours that a process belongs to, or "".
    """

    readings: Tuple[GpuReading, ...]
    holders: Tuple[Holder, ...]
    needs: Mapping[int, Need]
    links: Links
    units: Tuple[Unit, ...] = ()
    drm: Drm = Drm()
    root: bool = True
    stuck: Tuple[int, ...] = ()
    hidden: str = ""
    instance_of: Callable[[Holder], str] = instance_by_name


def of_gpus(host: Host) -> List[Blocker]:
    """GPUs that must not, or cannot, be reset."""
    found = []
    for reading in host.readings:
        need = host.needs[reading.index]
        name = "GPU %d (%s)" % (reading.index, reading.uuid or "not identified")
        if need.action == reset_needs.REBOOT:
            found.append(Blocker("reboot_needed", "%s: %s. Reboot the host; a reset does not help." % (name, need.why)))
        elif need.action == reset_needs.DRAIN:
            found.append(
                Blocker(
                    "drain_needed",
                    "%s: %s. Give it no new work, end its processes, and run this again." % (name, need.why),
                )
            )
        elif need.action == reset_needs.IMEX:
            found.append(Blocker("imex_domain", "%s: %s. Recover the IMEX domain." % (name, need.why)))
        elif need.action == reset_needs.UNDECIDED:
            found.append(Blocker("undecided", "%s: %s. Decide yourself, with when=always." % (name, need.why)))
    return found


def of_target(reading: GpuReading, traits: GpuTraits, choices: Choices) -> List[Blocker]:
    """What is in the nature of a GPU that is to be reset."""
    name = "GPU %d (%s)" % (reading.index, reading.uuid or "not identified")
    found = []
    if reading.identity is None:
        why = reading.failure.text if reading.failure is not None else "It has not been read."
        found.append(Blocker("not_identified", "%s cannot be named by its UUID, so it is not reset: %s" % (name, why)))
    if reading.mig_mode == "enabled":
        found.append(
            Blocker(
                "mig",
                "%s is in MIG mode: a reset destroys its instances, so it is left as it is. Remove them and turn MIG "
                "off yourself (nvidia-smi mig -dci, -dgi, nvidia-smi -mig 0), then reset it." % name,
            )
        )
    if traits.virtualization in ("passthrough", "vgpu") and not choices.in_guest:
        found.append(
            Blocker(
                "guest",
                "%s belongs to a virtual machine (%s), where nvidia-smi answers Not Supported to a reset. Reset it on "
                "the hypervisor, or stop and start the machine; in_guest=true tries it all the same."
                % (name, traits.virtualization),
            )
        )
    if traits.virtualization in ("host_vgpu", "host_vsga"):
        found.append(
            Blocker(
                "vgpu_host",
                "%s is divided among virtual machines (%s). Shut them down and turn that off first."
                % (name, traits.virtualization),
            )
        )
    return found


def of_links(host: Host, targets: FrozenSet[int], choices: Choices) -> List[Blocker]:
    """GPUs that would have to come along, and a fabric manager that must not be restarted alone."""
    found = []
    missing = host.links.together_with(targets) - targets
    unknown = host.links.unknown_of(targets)
    everybody = frozenset(host.links.traits)
    if missing:
        remedy = "Select them too (gpus), or set include_peers=true"
        if any(
            host.links.traits[index].switched and not host.links.traits[index].older_than("ampere") for index in targets
        ):
            remedy += "; where the fabric manager should run, start it: then they are reset one by one"
        found.append(
            Blocker(
                "nvlink_peers",
                "%s must be reset by the same command, as NVLinks connect them. %s." % (_gpus(host, missing), remedy),
            )
        )
    if unknown and targets != everybody:
        found.append(
            Blocker(
                "nvlink_unknown",
                "It is not known which GPUs %s is linked to, and they would have to be reset together. Use "
                "reader=nvml, select all GPUs, or set include_peers=true." % _gpus(host, unknown),
            )
        )
    if stops_fabric_manager(host, choices):
        left_out = host.links.behind_switches() - targets
        if left_out:
            found.append(
                Blocker(
                    "fabric_manager",
                    "The fabric manager would be stopped and started while %s is not reset: NVLink SHARP (NVLS) of "
                    "these GPUs would not work afterwards. Select all GPUs behind the NVSwitches, or leave it running "
                    "(fabric_manager=keep)." % _gpus(host, left_out),
                )
            )
    return found


def stops_fabric_manager(host: Host, choices: Choices) -> bool:
    """Whether the plan stops the fabric manager: where it is asked to, and on switches before Ampere."""
    if not any(unit.kind == reset_units.FABRIC_MANAGER for unit in host.units):
        return False
    if choices.fabric_manager == AUTO:
        return any(traits.switched and traits.older_than("ampere") for traits in host.links.traits.values())
    return choices.fabric_manager == STOP


def of_drm(drm: Drm, choices: Choices) -> List[Blocker]:
    """The kernel module that holds GPUs without any process."""
    if not drm.loaded or choices.nvidia_drm == IGNORE:
        return []
    if choices.nvidia_drm == UNLOAD:
        if drm.uses == 0:
            return []
        return [
            Blocker(
                "nvidia_drm",
                "%s cannot be unloaded while it is used. Stop what uses it: a desktop, a console on the GPU, or %s."
                % (drm.label, ", ".join(drm.users) or "a process with /dev/dri open"),
            )
        ]
    if choices.nvidia_drm == AUTO and drm.modeset == "off":
        return []
    return [
        Blocker(
            "nvidia_drm",
            "%s is loaded, which alone makes a reset fail with In use by another client. Have it unloaded for the "
            "reset (nvidia_drm=unload), or load it without mode setting (modeset=0)." % drm.label,
        )
    ]


def of_holders(host: Host, stopped: FrozenSet[str], persistence_off: bool, choices: Choices) -> List[Blocker]:
    """Processes on the GPUs that nothing in the plan takes off them.

    stopped: units that the plan stops; persistence_off: it ends persistence mode, so that the persistence
    daemon lets go.
    """
    found = []
    for holder in host.holders:
        if holder.protected_by in _THIS_TASK:
            continue
        process = holder.process
        # Anybody gives the units of his own service manager the name of a daemon's.
        outside = process is None or process.container is not None or process.user_manager is not None
        if process is not None and not outside and process.unit in stopped:
            continue
        daemon = daemon_of(process) if process is not None else ""
        if daemon.startswith(_PERSISTENCED) and persistence_off and not outside:
            continue
        if _is_fabric_manager(holder, daemon) and not stops_fabric_manager(host, choices):
            continue  # it goes on looking after the GPUs while they are reset
        found.append(_of_holder(host, holder, daemon))
    return found


def _is_fabric_manager(holder: Holder, daemon: str) -> bool:
    """Whether a process is the fabric manager, or runs in its unit, as the NVLink subnet manager does."""
    process = holder.process
    if daemon.startswith(_FABRIC_MANAGER):
        return True
    if process is None or not process.unit or process.container is not None or process.user_manager is not None:
        return False
    return reset_units.kind_of(process.unit) == reset_units.FABRIC_MANAGER


def _of_holder(host: Host, holder: Holder, daemon: str) -> Blocker:
    process = holder.process
    instance = host.instance_of(holder)
    label, which = holder.label, _which(host, holder)
    if instance:
        return Blocker(
            "server", "The SGLang server %s holds %s: %s. Stop it first." % (instance, which, label), holder.pid
        )
    if daemon.startswith(_DISPLAY):
        return Blocker(
            "display",
            "%s holds %s, and is %s. Stop the display, or name its unit in stop_units." % (label, which, daemon),
            holder.pid,
        )
    if daemon.startswith(_MPS):
        return Blocker(
            "mps",
            "%s holds %s, and is %s. Shut MPS down (gpu_reclaim with stop_mps=true), or name its unit in stop_units."
            % (label, which, daemon),
            holder.pid,
        )
    if daemon:
        return Blocker(
            "daemon", "%s holds %s, and is %s. %s." % (label, which, daemon, _how_to_stop(process)), holder.pid
        )
    if process is None or holder.doubt:
        return Blocker(
            "busy",
            "%s is listed on %s. Free the GPU first (gpu_reclaim), on the host itself." % (label, which),
            holder.pid,
        )
    how = "uses %s" % which if holder.gpus else "has %s open" % which
    spared = " It is protected: %s." % holder.protected_by if holder.protected_by else ""
    return Blocker("busy", "%s %s.%s End it first (gpu_reclaim, role gpu_free)." % (label, how, spared), holder.pid)


def _which(host: Host, holder: Holder) -> str:
    """The GPUs of the selection that a process uses, or else has open."""
    names = {reading.uuid: "GPU %d" % reading.index for reading in host.readings if reading.uuid}
    found = [names[uuid] for uuid in holder.gpus or holder.attached if uuid in names]
    return ", ".join(found) or "a GPU that comes along"


def _how_to_stop(process: Optional[ProcessInfo]) -> str:
    if process is not None and process.container is not None:
        return "Stop its container where that is managed"
    if process is not None and process.unit:
        return "Stop it, or leave it out of keep_units, so that it is stopped and started again"
    return "It is no service of systemd, which could be started again: stop it yourself"


def of_sight(host: Host) -> List[Blocker]:
    """What this task may not do or see."""
    found = []
    if not host.root:
        found.append(Blocker("not_root", "Only root may reset GPUs: run the task as root (become: true)."))
    elif host.hidden:
        found.append(
            Blocker("not_root", "%s: who holds a GPU cannot be told. Run the task as full root." % host.hidden)
        )
    for pid in host.stuck:
        found.append(
            Blocker(
                "stuck",
                "PID %d is stuck in the kernel and cannot be looked into: it may hold a GPU, and a reset would fail or "
                "hang. Reboot the host." % pid,
                pid,
            )
        )
    return found


def _gpus(host: Host, indices: FrozenSet[int]) -> str:
    return ", ".join("GPU %d (%s)" % (index, host.links.buses.get(index, "?")) for index in sorted(indices))
