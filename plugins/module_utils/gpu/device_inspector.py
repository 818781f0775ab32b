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
from typing import Callable, FrozenSet, List, Optional, Sequence, Set, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.device_nodes import CONTROL, DeviceNodes
from ansible_collections.inferops.sglang.plugins.module_utils.system.memory_maps import SharedMappings, text_of
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity, ProcFs

FD = "fd"
MAP = "map"

# What every process has open, and is none of the driver's.
_COMMON = frozenset(["/dev/null", "/dev/zero", "/dev/urandom", "/dev/ptmx", "/dev/tty"])
_KCMP_NUMBERS = {"x86_64": 312, "aarch64": 272, "ppc64le": 354}
_KCMP_FILES = 2


@dataclass(frozen=True)
class OpenDevices:
    """What one process has open of the driver.

    gpus are the minor numbers of those that it has open or mapped, mapped of those whose node is in its
    memory; evidence: fd, map.  nvml: whether it has NVML's library loaded.

    Seen with driver 580: whoever initialised CUDA has the GPU's node mapped, and so has a child that was
    forked from it.  A process that only asks NVML (a monitor, or a CUDA program about its other GPUs) has
    GPUs and nvidia-uvm open, and maps none of them.
    """

    gpus: FrozenSet[int]
    mapped: FrozenSet[int] = frozenset()
    control: bool = False
    evidence: Tuple[str, ...] = (FD,)
    nvml: bool = False

    @property
    def touched(self) -> FrozenSet[int]:
        """The GPUs that it may be using: those it has mapped, or all that it has open where it maps none."""
        return self.mapped or self.gpus

    @property
    def monitor(self) -> bool:
        """Whether it only asks the driver questions, as nvtop does: it has NVML loaded, and no GPU mapped.

        That it has libcuda loaded too says nothing, since NVML itself loads it.
        """
        return self.control and not self.mapped and self.nvml


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
        self._mapped = re.compile(rb"(\d+)\s+((?:%s|%s)[^\n]*)" % (re.escape(marker), re.escape(dri)))

    def look(self, pid: int) -> Optional[Tuple[ProcessIdentity, OpenDevices]]:
        """What exactly one process has open, or None where it has nothing, is gone, or may not be seen.

        The identity is read before and after: what was seen in between is this process's.
        """
        before = self._procfs.identity(pid)
        nodes = self.nodes_of(pid)
        nvml = bool(nodes) and self._has_nvml(pid)
        if before is None or not nodes or self._procfs.identity(pid) != before:
            return None
        kinds = {node for node, _evidence in nodes}
        return before, OpenDevices(
            gpus=frozenset(node for node in kinds if node >= 0),
            mapped=frozenset(node for node, evidence in nodes if node >= 0 and evidence == MAP),
            control=CONTROL in kinds,
            evidence=tuple(sorted({evidence for _node, evidence in nodes})),
            nvml=nvml,
        )

    def _has_nvml(self, pid: int) -> bool:
        """Whether a process has NVML's library loaded."""
        return b"/libnvidia-ml.so" in (text_of("%s/%d/maps" % (self._root, pid)) or b"")

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
        # This is the innermost loop over all descriptors of a host.
        readlink, dev = os.readlink, self._dev
        try:
            for name in os.listdir(handle):
                try:
                    path = readlink(name, dir_fd=handle)
                except OSError:
                    continue
                # Only what lies in a /dev is asked for its number: asking for a file of a network
                # file system whose server is gone would never return.
                if path[:1] == "/" and path not in _COMMON and ("/dev/" in path or path.startswith(dev)):
                    node = self._node_at(name, handle, _undeleted(path))
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
            status = os.stat(name, dir_fd=handle)
        except OSError:
            return self._nodes.of_path(path)
        by_number = self._nodes.of_number(status.st_rdev)
        if by_number is not None or self._nodes.real:
            return by_number
        # A simulated GPU's node: in another mount namespace the same path may be another host's.
        return self._nodes.of_path(path) if self._nodes.is_ours(path, status.st_ino) else None

    def _mappings(self, path: str, found: Set[Tuple[int, str]]) -> Optional[bool]:
        """Add what is mapped.  Returns whether there is any memory at all, None where it may not be read."""
        if self._shared is not None and self._shared.supported:
            mapped = self._shared.files(path)
            if self._shared.supported:
                return None if mapped is None else self._add_mapped(mapped, found)
        text = text_of(path)
        if text is None:
            return None
        if self._markers[0] in text or self._markers[1] in text:
            lines = set(self._mapped.findall(text))
            self._add_mapped([(os.fsdecode(name), int(inode)) for inode, name in lines], found)
        return bool(text)

    def _add_mapped(self, files: Sequence[Tuple[str, int]], found: Set[Tuple[int, str]]) -> bool:
        for path, inode in files:
            node = self._nodes.of_path(_undeleted(path))
            if node is not None and self._nodes.is_ours(_undeleted(path), inode):
                found.add((node, MAP))
        return bool(files)

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
