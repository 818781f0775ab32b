# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides which GPUs are reset by which command, what is stopped for it, and what comes back.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, FrozenSet, List, Mapping, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import (
    reset_blockers,
    reset_needs,
    reset_units,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import GpuReading, Holder
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_blockers import Blocker, Choices, Host
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_units import Unit

# What a step does.
STOP_UNIT = "stop_unit"
STOP_UNIT_IF_HELD = "stop_unit_if_still_open"
PERSISTENCE_OFF = "persistence_off"
UNLOAD_MODULE = "unload_module"
RESET = "reset"
LOAD_MODULE = "load_module"
START_UNIT = "start_unit"
PERSISTENCE_ON = "persistence_on"
PROVE = "prove"


@dataclass(frozen=True)
class Step:
    """One step in words: what is done to what, and why.  command is "" where it is no single program."""

    action: str
    target: str
    why: str
    command: str = ""


@dataclass(frozen=True)
class Command:
    """One reset: of these GPUs (UUIDs) together, of the function or of the bus."""

    uuids: Tuple[str, ...]
    bus: bool = False

    @property
    def arguments(self) -> Tuple[str, ...]:
        """What nvidia-smi is given."""
        return (*(("-r", "bus") if self.bus else ("--gpu-reset",)), "-i", ",".join(self.uuids))

    @property
    def line(self) -> str:
        """It as it would be typed."""
        return "nvidia-smi " + " ".join(self.arguments)


@dataclass(frozen=True)
class Plan:
    """Who is reset and how.  blockers keep all of it from being done; notes are for people.

    stop: units that are stopped; if_held: units that are stopped only if they still have a GPU open then;
    persistence: UUIDs whose persistence mode is on and comes back; targets: indices.
    """

    targets: Tuple[int, ...] = ()
    commands: Tuple[Command, ...] = ()
    stop: Tuple[Unit, ...] = ()
    if_held: Tuple[Unit, ...] = ()
    persistence: Tuple[str, ...] = ()
    unload_drm: bool = False
    blockers: Tuple[Blocker, ...] = ()
    reboot: Tuple[str, ...] = ()
    drain: Tuple[str, ...] = ()
    notes: Tuple[str, ...] = ()
    whys: Tuple[Tuple[str, str], ...] = ()

    @property
    def line(self) -> str:
        """The commands as they would be typed."""
        return " && ".join(command.line for command in self.commands)

    @property
    def uuids(self) -> Tuple[str, ...]:
        """All GPUs that are to be reset."""
        return tuple(uuid for command in self.commands for uuid in command.uuids)

    @property
    def steps(self) -> List[Step]:
        """Everything in the order in which it is done, what is put back included."""
        if not self.commands:
            return []
        drm = "the module nvidia_drm"
        found = [_stop_step(STOP_UNIT, unit, "it keeps GPUs open, or opens them again and again") for unit in self.stop]
        found += [_persistence(PERSISTENCE_OFF, uuid) for uuid in self.persistence]
        found += [_stop_step(STOP_UNIT_IF_HELD, unit, "if it still has a GPU open then") for unit in self.if_held]
        if self.unload_drm:
            found.append(Step(UNLOAD_MODULE, drm, "it is a client of every GPU", "rmmod nvidia_drm"))
        whys = dict(self.whys)
        for command in self.commands:
            reasons = sorted({whys[uuid] for uuid in command.uuids})
            found.append(Step(RESET, ", ".join(command.uuids), "; ".join(reasons), command.line))
        if self.unload_drm:
            found.append(Step(LOAD_MODULE, drm, "it was loaded", "modprobe nvidia_drm"))
        for unit in reversed(reset_units.in_order([*self.stop, *self.if_held])):
            why = "it ran" if unit in self.stop else "it ran, if it was stopped"
            found.append(Step(START_UNIT, unit.name, why, "systemctl start %s" % unit.name))
        found += [_persistence(PERSISTENCE_ON, uuid) for uuid in self.persistence]
        found.append(Step(PROVE, ", ".join(self.uuids), "a reset is no proof of health"))
        return found


def _stop_step(action: str, unit: Unit, why: str) -> Step:
    return Step(action, unit.name, "%s: %s" % (unit.what, why), "systemctl stop %s" % unit.name)


def _persistence(action: str, uuid: str) -> Step:
    on = action == PERSISTENCE_ON
    why = "it was on" if on else "persistence mode keeps the GPU open"
    return Step(action, uuid, why, "nvidia-smi " + " ".join(persistence_arguments(uuid, on)))


def persistence_arguments(uuid: str, on: bool) -> Tuple[str, ...]:
    """What nvidia-smi is given to switch persistence mode, through the daemon or without it."""
    return ("-pm", "1" if on else "0", "-i", uuid)


def targets_of(host: Host, choices: Choices) -> FrozenSet[int]:
    """The GPUs (by index) to be reset: those that need it, and with include_peers those that have to come along."""
    wanted = frozenset(index for index, need in host.needs.items() if need.action in reset_needs.RESETS)
    if not choices.include_peers:
        return wanted
    if host.links.unknown_of(wanted):
        return wanted | frozenset(host.links.traits)
    return host.links.together_with(wanted)


def plan_reset(host: Host, readings: Mapping[int, GpuReading], choices: Choices, keep: Sequence[str] = ()) -> Plan:
    """The whole plan.

    readings: by index, also of peers that are to come along; keep: units that must not be stopped.
    """
    gpus = reset_blockers.of_gpus(host)
    reboot = _uuids(host, reset_needs.REBOOT)
    drain = _uuids(host, reset_needs.DRAIN)
    targets = targets_of(host, choices)
    if not targets:
        return Plan(blockers=tuple(gpus), reboot=reboot, drain=drain)
    chosen = [readings[index] for index in sorted(targets)]
    host = replace(host, holders=_on(host.holders, frozenset(reading.uuid for reading in chosen if reading.uuid)))
    stop, if_held = _units(host, choices, keep)
    persistence = tuple(r.uuid for r in chosen if r.persistence_mode == "enabled" and r.uuid)
    unload = host.drm.loaded and choices.nvidia_drm == reset_blockers.UNLOAD
    blockers = [*reset_blockers.of_sight(host), *gpus]
    for reading in chosen:
        blockers += reset_blockers.of_target(reading, host.links.traits[reading.index], choices)
    blockers += reset_blockers.of_links(host, targets, choices)
    blockers += reset_blockers.of_drm(host.drm, choices)
    names = frozenset(unit.name for unit in (*stop, *if_held))
    blockers += reset_blockers.of_holders(host, names, bool(persistence), choices)
    bus = {index for index in targets if index in host.needs and host.needs[index].action == reset_needs.BUS_RESET}
    return Plan(
        targets=tuple(sorted(targets)),
        commands=_commands(host, chosen, frozenset(bus)),
        stop=stop,
        if_held=if_held,
        persistence=persistence,
        unload_drm=unload,
        blockers=tuple(blockers),
        reboot=reboot,
        drain=drain,
        notes=tuple(_notes(host, choices)),
        whys=tuple((r.uuid, _why(host, r.index)) for r in chosen),
    )


def _on(holders: Sequence[Holder], uuids: FrozenSet[str]) -> Tuple[Holder, ...]:
    """Those of the holders that use one of these GPUs or have it open."""
    return tuple(holder for holder in holders if uuids.intersection(holder.gpus + holder.attached))


def _commands(host: Host, chosen: Sequence[GpuReading], bus: FrozenSet[int]) -> Tuple[Command, ...]:
    """One command for all, or one for each way of resetting; GPUs that belong together are never torn apart."""
    whole = set(bus)
    for index in bus:
        whole |= host.links.together_with([index])
    found = []
    for is_bus in (False, True):
        uuids = tuple(r.uuid for r in chosen if (r.index in whole) == is_bus and r.uuid)
        if uuids:
            found.append(Command(uuids, is_bus))
    return tuple(found)


def _units(host: Host, choices: Choices, keep: Sequence[str]) -> Tuple[Tuple[Unit, ...], Tuple[Unit, ...]]:
    """The units to stop, and those to stop only where they do not let go by themselves."""
    processes = [holder.process for holder in host.holders if holder.process is not None]
    holding = {p.unit for p in processes if p.container is None and p.user_manager is None}
    stop: List[Unit] = []
    if_held: List[Unit] = []
    for unit in host.units:
        if unit.name in keep:
            continue
        if unit.kind == reset_units.FABRIC_MANAGER:
            if reset_blockers.stops_fabric_manager(host, choices):
                stop.append(unit)
        elif unit.kind == reset_units.PERSISTENCED:
            if_held.append(unit)
        elif unit.kind in reset_units.RESTLESS or unit.kind == reset_units.OTHER or unit.name in holding:
            stop.append(unit)
    return tuple(reset_units.in_order(stop)), tuple(reset_units.in_order(if_held))


def _why(host: Host, index: int) -> str:
    need = host.needs.get(index)
    if need is not None and need.action in reset_needs.RESETS:
        return need.why
    return "it has to come along, as NVLinks connect it to one that is reset"


def _notes(host: Host, choices: Choices) -> List[str]:
    found = []
    if host.drm.loaded and choices.nvidia_drm in (reset_blockers.AUTO, reset_blockers.IGNORE):
        found.append("%s stays loaded; if the reset says In use by another client, it is why." % host.drm.label)
    if reset_blockers.stops_fabric_manager(host, choices):
        found.append("The fabric manager is stopped for the reset, and jobs over NVLink with it.")
    return found


def _uuids(host: Host, action: str) -> Tuple[str, ...]:
    names: Dict[int, str] = {reading.index: reading.uuid for reading in host.readings}
    return tuple(names[index] for index, need in sorted(host.needs.items()) if need.action == action)
