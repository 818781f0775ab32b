# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Daemons of the driver that keep GPUs open, as units of systemd: finding, stopping and starting them.

Sources: systemctl(1), systemd.unit(5); the names that NVIDIA's packages give their units.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Dict, List, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import QUERY_TIMEOUT, Runner

NVSM = "nvsm"
DCGM_EXPORTER = "dcgm_exporter"
DCGM = "dcgm"
OTHER = "other"
IMEX = "imex"
FABRIC_MANAGER = "fabric_manager"
POWERD = "powerd"
PERSISTENCED = "persistenced"

# In the order in which they are stopped: first who uses the others.  They are started again in reverse.
_KINDS: Tuple[Tuple[str, Tuple[str, ...], str], ...] = (
    (NVSM, ("nvsm*",), "NVIDIA System Management"),
    (DCGM_EXPORTER, ("dcgm-exporter*", "nvidia-dcgm-exporter*"), "the DCGM exporter"),
    (DCGM, ("nvidia-dcgm*", "dcgm*", "nv-hostengine*"), "the DCGM host engine"),
    (OTHER, (), "a unit that stop_units names"),
    (IMEX, ("nvidia-imex*",), "the NVIDIA IMEX daemon"),
    (FABRIC_MANAGER, ("nvidia-fabricmanager*",), "the NVIDIA fabric manager"),
    (POWERD, ("nvidia-powerd*",), "the NVIDIA power daemon"),
    (PERSISTENCED, ("nvidia-persistenced*",), "the NVIDIA persistence daemon"),
)
_ORDER = {kind: number for number, (kind, _patterns, _what) in enumerate(_KINDS)}
_WHAT = {kind: what for kind, _patterns, what in _KINDS}
# These open the GPUs again and again, even where they have none open at this moment.
RESTLESS = frozenset([NVSM, DCGM_EXPORTER, DCGM])

_NAME = re.compile(r"[A-Za-z0-9:_.\\@-]+\.service")
_RUNNING = ("active", "activating", "reloading")


@dataclass(frozen=True)
class Unit:
    """A unit that runs now."""

    name: str
    kind: str = OTHER

    @property
    def what(self) -> str:
        """What it is, in words."""
        return _WHAT[self.kind]

    @property
    def order(self) -> Tuple[int, str]:
        """Its place when they are stopped."""
        return _ORDER[self.kind], self.name


def kind_of(name: str) -> Optional[str]:
    """Which daemon a unit is, or None."""
    stem = name[: -len(".service")] if name.endswith(".service") else name
    for kind, patterns, _what in _KINDS:
        if any(fnmatchcase(stem, pattern) for pattern in patterns):
            return kind
    return None


@dataclass(frozen=True)
class Changed:
    """What became of an attempt to stop or start a unit."""

    ok: bool
    message: str


class Units:
    """The system's own systemd.  known is False where it could not be asked; problem says why."""

    def __init__(self, run: Runner) -> None:
        self._run = run
        self.problem = ""

    def running(self, more: Sequence[str] = ()) -> Tuple[Unit, ...]:
        """The daemons that run, and the services that fit the patterns `more`, in the order of their stopping.

        A host without systemd has none; problem then says why.
        """
        self.problem = ""
        asked = ("systemctl", "list-units", "--type=service", "--all", "--plain", "--no-legend", "--no-pager", "--full")
        completed = self._run(asked, QUERY_TIMEOUT)
        if not completed.ok:
            self.problem = completed.reason
            return ()
        found: Dict[str, Unit] = {}
        for line in completed.out.splitlines():
            words = line.strip().lstrip("\u25cf*").split()
            if len(words) < 4 or not _NAME.fullmatch(words[0]) or words[2] not in _RUNNING:
                continue
            name = words[0]
            wanted = any(fnmatchcase(name, p) or fnmatchcase(name, p + ".service") for p in more)
            kind = kind_of(name) or (OTHER if wanted else None)
            # Done in a moment and over, though it counts as active.
            if kind is not None and words[3] != "exited":
                found[name] = Unit(name, kind)
        return tuple(sorted(found.values(), key=lambda unit: unit.order))

    def active(self, name: str) -> Optional[bool]:
        """Whether a unit runs; None where systemd does not say."""
        completed = self._run(("systemctl", "show", "--no-pager", "--property", "ActiveState", name), QUERY_TIMEOUT)
        states = [line[len("ActiveState=") :] for line in completed.out.splitlines() if line.startswith("ActiveState=")]
        return states[0] in _RUNNING if completed.ok and states else None

    def stop(self, name: str, timeout: float) -> Changed:
        """Stop a unit; timeout is in seconds.  It counts as stopped only when systemd says so."""
        completed = self._run(("systemctl", "stop", name), timeout)
        running = self.active(name)
        if running is False:
            return Changed(True, "stopped")
        state = "it still runs" if running else "its state cannot be read"
        return Changed(False, "%s could not be stopped (%s; %s)" % (name, completed.reason, state))

    def start(self, name: str, timeout: float) -> Changed:
        """Start a unit; timeout is in seconds."""
        completed = self._run(("systemctl", "start", name), timeout)
        if completed.ok and self.active(name):
            return Changed(True, "started")
        said = completed.reason if not completed.ok else "it does not run"
        return Changed(False, "%s could not be started (%s): systemctl start %s" % (name, said, name))


def in_order(units: Sequence[Unit]) -> List[Unit]:
    """Units in the order in which they are stopped."""
    return sorted(units, key=lambda unit: unit.order)
