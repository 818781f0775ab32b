# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parents that fork again: a plain script in a loop is a supervisor too, with no manager to ask.

Source: proc(5), /proc/PID/task/TID/children (not in every kernel).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Collection, Dict, List, Optional, Set

from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessInfo, ProcFs, parse_stat


@dataclass(frozen=True)
class NewChild:
    """A process that a parent started, and that parent."""

    parent: ProcessInfo
    child: ProcessInfo

    @property
    def message(self) -> str:
        """What happened, in a sentence."""
        return "its parent, process %d (%s, user %s), has started another one: %d (%s)" % (
            self.parent.pid,
            self.parent.name,
            self.parent.user,
            self.child.pid,
            self.child.name,
        )


def new_children(procfs: ProcFs, parents: Dict[int, int], known: Collection[int], since: int) -> List[NewChild]:
    """The children of former parents that are not known and started at `since` (clock ticks after boot) or later.

    parents: PID to start time, for each that had a child which has ended.  A parent that is gone, or whose
    PID is another process's by now, has none.  PID 1 adopts, and is never a parent here.
    """
    still_there = living(procfs, parents)
    children: Dict[int, List[int]] = {}
    for pid in still_there:
        listed = _listed_children(procfs, pid)
        if listed is None:
            children = _all_children(procfs)
            break
        children[pid] = listed
    found = []
    for pid in sorted(still_there):
        parent = procfs.read(pid)
        for number in sorted(children.get(pid, [])):
            child = procfs.read(number)
            if parent is None or child is None or child.ppid != pid or child.dead:
                continue
            if number not in known and child.start_time >= since:
                found.append(NewChild(parent, child))
    return found


def living(procfs: ProcFs, parents: Dict[int, int]) -> Set[int]:
    """Those of some parents (PID to start time) that are still there and could start another process."""
    return {pid for pid, start in parents.items() if pid > 1 and _starts(procfs, pid) == start}


def _starts(procfs: ProcFs, pid: int) -> Optional[int]:
    identity = procfs.identity(pid)
    return identity.start_time if identity is not None else None


def _listed_children(procfs: ProcFs, pid: int) -> Optional[List[int]]:
    """The children of all threads of a process, or None where the kernel does not list them."""
    folder = os.path.join(procfs.root, str(pid), "task")
    found: List[int] = []
    try:
        threads = os.listdir(folder)
    except OSError:  # it has ended in between
        return []
    for thread in threads:
        try:
            with open(os.path.join(folder, thread, "children"), encoding="ascii") as stream:
                found += [int(word) for word in stream.read().split()]
        except FileNotFoundError:
            if os.path.isdir(os.path.join(folder, thread)):
                return None
        except (OSError, ValueError):
            continue
    return found


def _all_children(procfs: ProcFs) -> Dict[int, List[int]]:
    """The children of every process, from a look at all."""
    children: Dict[int, List[int]] = {}
    for pid in procfs.pids():
        try:
            with open(os.path.join(procfs.root, str(pid), "stat"), "rb") as stream:
                stat = parse_stat(stream.read().decode("utf-8", "replace"))
        except OSError:
            continue
        if stat is not None:
            children.setdefault(int(str(stat["ppid"])), []).append(pid)
    return children
