# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whom an operator means: processes by user, executable, systemd unit, container or session.

Never by the process's name, which any program can set.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import FrozenSet, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.system.containers import Container
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessInfo

# Fewer characters name a container by accident sooner than on purpose.
_SHORTEST_ID = 4


def executable_matches(exe: str, wanted: Sequence[str]) -> str:
    """The first entry that names this executable, or "": an absolute path names itself, a name any folder's."""
    for entry in wanted:
        if exe and (exe == entry if entry.startswith("/") else os.path.basename(exe) == entry):
            return entry
    return ""


def unit_matches(unit: str, wanted: Sequence[str]) -> str:
    """The first shell pattern that fits this unit, or ""; ".service" may be left out."""
    for entry in wanted:
        if unit and (fnmatchcase(unit, entry) or ("." not in entry and fnmatchcase(unit, entry + ".service"))):
            return entry
    return ""


def container_matches(container: Container, wanted: Sequence[str]) -> str:
    """The first entry that names this container, or "".

    An entry is a name or an id, as a shell pattern, or the start of an id; with "docker:" or another
    runtime before it, it means containers of that runtime only.
    """
    names = [name for name in (container.id, container.name) if name]
    for entry in wanted:
        runtime, colon, rest = entry.partition(":")
        if colon and runtime != container.runtime:
            continue
        pattern = rest if colon else entry
        if any(fnmatchcase(name, pattern) for name in names):
            return entry
        if len(pattern) >= _SHORTEST_ID and len(container.id) == 64 and container.id.startswith(pattern):
            return entry
    return ""


@dataclass(frozen=True)
class Who:
    """Some processes; empty: none.

    uids are user ids, sessions the PIDs of the processes that began them; the rest are entries as the
    options take them.
    """

    uids: FrozenSet[int] = frozenset()
    executables: Tuple[str, ...] = ()
    units: Tuple[str, ...] = ()
    containers: Tuple[str, ...] = ()
    sessions: FrozenSet[int] = frozenset()

    def match(self, process: ProcessInfo) -> Tuple[str, str]:
        """By which option's kind (users, executables, sessions, units, containers) and entry a process is meant.

        Two empty strings where it is not.  A unit inside a container is the container's own affair: it
        is not compared with units of the host.  Nor are units and containers below a user's own manager: that
        user gives them any name, so that only the user says who they are.
        """
        if process.uid in self.uids:
            return "users", process.user
        entry = executable_matches(process.exe, self.executables)
        if entry:
            return "executables", entry
        if process.session in self.sessions:
            return "sessions", str(process.session)
        if process.user_manager is not None:
            return "", ""
        if process.container is not None:
            entry = container_matches(process.container, self.containers)
            return ("containers", entry) if entry else ("", "")
        entry = unit_matches(process.unit or "", self.units)
        return ("units", entry) if entry else ("", "")
