# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What servers leave behind in /dev/shm and /tmp, and what of that may be removed.

A segment that nobody owns any more fills the shared memory, and a later start fails or crashes in a
loop.  A segment that somebody still uses must stay.  What may be removed is decided by evidence:

used      a process of the instance had it mapped or open right before the stop
dead PID  its name has the PID of a process that is gone
own name  only SGLang calls files so, and its owner is the server's user

In every case no live process of the host may map it or have it open.  Without the first evidence it must
be older than the stop; with the last one alone, where another server of this user runs, so old that this one
would have mapped it if it were its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Set, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.system import shared_files
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessInfo, ProcFs
from ansible_collections.inferops.sglang.plugins.module_utils.system.shared_files import FileUsers, Look, SharedFile
from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import PATH, visible

SHARED_MEMORY = "/dev/shm"
TEMPORARY = "/tmp"

REMOVED = "removed"
KEPT = "kept"
WOULD_REMOVE = "would_remove"

# Nobody but SGLang uses these names.
_OWN = re.compile(r"multi_tokenizer_args_\d+|sglang_loads_.*\.shm|sgl_shm_.*|sglang_host_pool_.*")
# Those that tell who made them.
_WITH_PID = re.compile(r"multi_tokenizer_args_(\d+)|sgl_shm_.+_(\d+)_[0-9a-f]+")
# Those of NCCL and CUDA, which other programs use as well, and leave behind too.
_OF_LIBRARIES = re.compile(r"nccl-.*|cuda\.shm\..*")
# Names that any program may use: they are looked at only where the server had them open.
_ANYBODYS = re.compile(r"psm_.*|sem\..*|torch_.*")
_IN_SHARED_MEMORY = re.compile("|".join(pattern.pattern for pattern in (_OWN, _OF_LIBRARIES, _ANYBODYS)))
# Sockets that the server's processes talk through.
_IN_TEMPORARY = re.compile(r"tmp[a-z0-9_]{6,}")

# A server maps what it makes at once, and keeps that; so long it may take until another one of it has (seconds).
_UNMAPPED_AT_MOST = 60.0
# A crash loop leaves thousands; so many are removed after one more look at all processes.
_BATCH = 200

Identity = Tuple[str, int, int]


@dataclass(frozen=True)
class Leftover:
    """One file and what became of it; reason says why."""

    file: SharedFile
    action: str
    reason: str

    def to_dict(self) -> Dict[str, Any]:
        """As it is returned by the module."""
        return {
            "path": visible(self.file.path, PATH),
            "size_mib": self.file.size_mib,
            "action": self.action,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class Scene:
    """What is known beside the files.

    used: the files that the instance used right before the stop; uid: the server's user, None unknown;
    stopped_at: when the stop began (seconds since the epoch); others: whether another server of this user
    runs; live_pids: of all live processes, also as they are numbered inside containers; ending: PIDs that
    the stop would end, where it is only rehearsed.
    """

    used: Set[Identity]
    uid: Optional[int]
    stopped_at: float
    others: bool
    live_pids: Set[int]
    ending: Set[int] = field(default_factory=set)


class Leftovers:
    """The files of an instance in the folders that servers use."""

    def __init__(self, procfs: ProcFs, shared_memory: str = SHARED_MEMORY, temporary: str = TEMPORARY) -> None:
        self._procfs = procfs
        folders = shared_files.resolved([shared_memory, temporary])
        self._wanted = dict(zip(folders, (_IN_SHARED_MEMORY, _IN_TEMPORARY)))

    def used_by(self, pids: Iterable[int]) -> Set[Identity]:
        """What some processes have mapped or open now, for Scene.used."""
        files = self._list()
        users = FileUsers(files, self._procfs).among(pids)
        return {_identity(file) for file in files if file.path in users}

    def clean(self, scene: Scene, act: bool, enabled: bool = True) -> List[Leftover]:
        """Remove what may be removed, or say what would be; enabled False keeps everything."""
        candidates = [file for file in self._list() if _is_candidate(file, scene)]
        if not candidates:
            return []
        look = FileUsers(candidates, self._procfs).anywhere()
        found: Dict[str, Leftover] = {}
        removable: List[Tuple[SharedFile, str]] = []
        for file in candidates:
            why_not, why = _judge(file, scene, look, self._name_of)
            if why_not or not enabled:
                found[file.path] = Leftover(file, KEPT, why_not or "remove_leftovers is false: %s" % why)
            elif not act:
                found[file.path] = Leftover(file, WOULD_REMOVE, why)
            else:
                removable.append((file, why))
        for start in range(0, len(removable), _BATCH):
            for item in self._remove(removable[start : start + _BATCH]):
                found[item.file.path] = item
        return [found[path] for path in sorted(found)]

    def _remove(self, batch: Sequence[Tuple[SharedFile, str]]) -> List[Leftover]:
        # Somebody may have opened one since they were looked at.
        look = FileUsers([file for file, _why in batch], self._procfs).anywhere()
        done = []
        for file, why in batch:
            problem = look.blind
            if file.path in look.users:
                problem = _in_use(look.users[file.path], self._name_of)
            problem = problem or shared_files.remove(file)
            done.append(Leftover(file, KEPT if problem else REMOVED, problem or why))
        return done

    def _list(self) -> List[SharedFile]:
        return [file for folder, names in self._wanted.items() for file in shared_files.list_files(folder, names)]

    def _name_of(self, pid: int) -> str:
        process = self._procfs.read(pid)
        return process.name if process is not None else ""


def _identity(file: SharedFile) -> Identity:
    return (file.path, file.device, file.inode)


def _is_candidate(file: SharedFile, scene: Scene) -> bool:
    """Whether a file may be of this instance, so that it is worth a word."""
    if _identity(file) in scene.used:
        return True
    if scene.uid is not None and file.uid != scene.uid:
        return False
    return bool(_OWN.fullmatch(file.name) or _OF_LIBRARIES.fullmatch(file.name))


def _judge(file: SharedFile, scene: Scene, look: Look, name_of: Callable[[int], str]) -> Tuple[str, str]:
    """Why a file is kept ("" where it may go), and why it may go."""
    users = [pid for pid in look.users.get(file.path, ()) if pid not in scene.ending]
    if users:
        return _in_use(users, name_of), ""
    if look.blind:
        return "whether a live process uses it cannot be told: %s" % look.blind, ""
    if file.links > 1:
        return "it has another name somewhere", ""
    if _identity(file) in scene.used:
        return "", "this server used it, and no live process does"
    if scene.uid is None:
        return "whose it is cannot be told: the server's user is not known", ""
    if file.modified >= scene.stopped_at:
        return "it is newer than this stop", ""
    if _OWN.fullmatch(file.name) is None:
        return "no live process uses it, but nothing shows whose it was: remove it with rm if you know", ""
    pid = _maker(file.name)
    if pid in scene.live_pids:
        return "its name has the PID %d of a live process" % pid, ""
    if pid:
        return "", "the process %d of its name is gone, and no live process uses it" % pid
    if scene.others and file.modified > scene.stopped_at - _UNMAPPED_AT_MOST:
        return "another server of this user runs and may be about to use it: a stop in a minute removes it", ""
    return "", "only SGLang makes such files, this server's user did, and no live process uses it"


def _maker(name: str) -> int:
    """The PID of the process that made a file, by the file's name; 0 where it does not tell."""
    match = _WITH_PID.fullmatch(name)
    return int(match.group(1) or match.group(2)) if match is not None else 0


def _in_use(users: Sequence[int], name_of: Callable[[int], str]) -> str:
    known = [pid for pid in users if pid]
    if not known:
        return "a live process uses it"
    name = name_of(known[0])
    more = " and %d more" % (len(known) - 1) if len(known) > 1 else ""
    return "PID %d%s%s uses it" % (known[0], " (%s)" % name if name else "", more)


def live_pids(processes: Iterable[ProcessInfo]) -> Set[int]:
    """The PIDs of live processes, also as they are numbered inside containers."""
    found: Set[int] = set()
    for process in processes:
        found.add(process.pid)
        if process.namespace_pid is not None:
            found.add(process.namespace_pid)
    return found
