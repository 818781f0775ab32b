# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a process that got SIGKILL is still there, and what helps.

Source: proc(5); the kernel's documents of the two freezers, cgroup-v1/freezer-subsystem and cgroup-v2.
"""

from __future__ import annotations

import os
import re
import shlex
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.system.containers import place_of
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessInfo, ProcFs, parse_stat
from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import PATH, visible

CGROUP_ROOT = "/sys/fs/cgroup"

_DRIVER = re.compile(r"^(?:\[<\S+>\]\s+)?(?P<function>[\w.]+)\S*\s+\[(?P<module>nvidia\w*)\]", re.MULTILINE)
_FRAME = re.compile(r"^(?:\[<\S+>\]\s+)?(?P<function>[A-Za-z_][\w.]*)", re.MULTILINE)
# Bits of the kernel's flags of a task, field 9 of stat.
_EXITING = 0x4
_KERNEL_THREAD = 0x200000
_SIGKILL = 1 << 8
# The thread that keeps a process from ending is the one that can do the least about it.
_WORST_FIRST = "DtTRSI"
_REBOOT = (
    "look for Xid messages in the kernel's log (journalctl --dmesg --grep Xid); "
    "if the call never returns, only a reboot ends the process"
)


class _Thread(NamedTuple):
    tid: int
    state: str
    flags: int


def explain(process: ProcessInfo, procfs: ProcFs, cgroup_root: str = CGROUP_ROOT) -> str:
    """One sentence about a process that does not end, beginning with "it"; "" where it is gone.

    What only root may read (the kernel's stack) is left out without it.  Never raises.
    """
    threads = list(_threads(process, procfs))
    if not threads:
        return ""
    worst = min(threads, key=lambda thread: _rank(thread.state))
    if worst.flags & _KERNEL_THREAD:
        return "it is a thread of the kernel, which no signal ends"
    if worst.state in "ZXx":
        return _unreaped(process, procfs)
    status = _status(process.pid, worst.tid, procfs)
    reason = (
        _frozen(process, procfs, cgroup_root)
        or _traced(status, procfs)
        or _in_kernel(process, worst, procfs)
        or _not_reached(worst, status)
    )
    return "it %s%s" % (reason, _elsewhere(process))


def _rank(state: str) -> int:
    return _WORST_FIRST.index(state) if state in _WORST_FIRST else len(_WORST_FIRST)


def _text(procfs: ProcFs, *parts: object) -> str:
    return _file(os.path.join(procfs.root, *[str(part) for part in parts]))


def _file(path: str) -> str:
    try:
        with open(path, "rb") as stream:
            return stream.read(1 << 16).decode("utf-8", "replace")
    except OSError:
        return ""


def _threads(process: ProcessInfo, procfs: ProcFs) -> Iterator[_Thread]:
    """The threads of exactly this process."""
    identity = procfs.identity(process.pid)
    if identity != process.identity:
        return
    try:
        numbers = os.listdir(os.path.join(procfs.root, str(process.pid), "task"))
    except OSError:
        numbers = []
    for number in sorted(int(number) for number in numbers if number.isdigit()):
        text = _text(procfs, process.pid, "task", number, "stat")
        stat = parse_stat(text)
        if stat is not None:
            flags = text[text.rfind(")") + 1 :].split()[6]
            yield _Thread(number, str(stat["state"]), int(flags) if flags.isdigit() else 0)


def _status(pid: int, tid: int, procfs: ProcFs) -> Dict[str, str]:
    lines = _text(procfs, pid, "task", tid, "status").splitlines()
    return {key: value.strip() for key, _colon, value in (line.partition(":") for line in lines)}


def _unreaped(process: ProcessInfo, procfs: ProcFs) -> str:
    parent = procfs.read(process.ppid)
    who = "process %d (%s)" % (parent.pid, parent.name) if parent is not None else "its parent"
    return (
        "it has ended and holds nothing any more; %s has only not yet asked how (zombie): ending that removes it" % who
    )


# -- the freezers


def _frozen(process: ProcessInfo, procfs: ProcFs, cgroup_root: str) -> str:
    """Which control group holds it still, and how that is undone; "" where none does."""
    for line in _text(procfs, process.pid, "cgroup").splitlines():
        number, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if "freezer" in controllers.split(","):
            switch = _first_version(cgroup_root, path)
        elif number == "0":
            switch = _second_version(cgroup_root, path)
        else:
            continue
        if switch is not None:
            return "is frozen by its control group %s: %s" % (visible(path, PATH), _thaw(process, *switch))
    return ""


def _upwards(path: str) -> Iterator[str]:
    """A control group and those above it, as paths below the mount point."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    for length in range(len(parts), -1, -1):
        yield "/".join(parts[:length])


def _first_version(cgroup_root: str, path: str) -> Optional[Tuple[str, str]]:
    """The file to write to, and what, if a freezer of the first version holds the group; else None."""
    root = os.path.join(cgroup_root, "freezer")
    if _file(os.path.join(root, path.lstrip("/"), "freezer.state")).strip() not in ("FROZEN", "FREEZING"):
        return None
    for group in _upwards(path):  # it may be a group above that was told to
        if _file(os.path.join(root, group, "freezer.self_freezing")).strip() == "1":
            return os.path.join(root, group, "freezer.state"), "THAWED"
    return os.path.join(root, path.lstrip("/"), "freezer.state"), "THAWED"


def _second_version(cgroup_root: str, path: str) -> Optional[Tuple[str, str]]:
    """The same of the second version, whose mount point is the root or, beside the first, `unified`."""
    for root in (cgroup_root, os.path.join(cgroup_root, "unified")):
        events = _file(os.path.join(root, path.lstrip("/"), "cgroup.events")).split()
        if dict(zip(events[::2], events[1::2])).get("frozen") != "1":
            continue
        for group in _upwards(path):
            if _file(os.path.join(root, group, "cgroup.freeze")).strip() == "1":
                return os.path.join(root, group, "cgroup.freeze"), "0"
        return os.path.join(root, path.lstrip("/"), "cgroup.freeze"), "0"
    return None


def _thaw(process: ProcessInfo, switch: str, word: str) -> str:
    place = place_of(process.cgroup)
    # People copy this, and whoever may make control groups chooses their names.
    by_hand = "echo %s > %s" % (word, shlex.quote(visible(switch, PATH)))
    if place.container is not None:
        unpause = {"docker": "docker unpause", "podman": "podman unpause", "containerd": "nerdctl unpause"}
        unpause.update({"lxc": "lxc-unfreeze -n"})
        if place.container.runtime in unpause:
            identifier = shlex.quote(visible(place.container.short_id))
            return "thaw it with %s %s, or %s" % (unpause[place.container.runtime], identifier, by_hand)
    elif place.unit is not None and place.unit.uid is None and place.unit.is_service:
        return "thaw it with systemctl thaw %s, or %s" % (place.unit.name, by_hand)
    return "thaw it with %s" % by_hand


# -- what it waits for


def _traced(status: Dict[str, str], procfs: ProcFs) -> str:
    tracer = status.get("TracerPid", "0")
    if not tracer.isdigit() or tracer == "0":
        return ""
    info = procfs.read(int(tracer))
    name = " (%s)" % info.name if info is not None else ""
    return "is traced by process %s%s, which may hold it at its end: end that one" % (tracer, name)


def _in_kernel(process: ProcessInfo, thread: _Thread, procfs: ProcFs) -> str:
    """Where in the kernel it is, for a state in which signals wait."""
    if thread.state not in "DR":
        return ""
    stack = _text(procfs, process.pid, "task", thread.tid, "stack")
    driver = _DRIVER.search(stack)
    where = _place_in_kernel(process.pid, thread.tid, stack, driver, procfs)
    what = "thread %d of it " % thread.tid if thread.tid != process.pid else ""
    if thread.state == "D":
        what += "waits in %s where no signal reaches it (state D)" % where
    else:
        what += "runs in %s and does not look at signals (state R)" % where
    if thread.flags & _EXITING:
        what += ", while it ends"
    if driver is not None or thread.state == "R" or "nvidia" in where:
        return "%s: %s" % (what, _REBOOT)
    return "%s: it ends when that wait does; look at what it waits for, a disk or a network file system for one" % what


def _place_in_kernel(pid: int, tid: int, stack: str, driver: Optional[re.Match[str]], procfs: ProcFs) -> str:
    if driver is not None:
        return "the NVIDIA driver (%s in %s)" % (driver.group("function"), driver.group("module"))
    wait = _text(procfs, pid, "task", tid, "wchan").strip()
    if wait in ("", "0"):
        frame = _FRAME.search(stack)
        wait = frame.group("function") if frame is not None else ""
    return "the kernel (%s)" % wait if wait else "the kernel"


def _not_reached(thread: _Thread, status: Dict[str, str]) -> str:
    pending = _pending(status)
    if thread.flags & _EXITING:
        return "is on its way out and gives back what it holds (state %s): wait longer" % thread.state
    if thread.state in "tT":
        word = "is stopped (state %s)" % thread.state
        return word + (" with SIGKILL pending" if pending else ", and SIGKILL did not reach it: send it again")
    if pending:
        return "has SIGKILL pending and has not yet acted on it (state %s): wait longer" % thread.state
    return "runs on and has no SIGKILL pending (state %s): the signal did not reach it, send it again" % thread.state


def _pending(status: Dict[str, str]) -> bool:
    masks: List[str] = [status.get("SigPnd", "0"), status.get("ShdPnd", "0")]
    try:
        return any(int(mask, 16) & _SIGKILL for mask in masks)
    except ValueError:
        return False


def _elsewhere(process: ProcessInfo) -> str:
    """Where else it has a number, for whoever looks for it there."""
    if process.namespace_pid is None:
        return ""
    container = process.container
    return " (PID %d inside %s)" % (
        process.namespace_pid,
        container.label if container is not None else "a PID namespace of its own",
    )
