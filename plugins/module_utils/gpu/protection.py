# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which processes must not be ended, and why.

Decided by executable, unit and kinship.  Never by the process's name, which any program can set.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import FrozenSet, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Holder
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessInfo

# Patterns of the file names of executables, and what they are.
_EXECUTABLES = (
    ("nvidia-persistenced", "the NVIDIA persistence daemon"),
    ("nv-hostengine", "the DCGM host engine"),
    ("dcgm-exporter", "the DCGM exporter"),
    ("nv-fabricmanager", "the NVIDIA fabric manager"),
    ("nvlsm", "the NVLink subnet manager"),
    ("nvidia-imex", "the NVIDIA IMEX daemon"),
    ("nvidia-cuda-mps-control", "the CUDA MPS control daemon"),
    ("nvidia-cuda-mps-server", "the CUDA MPS server"),
    ("Xorg", "the X server"),
    ("X", "the X server"),
    ("Xwayland", "the X server"),
    ("gdm*", "a display manager"),
    ("sddm*", "a display manager"),
    ("lightdm*", "a display manager"),
)
# Patterns of systemd units: the daemons that are scripts or run under another executable.
_UNITS = (
    ("nvidia-persistenced*.service", "the NVIDIA persistence daemon"),
    ("nvidia-dcgm*.service", "the DCGM host engine"),
    ("dcgm*.service", "DCGM"),
    ("nvidia-fabricmanager*.service", "the NVIDIA fabric manager"),
    ("nvidia-imex*.service", "the NVIDIA IMEX daemon"),
    ("nvsm*.service", "NVIDIA System Management"),
    ("display-manager.service", "a display manager"),
    ("gdm*.service", "a display manager"),
    ("sddm*.service", "a display manager"),
    ("lightdm*.service", "a display manager"),
)


def executable_matches(exe: str, wanted: Sequence[str]) -> str:
    """The first entry that names this executable, or "": an absolute path names itself, a name any folder's."""
    for entry in wanted:
        if exe and (exe == entry if entry.startswith("/") else os.path.basename(exe) == entry):
            return entry
    return ""


@dataclass(frozen=True)
class Allowance:
    """Whose use of a GPU is accepted: such a holder is not ended, and does not make the GPU busy."""

    uids: FrozenSet[int] = frozenset()
    executables: Tuple[str, ...] = ()

    def covers(self, holder: Holder) -> bool:
        """Whether the holder is accepted.  Who it is must be beyond doubt."""
        if holder.process is None or holder.doubt:
            return False
        return holder.process.uid in self.uids or bool(executable_matches(holder.process.exe, self.executables))


@dataclass(frozen=True)
class Protection:
    """Who is protected: always this task and what it runs under, and the daemons of the driver and display.

    Whoever may stay (`allowance`) is protected too.
    """

    own: FrozenSet[int]
    ancestors: FrozenSet[int]
    uids: FrozenSet[int] = frozenset()
    executables: Tuple[str, ...] = ()
    allowance: Allowance = Allowance()

    def reason(self, process: ProcessInfo) -> str:
        """Why the process is protected, or "" where it is not."""
        if process.pid <= 2:
            return "a process of the system"
        if process.pid in self.own:
            return "this task itself"
        if process.pid in self.ancestors:
            return "a parent of this task"
        name = os.path.basename(process.exe)
        for pattern, what in _EXECUTABLES:
            if fnmatchcase(name, pattern):
                return "%s (executable %s)" % (what, process.exe)
        for pattern, what in _UNITS:
            if process.unit and fnmatchcase(process.unit, pattern):
                return "%s (unit %s)" % (what, process.unit)
        if process.uid in self.uids:
            return "protect_users (%s)" % process.user
        if process.uid in self.allowance.uids:
            return "allow_users (%s)" % process.user
        entry = executable_matches(process.exe, self.executables)
        if entry:
            return "protect_executables (%s)" % entry
        entry = executable_matches(process.exe, self.allowance.executables)
        return "allow_executables (%s)" % entry if entry else ""
