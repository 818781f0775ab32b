# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Takes out of the way what keeps GPUs open, and puts it back whatever happens.

Each thing that was done is noted before the next one is tried.  Putting back goes in the reverse order,
does not end at the first failure, and tells what could not be put back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Collection, ContextManager, Dict, List, Mapping, Protocol, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import reset_drm
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_plan import Plan, persistence_arguments
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_running import RunTool
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_units import Changed, Unit, Units
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import Runner

UNIT = "unit"
PERSISTENCE = "persistence_mode"
MODULE = "kernel_module"
GPU = "gpu"

_TOOL_TIMEOUT = 60.0  # seconds for nvidia-smi -pm: without persistence mode the driver may have to start a GPU


class Audit(Protocol):
    """Keeps what is done to a host; system/audit.py is one."""

    def event(self, action: str, target: Mapping[str, Any], evidence: Mapping[str, Any]) -> ContextManager[Any]:
        """Records the beginning, and at the end the `outcome` and `detail` of what it gives."""


class CannotPrepare(Exception):
    """Something could not be taken out of the way: nothing was reset."""


@dataclass(frozen=True)
class Done:
    """One thing that was stopped or put back: its kind, which, whether that worked, and what there is to say."""

    kind: str
    target: str
    ok: bool
    message: str


@dataclass
class Preparation:
    """The host made ready for a reset, and back again.  stopped and restored tell what was done, in order.

    audited: under which reason the host's record keeps it.
    """

    units: Units
    run: Runner
    tool: RunTool
    audit: Audit
    timeout: float
    audited: Dict[str, Any] = field(default_factory=dict)
    stopped: List[Done] = field(default_factory=list)
    restored: List[Done] = field(default_factory=list)
    _undo: List[Tuple[str, str, Callable[[], Changed]]] = field(default_factory=list)
    # Units that systemd may stop along with others, and those that were stopped on purpose.
    _ran: Tuple[str, ...] = ()

    def prepare(
        self, plan: Plan, running: Sequence[Unit], holders: Callable[[], Collection[str]], go: Callable[[], bool]
    ) -> None:
        """Stop what the plan says.  Raises CannotPrepare; what was stopped until then is noted.

        running: all daemons that run now; holders: asks for the units that have a GPU open; go: asked before
        each step whether to go on.
        """
        self._ran = tuple(unit.name for unit in running)
        for unit in plan.stop:
            self._check(go)
            self._stop(unit)
        for uuid in plan.persistence:
            self._check(go)
            self._switch(uuid)
        if plan.if_held:
            still = holders()
            for unit in plan.if_held:
                if unit.name in still:
                    self._check(go)
                    self._stop(unit)
        if plan.unload_drm:
            self._check(go)
            self._unload()

    def restore(self) -> List[str]:
        """Put everything back, last things first; returns a sentence for each that could not be."""
        problems = []
        # Persistence last of all: a daemon that starts chooses its own.
        again = [entry for entry in reversed(self._undo) if entry[0] != PERSISTENCE]
        again += [entry for entry in self._undo if entry[0] == PERSISTENCE]
        for kind, target, act in again:
            changed = self._put_back(kind, target, act)
            if not changed.ok:
                problems.append(changed.message)
        problems += self._put_back_dragged()
        self._undo = []
        return problems

    # -- one thing each

    def _check(self, go: Callable[[], bool]) -> None:
        if not go():
            raise CannotPrepare("The task was told to end")

    def _stop(self, unit: Unit) -> None:
        # Noted first: a stop that fails half-way, or late, has to be undone, too.
        self._undo.append((UNIT, unit.name, lambda: self.units.start(unit.name, self.timeout)))
        evidence = {"what": unit.what, **self.audited}
        changed = self._audited("stop", UNIT, unit.name, evidence, lambda: self.units.stop(unit.name, self.timeout))
        self.stopped.append(Done(UNIT, unit.name, changed.ok, changed.message))
        if not changed.ok:
            raise CannotPrepare(changed.message)

    def _switch(self, uuid: str) -> None:
        self._undo.append((PERSISTENCE, uuid, lambda: self._set_persistence(uuid, True)))
        evidence = {"setting": "persistence_mode", "value": "disabled", **self.audited}
        changed = self._audited("driver_setting", GPU, uuid, evidence, lambda: self._set_persistence(uuid, False))
        self.stopped.append(Done(PERSISTENCE, uuid, changed.ok, changed.message))
        if not changed.ok:
            raise CannotPrepare(changed.message)

    def _unload(self) -> None:
        self._undo.append((MODULE, reset_drm.MODULE, lambda: reset_drm.load(self.run)))
        evidence = {"setting": "kernel_module", "value": "unloaded", **self.audited}
        changed = self._audited(
            "driver_setting", MODULE, reset_drm.MODULE, evidence, lambda: reset_drm.unload(self.run)
        )
        self.stopped.append(Done(MODULE, reset_drm.MODULE, changed.ok, changed.message))
        if not changed.ok:
            raise CannotPrepare(changed.message)

    def _set_persistence(self, uuid: str, on: bool) -> Changed:
        completed = self.tool(persistence_arguments(uuid, on), _TOOL_TIMEOUT)
        word = "on" if on else "off"
        if completed.ok:
            return Changed(True, "persistence mode is %s" % word)
        line = "nvidia-smi " + " ".join(persistence_arguments(uuid, on))
        return Changed(
            False, "persistence mode of %s could not be switched %s (%s): %s" % (uuid, word, completed.reason, line)
        )

    def _put_back(self, kind: str, target: str, act: Callable[[], Changed]) -> Changed:
        action = "start" if kind == UNIT else "driver_setting"
        changed = self._audited(
            action, GPU if kind == PERSISTENCE else kind, target, {"restores": kind, **self.audited}, act
        )
        self.restored.append(Done(kind, target, changed.ok, changed.message))
        return changed

    def _put_back_dragged(self) -> List[str]:
        """Start the daemons again that ended because of another one's stop."""
        problems = []
        purposely = {done.target for done in self.stopped if done.kind == UNIT}
        for name in reversed(self._ran) if purposely else ():
            if name not in purposely and self.units.active(name) is False:
                changed = self._put_back(UNIT, name, _starter(self.units, name, self.timeout))
                if not changed.ok:
                    problems.append(changed.message)
        return problems

    def _audited(
        self, action: str, kind: str, target: str, evidence: Mapping[str, Any], act: Callable[[], Changed]
    ) -> Changed:
        with self.audit.event(action, {kind: target}, evidence) as event:
            changed = act()
            event.outcome = "done" if changed.ok else "failed"
            event.detail = "" if changed.ok else changed.message
        return changed


def _starter(units: Units, name: str, timeout: float) -> Callable[[], Changed]:
    def start() -> Changed:
        return units.start(name, timeout)

    return start
