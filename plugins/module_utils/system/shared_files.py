# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that processes share: who maps them or has them open, and their removal when nobody does.

Source: proc(5) for /proc/PID/{fd,maps,mountinfo,net/unix,ns}.

A file is one device and inode.  A process in another mount namespace may have a folder of the same name
that is another file system, so names alone never show that it is the same file.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from typing import Dict, Iterable, List, Optional, Sequence, Set, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs

_DELETED = " (deleted)"
# linux/proc_ns.h: PROC_IPC_INIT_INO.
_INITIAL_IPC_NAMESPACE = "ipc:[4026531839]"
# The address range, permissions, offset, device and inode of a line of maps; the path follows.
_MAPPING = re.compile(r"^\S+ \S+ \S+ ([0-9a-f]+):([0-9a-f]+) (\d+)\s+(/.*)$")
# First processes of a whole system, in a guest as on a host.
_INITS = frozenset(["systemd", "init"])
# What container engines call the file system that they mount on /dev/shm for one container alone.
_OWN_SHM = "shm"
_MIB = 1 << 20


@dataclass(frozen=True)
class SharedFile:
    """A file or socket in a folder.

    size_bytes is what it takes of the memory or disk; modified is in seconds since the epoch.
    """

    path: str
    device: int
    inode: int
    uid: int
    size_bytes: int
    modified: float
    is_socket: bool = False
    links: int = 1

    @property
    def name(self) -> str:
        """Its name in the folder."""
        return os.path.basename(self.path)

    @property
    def size_mib(self) -> float:
        """Its size in MiB."""
        return round(self.size_bytes / _MIB, 2)


@dataclass(frozen=True)
class Look:
    """Who uses which files.

    users: PIDs by path; 0 stands for a process that cannot be told.  blind: why not all processes could be
    looked at, "" where all were.
    """

    users: Dict[str, List[int]] = field(default_factory=dict)
    blind: str = ""


def list_files(folder: str, wanted: re.Pattern[str]) -> List[SharedFile]:
    """The regular files and sockets in a folder whose whole name fits; links are none, folders neither."""
    found = []
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return []
    for entry in entries:
        if wanted.fullmatch(entry.name) is None:
            continue
        try:
            status = os.lstat(entry.path)
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode) or stat.S_ISSOCK(status.st_mode):
            found.append(_file(entry.path, status))
    return sorted(found, key=lambda item: item.path)


def _file(path: str, status: os.stat_result) -> SharedFile:
    return SharedFile(
        path=path,
        device=status.st_dev,
        inode=status.st_ino,
        uid=status.st_uid,
        size_bytes=status.st_blocks * 512,
        modified=status.st_mtime,
        is_socket=stat.S_ISSOCK(status.st_mode),
        links=status.st_nlink,
    )


def remove(file: SharedFile) -> str:
    """Remove exactly this file; why it was not removed, "" where it was.  Follows no link."""
    folder, name = os.path.split(file.path)
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        return "%s: %s" % (folder, error.strerror)
    try:
        status = os.stat(name, dir_fd=handle, follow_symlinks=False)
        now = _file(file.path, status)
        if (now.device, now.inode, now.is_socket) != (file.device, file.inode, file.is_socket):
            return "another file has taken its name"
        if not file.is_socket and not stat.S_ISREG(status.st_mode):
            return "another file has taken its name"
        os.unlink(name, dir_fd=handle)
    except FileNotFoundError:
        return "it is gone already"
    except OSError as error:
        return "it cannot be removed: %s" % error.strerror
    finally:
        os.close(handle)
    return ""


class FileUsers:
    """Looks through processes for those that use some files.

    Only processes whose open files and mappings bear the name of such a file are looked at closely, so
    that a look at thousands of processes takes well under a second.
    """

    def __init__(self, files: Iterable[SharedFile], procfs: ProcFs) -> None:
        self._procfs = procfs
        self._by_name: Dict[str, List[SharedFile]] = {}
        for file in files:
            self._by_name.setdefault(file.name, []).append(file)
        self._exact: Dict[str, bool] = {}
        self._sockets: Dict[str, Dict[str, Set[int]]] = {}

    def among(self, pids: Iterable[int]) -> Dict[str, List[int]]:
        """The users among some processes; one that may not be looked at uses nothing."""
        return self._look(pids).users

    def anywhere(self) -> Look:
        """The users among all processes of the host."""
        look = self._look(self._procfs.pids())
        blind = look.blind or self._hidden()
        for path in self._bound_sockets():
            look.users.setdefault(path, [0])
        return Look(look.users, blind)

    def _hidden(self) -> str:
        """Whether there may be processes that do not show, and yet share these files."""
        hidden = self._procfs.hidden()
        if hidden:
            return "%s: run as root" % hidden
        if not self._procfs.in_pid_namespace():
            return ""
        if self._procfs.namespace(os.getpid(), "ipc") == _INITIAL_IPC_NAMESPACE:
            return "this container shares the host's memory files, but does not see its processes"
        first = self._procfs.read(1)
        if first is not None and first.comm in _INITS:
            return ""  # a whole guest, whose file systems are its own
        folders = {os.path.dirname(file.path) for files in self._by_name.values() for file in files}
        for folder in sorted(folders):
            mount = _mount_of(folder, self._procfs.root)
            if mount is not None and mount.point.endswith("/shm") and mount.source != _OWN_SHM:
                return "%s may be shared with others, whose processes this container does not see" % folder
        return ""

    def _look(self, pids: Iterable[int]) -> Look:
        users: Dict[str, List[int]] = {}
        unseen: List[int] = []
        for pid in pids:
            used = self._used_by(pid)
            if used is None:
                if not self._is_init(pid):
                    unseen.append(pid)
                continue
            for path in used:
                users.setdefault(path, []).append(pid)
        blind = ""
        if unseen:
            blind = "%d processes may not be looked at (PID %s%s): run as root" % (
                len(unseen),
                ", ".join(map(str, unseen[:3])),
                ", ..." if len(unseen) > 3 else "",
            )
        return Look(users, blind)

    def _is_init(self, pid: int) -> bool:
        """Whether it is the first process of the host, which uses no such files.

        Some hosts let nobody look at it, root included.
        """
        return pid == 1 and not self._procfs.in_pid_namespace()

    def _used_by(self, pid: int) -> Optional[Set[str]]:
        """The files that a process uses; None where it may not be looked at."""
        try:
            return self._opened(pid) | self._mapped(pid)
        except PermissionError:
            return None

    # -- open files

    def _opened(self, pid: int) -> Set[str]:
        folder = os.path.join(self._procfs.root, str(pid), "fd")
        found: Set[str] = set()
        try:
            names = os.listdir(folder)
        except PermissionError:
            raise
        except OSError:
            return found
        for name in names:
            link = os.path.join(folder, name)
            try:
                target = os.readlink(link)
                if target.startswith("socket:["):
                    found |= self._socket_files(pid, int(target[8:-1]))
                    continue
                for file in self._by_name.get(_last_part(target), ()):
                    status = os.stat(link)
                    if (status.st_dev, status.st_ino) == (file.device, file.inode):
                        found.add(file.path)
            except PermissionError:
                raise
            except (OSError, ValueError):
                continue  # closed meanwhile
        return found

    def _socket_files(self, pid: int, inode: int) -> Set[str]:
        """The socket files that a socket of a process is bound to."""
        table = self._sockets_seen_by(pid)
        return {path for path in table if inode in table[path]}

    def _sockets_seen_by(self, pid: int) -> Dict[str, Set[int]]:
        """The wanted socket files that are bound in the network namespace of a process, with the sockets' numbers."""
        namespace = self._procfs.namespace(pid, "net") or "of %d" % pid
        if namespace not in self._sockets:
            wanted = {file.path for files in self._by_name.values() for file in files if file.is_socket}
            self._sockets[namespace] = {}
            if wanted:
                for inode, path in self._bound(pid):
                    if path in wanted:
                        self._sockets[namespace].setdefault(path, set()).add(inode)
        return self._sockets[namespace]

    def _bound(self, pid: int) -> List[Tuple[int, str]]:
        text = _text(os.path.join(self._procfs.root, str(pid), "net", "unix")) or ""
        rows = [line.split(None, 7) for line in text.splitlines()[1:]]
        return [(int(row[6]), row[7]) for row in rows if len(row) == 8 and row[6].isdigit()]

    def _bound_sockets(self) -> Set[str]:
        """All wanted socket files that some socket is bound to, whoever has that."""
        self._sockets_seen_by(os.getpid())
        return {path for table in self._sockets.values() for path in table}

    # -- mappings

    def _mapped(self, pid: int) -> Set[str]:
        text = _text(os.path.join(self._procfs.root, str(pid), "maps"))
        found: Set[str] = set()
        for line in (text or "").splitlines():
            slash = line.rfind("/")
            if slash < 0 or _last_part(line[slash:]) not in self._by_name:
                continue
            match = _MAPPING.match(line)
            if match is None:
                continue
            device = os.makedev(int(match.group(1), 16), int(match.group(2), 16))
            for file in self._by_name[_last_part(line[slash:])]:
                if self._is(file, device, int(match.group(3))):
                    found.add(file.path)
        return found

    def _is(self, file: SharedFile, device: int, inode: int) -> bool:
        """Whether a mapping is of this file.

        Some file systems (overlayfs, btrfs) tell other numbers in maps than to stat(): there the name must do.
        """
        if not self._tells_its_device(file):
            return True
        return (device, inode) == (file.device, file.inode)

    def _tells_its_device(self, file: SharedFile) -> bool:
        folder = os.path.dirname(file.path)
        if folder not in self._exact:
            mount = _mount_of(folder, self._procfs.root)
            self._exact[folder] = mount is not None and mount.device == file.device
        return self._exact[folder]


def _last_part(path: str) -> str:
    if path.endswith(_DELETED):
        path = path[: -len(_DELETED)]
    return path[path.rfind("/") + 1 :]


@dataclass(frozen=True)
class _Mount:
    """A mounted file system; its device as the kernel's tables of mappings give it."""

    point: str
    device: int
    source: str


def _mount_of(folder: str, root: str) -> Optional[_Mount]:
    """The file system that a folder is on."""
    best: Optional[_Mount] = None
    for line in (_text(os.path.join(root, "self", "mountinfo")) or "").splitlines():
        words = line.split()
        if len(words) < 5:
            continue
        point = words[4].encode().decode("unicode_escape")
        if (folder + "/").startswith(point.rstrip("/") + "/") and (best is None or len(point) >= len(best.point)):
            major, _colon, minor = words[2].partition(":")
            # Type, source and options follow a dash, after a number of optional fields.
            source = (line.partition(" - ")[2].split() + ["", ""])[1]
            best = _Mount(point, os.makedev(int(major), int(minor)), source)
    return best


def _text(path: str) -> Optional[str]:
    """The text of a file; None where it is gone.  Raises PermissionError."""
    try:
        with open(path, "rb") as stream:
            return stream.read().decode("utf-8", "surrogateescape")
    except PermissionError:
        raise
    except OSError:
        return None


def resolved(folders: Sequence[str]) -> List[str]:
    """Folders without links in them: /dev/shm is a link on some systems."""
    return list(dict.fromkeys(os.path.realpath(folder) for folder in folders))
