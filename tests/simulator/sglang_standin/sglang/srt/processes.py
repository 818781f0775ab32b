# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names, lifetimes and ends of the server's processes."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from contextlib import suppress
from typing import Dict, List

from sglang.srt.gpu_memory import fakegpu

_PR_SET_PDEATHSIG = 1


def become(title: str, dies_with_parent: bool = True) -> None:
    """Take the process's final name, and die with the parent from now on.

    Both happen only after the heavy imports: until then the process is an anonymous ``python -c from
    multiprocessing.spawn …``, and outlives a parent that is killed.
    """
    if dies_with_parent:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    fakegpu.set_title(title)


def linger(seconds: float) -> None:
    """Stay as an orphan does: holding what it has, and serving nobody.

    A real one stays until somebody ends it; this one leaves in the end, so that no test can leak it for ever.
    """
    time.sleep(seconds)
    os._exit(1)


def descendants(pid: int) -> List[int]:
    """All living processes below one."""
    children: Dict[int, List[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open("/proc/{}/stat".format(entry)) as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry))
    found: List[int] = []
    queue = list(children.get(pid, []))
    while queue:
        child = queue.pop()
        found.append(child)
        queue += children.get(child, [])
    return found


def kill_descendants() -> None:
    """End everything below this process at once."""
    for pid in descendants(os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_own_tree() -> None:
    """End everything including this process: exit code 137 for a shell, -9 for Python."""
    kill_descendants()
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


def responsive(pid: int) -> bool:
    """Whether a process exists and is neither stopped nor dead."""
    try:
        with open("/proc/{}/stat".format(pid)) as file:
            return file.read().rpartition(")")[2].split()[0] not in "TtZX"
    except OSError:
        return False
