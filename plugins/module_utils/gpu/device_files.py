# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a process has an NVIDIA device open or mapped.

The driver may go on listing the PID of a process that has ended, and the kernel may have given that
number to somebody else since.  Who really uses a GPU always has a device of the driver open.
"""

from __future__ import annotations

import os
from typing import Optional

_NVIDIA_MAJOR = 195
_PREFIX = "/dev/nvidia"
_CONTROL = "/dev/nvidiactl"


def driver_has_devices(control: str = _CONTROL) -> bool:
    """Whether this host's driver works through device files at all (WSL and simulators do not)."""
    return os.path.exists(control)


def holds_device(pid: int, root: str = "/proc") -> Optional[bool]:
    """Whether the process, in any of its threads, has an NVIDIA device open or mapped.

    None where that may not be seen (another user's process, without root) or the process is gone.
    """
    base = os.path.join(root, str(pid))
    own = _any_open(os.path.join(base, "fd"))
    if own:
        return True
    mapped = _any_mapped(os.path.join(base, "maps"))
    if mapped:
        return True
    # A leader that has exited shows nothing itself while its threads keep everything open.
    try:
        threads = os.listdir(os.path.join(base, "task"))
    except OSError:
        return None
    found = [_any_open(os.path.join(base, "task", thread, "fd")) for thread in threads if thread != str(pid)]
    if any(found):
        return True
    return None if own is None or mapped is None else False


def _any_open(folder: str) -> Optional[bool]:
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    return any(_is_device(os.path.join(folder, name)) for name in names)


def _is_device(link: str) -> bool:
    try:
        if os.readlink(link).startswith(_PREFIX):
            return True
        return os.major(os.stat(link).st_rdev) == _NVIDIA_MAJOR  # renamed, or from another mount namespace
    except OSError:
        return False


def _any_mapped(path: str) -> Optional[bool]:
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            return any(_PREFIX in line for line in lines)
    except OSError:
        return None
