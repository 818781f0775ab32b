# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel module nvidia_drm: with mode setting it is a client of every GPU by itself, and blocks a reset.

Source: the parameters of nvidia_drm (modinfo), proc(5) (/proc/modules).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_units import Changed
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import Runner

MODULE = "nvidia_drm"
# An internal setting, which tests replace: where /proc and /sys are.
ROOT = "/"
_MODPROBE_TIMEOUT = 30.0


@dataclass(frozen=True)
class Drm:
    """The module as it is now.  modeset: on, off or unknown; uses: how many hold it; users: the modules among them."""

    loaded: bool = False
    modeset: str = "unknown"
    uses: int = 0
    users: Tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """It in words, for messages."""
        words = "the kernel module %s (modeset %s" % (MODULE, self.modeset)
        if self.uses:
            words += ", in use %d times" % self.uses
        if self.users:
            words += " by " + ", ".join(self.users)
        return words + ")"


def read_drm(root: str = "") -> Drm:
    """The module on this host."""
    base = root or ROOT
    for line in _text(os.path.join(base, "proc", "modules")).splitlines():
        words = line.split()
        if len(words) >= 4 and words[0] == MODULE:
            users = tuple(sorted(name for name in words[3].split(",") if name and name != "-"))
            value = _text(os.path.join(base, "sys", "module", MODULE, "parameters", "modeset")).strip()
            modeset = {"Y": "on", "1": "on", "N": "off", "0": "off"}.get(value, "unknown")
            return Drm(True, modeset, int(words[2]) if words[2].isdigit() else 0, users)
    return Drm()


def unload(run: Runner) -> Changed:
    """Take the module out of the kernel, and no other with it, as `modprobe -r` would."""
    completed = run(("rmmod", MODULE), _MODPROBE_TIMEOUT)
    if completed.ok and not read_drm().loaded:
        return Changed(True, "unloaded")
    return Changed(
        False, "%s could not be unloaded (%s)" % (MODULE, completed.reason if not completed.ok else "it stays")
    )


def load(run: Runner) -> Changed:
    """Put it back."""
    completed = run(("modprobe", MODULE), _MODPROBE_TIMEOUT)
    if completed.ok:
        return Changed(True, "loaded")
    return Changed(False, "%s could not be loaded again (%s): modprobe %s" % (MODULE, completed.reason, MODULE))


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""
