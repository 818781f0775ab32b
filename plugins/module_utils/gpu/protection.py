# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which processes must not be ended, and why.

Decided by executable, unit and kinship.  Never by the process's name, which any program can set.  Nor does the
name of a file or unit count by itself: anybody may have a file called Xorg, and units of the own user manager.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import FrozenSet, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.matching import Who
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Holder
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessInfo
from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import PATH, visible

# Patterns of the file names of executables, and what they are.  These run as root or as a user of the system.
_SYSTEM_EXECUTABLES = (
    ("nvidia-persistenced", "the NVIDIA persistence daemon"),
    ("nv-hostengine", "the DCGM host engine"),
    ("dcgm-exporter", "the DCGM exporter"),
    ("nv-fabricmanager", "the NVIDIA fabric manager"),
    ("nvlsm", "the NVLink subnet manager"),
    ("nvidia-imex", "the NVIDIA IMEX daemon"),
    ("nvidia-powerd", "the NVIDIA power daemon"),
)
# These run as whoever sits there, or computes.
_PERSONAL_EXECUTABLES = (
    ("nvidia-cuda-mps-control", "the CUDA MPS control daemon"),
    ("nvidia-cuda-mps-server", "the CUDA MPS server"),
    ("Xorg", "the X server"),
    ("X", "the X server"),
    ("Xwayland", "the X server"),
    ("gnome-shell", "the desktop"),
    ("kwin_*", "the desktop"),
    ("weston", "the desktop"),
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


# Users below are the system's; login.defs(5) counts those of people from there.
_FIRST_PERSON = 1000


@dataclass(frozen=True)
class Allowance:
    """Whose use of a GPU is accepted: such a holder is not ended, and does not make the GPU busy."""

    who: Who = Who()

    def covers(self, holder: Holder) -> bool:
        """Whether the holder is accepted.  Who it is must be beyond doubt."""
        if holder.process is None or holder.doubt:
            return False
        return bool(self.who.match(holder.process)[0])


@dataclass(frozen=True)
class Protection:
    """Who is protected: always this task and what it runs under, and the daemons of the driver and display.

    Also protected is whom the options name (`who`) and whoever may stay (`allowance`).
    """

    own: FrozenSet[int]
    ancestors: FrozenSet[int]
    who: Who = Who()
    allowance: Allowance = Allowance()

    def reason(self, process: ProcessInfo) -> str:
        """Why the process is protected, or "" where it is not."""
        if process.pid <= 2:
            return "a process of the system"
        if process.pid in self.own:
            return "this task itself"
        if process.pid in self.ancestors:
            return "a parent of this task"
        daemon = daemon_of(process)
        if daemon:
            return daemon
        for prefix, who in (("protect_", self.who), ("allow_", self.allowance.who)):
            kind, entry = who.match(process)
            if kind:
                return "%s%s (%s)" % (prefix, kind, entry)
        return ""


def daemon_of(process: ProcessInfo) -> str:
    """Which daemon of the driver or the display a process is, in words, or ""."""
    name = os.path.basename(process.exe)
    for pattern, what in _executables(process):
        if fnmatchcase(name, pattern):
            return "%s (executable %s)" % (what, visible(process.exe, PATH))
    for pattern, what in _UNITS:
        if process.unit and process.user_manager is None and fnmatchcase(process.unit, pattern):
            return "%s (unit %s)" % (what, process.unit)
    return ""


def _executables(process: ProcessInfo) -> Sequence[Tuple[str, str]]:
    """The patterns that may tell this process."""
    if process.container is not None:
        # Files and users in there are numbered as its engine likes.
        return _SYSTEM_EXECUTABLES + _PERSONAL_EXECUTABLES
    trusted = (None, 0, os.geteuid())
    if process.exe_owner not in trusted:
        return ()
    # Whoever runs a daemon's own file under his own name can have other code loaded into it.
    system = process.uid < _FIRST_PERSON or process.uid == os.geteuid()
    return (_SYSTEM_EXECUTABLES if system else ()) + _PERSONAL_EXECUTABLES
