# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one process has open or mapped of the NVIDIA driver: a look at every thread of it.

NVML does not list a process that holds a GPU without computing on it, nor one that inherited the
handles of a dead one.  Three things hide such a process from the usual tools: its descriptor may be
closed while the mapping stays; its first thread may have ended (then /proc/PID/fd is empty) while
another lives; a thread may have a table of descriptors of its own.

Source: proc(5), kcmp(2).
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
from dataclasses import dataclass
from typing import Callable, FrozenSet, Iterable, List, Optional, Set, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.device_nodes import CONTROL, UVM, DeviceNodes
from ansible_collections.inferops.sglang.plugins.module_utils.system.memory_maps import SharedMappings, text_of
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity, ProcFs

FD = "fd"
MAP = "map"

_KCMP_NUMBERS = {"x86_64": 312, "aarch64": 272, "ppc64le": 354}
_KCMP_FILES = 2


@dataclass(frozen=True)
class OpenDevices:
    """What one process has open of the driver.

    gpus are minor numbers; control and uvm: whether it has nvidiactl and nvidia-uvm; evidence: fd, map.
    """

    gpus: FrozenSet[int]
    control: bool
    uvm: bool
    evidence: Tuple[str, ...]

    @property
    def monitor(self) -> bool:
        """Whether it can only ask questions: without nvidia-uvm and without a mapping nothing computes."""
        return self.control and not self.uvm and MAP not in self.evidence


class DeviceInspector:
    """Looks into single processes.

    same_files(a, b): whether two tasks share their table of descriptors (None: not known).  thorough:
    look at private mappings too, which the driver refuses for what holds memory; it costs six times as
    much.
    """

    def __init__(
        self,
        procfs: ProcFs,
        nodes: DeviceNodes,
        thorough: bool = True,
        same_files: Optional[Callable[[int, int], Optional[bool]]] = None,
    ) -> None:
        self._procfs = procfs
        self._root = procfs.root
        self._nodes = nodes
        self._same_files = same_files or kcmp_files()
        self._shared = None if thorough else SharedMappings()
        self._dev = nodes.dev + "/"
        marker, dri = (text.encode() for text in nodes.markers)
        self._markers = (marker, dri)
        self._mapped = re.compile(b"(?:%s|%s)[^\n]*" % (re.escape(marker), re.escape(dri)))

    def look(self, pid: int) -> Optional[Tuple[ProcessIdentity, OpenDevices]]:
        """What exactly one process has open, or None where it has nothing, is gone, or may not be seen.

        The identity is read before and after: what was seen in between is this process's.
        """
        before = self._procfs.identity(pid)
        nodes = self.nodes_of(pid)
        if before is None or not nodes or self._procfs.identity(pid) != before:
            return None
        kinds = {node for node, _evidence in nodes}
        return before, OpenDevices(
            gpus=frozenset(node for node in kinds if node >= 0),
            control=CONTROL in kinds,
            uvm=UVM in kinds,
            evidence=tuple(sorted({evidence for _node, evidence in nodes})),
        )

    def holds_any(self, pid: int) -> Optional[bool]:
        """Whether a process has any device of the driver open or mapped; None where that may not be seen."""
        nodes = self.nodes_of(pid)
        return None if nodes is None else bool(nodes)

    def nodes_of(self, pid: int) -> Optional[Set[Tuple[int, str]]]:
        """Pairs of node and evidence; None where the process may not be looked into."""
        base = "%s/%d" % (self._root, pid)
        found: Set[Tuple[int, str]] = set()
        blind = not self._descriptors(base + "/fd", found)
        memory = self._mappings(base + "/maps", found)
        blind = blind or memory is None
        others = self._other_threads(base, pid)
        for thread in others:
            if not self._descriptors("%s/task/%d/fd" % (base, thread), found):
                blind = True
        if others and not memory:
            # The first thread has ended and taken its view of the memory with it.
            self._mappings("%s/task/%d/maps" % (base, others[0]), found)
        return None if blind and not found else found

    def _descriptors(self, folder: str, found: Set[Tuple[int, str]]) -> bool:
        """Add what a table of descriptors holds.  False: it may not be read (True where it is gone)."""
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except PermissionError:
            return False
        except OSError:
            return True
        try:
            for name in os.listdir(handle):
                try:
                    path = os.readlink(name, dir_fd=handle)
                except OSError:
                    continue
                # Only what lies in a /dev is asked for its number: asking for a file of a network
                # file system whose server is gone would never return.
                if path[:1] == "/" and ("/dev/" in path or path.startswith(self._dev)):
                    node = self._node_at(name, handle, path)
                    if node is not None:
                        found.add((node, FD))
        except PermissionError:
            return False
        except OSError:  # it ended meanwhile
            pass
        finally:
            os.close(handle)
        return True

    def _node_at(self, name: str, handle: int, path: str) -> Optional[int]:
        try:
            by_number = self._nodes.of_number(os.stat(name, dir_fd=handle).st_rdev)
        except OSError:
            by_number = None
        return by_number if by_number is not None else self._nodes.of_path(_undeleted(path))

    def _mappings(self, path: str, found: Set[Tuple[int, str]]) -> Optional[bool]:
        """Add what is mapped.  Returns whether there is any memory at all, None where it may not be read."""
        if self._shared is not None and self._shared.supported:
            paths = self._shared.paths(path)
            if self._shared.supported:
                return None if paths is None else self._add_mapped(paths, found)
        text = text_of(path)
        if text is None:
            return None
        if self._markers[0] in text or self._markers[1] in text:
            self._add_mapped((os.fsdecode(line) for line in set(self._mapped.findall(text))), found)
        return bool(text)

    def _add_mapped(self, paths: Iterable[str], found: Set[Tuple[int, str]]) -> bool:
        any_at_all = False
        for path in paths:
            any_at_all = True
            node = self._nodes.of_path(_undeleted(path))
            if node is not None:
                found.add((node, MAP))
        return any_at_all

    def _other_threads(self, base: str, pid: int) -> List[int]:
        """One thread for each table of descriptors that is not the first thread's."""
        task = base + "/task"
        try:
            if os.stat(task).st_nlink <= 3:  # itself, its parent, and one folder for each thread
                return []
            threads = sorted(int(name) for name in os.listdir(task))
        except (OSError, ValueError):
            return []
        different: List[int] = []
        for thread in threads:
            if thread != pid and not any(self._same_files(thread, other) for other in [pid, *different]):
                different.append(thread)
        return different


def _undeleted(path: str) -> str:
    return path[: -len(" (deleted)")] if path.endswith(" (deleted)") else path


def kcmp_files() -> Callable[[int, int], Optional[bool]]:
    """Asks the kernel whether two tasks share one table of descriptors; None where it does not say."""
    number = _KCMP_NUMBERS.get(platform.machine())
    if number is None:
        return lambda _a, _b: None
    syscall = ctypes.CDLL(None).syscall
    syscall.restype = ctypes.c_long
    kcmp = ctypes.c_long(number)
    files = ctypes.c_int(_KCMP_FILES)
    zero = ctypes.c_ulong(0)

    def same(first: int, second: int) -> Optional[bool]:
        answer = syscall(kcmp, ctypes.c_int(first), ctypes.c_int(second), files, zero, zero)
        return None if answer < 0 else answer == 0

    return same
