# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel says about processes, read from /proc.

A process is identified by its PID *and* its start time: a PID alone may have been given to
somebody else between two looks.  Every reader copes with a process that ends while it is read.

Source of the formats: proc(5).
"""

from __future__ import annotations

import os
import pwd
import re
import time
from dataclasses import dataclass
from typing import Callable, Dict, Iterator, List, Optional, Set, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.system.containers import Container, place_of
from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import visible

# comm stands in parentheses and may itself contain spaces and parentheses, so the fields that
# follow are counted from the *last* closing one.
_FIELDS_AFTER_COMM = 20
_LISTEN = "0A"  # st column of /proc/net/tcp
_INITIAL_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO in linux/proc_ns.h
_DEAD_STATES = frozenset("ZXx")


# A process may move the ends of its own command line and environment apart as far as its memory goes (bytes).
MOST_ARGUMENTS = 8 << 20
# What proc(5) calls hidepid=0, in both spellings.
_SHOWS_ALL = frozenset(("0", "off"))
_PTRACEABLE = frozenset(("4", "ptraceable"))
_CAP_SYS_PTRACE = 19
_OTHERS_MAY_WRITE = 0o022

# The time of boot, from which start times are counted, is known to a second (seconds).
_BOOT_TIME_SLACK = 2.0


@dataclass(frozen=True)
class ProcessIdentity:
    """One process, never to be confused with a later one of the same PID.

    start_time is in clock ticks after boot (field 22 of /proc/PID/stat).
    """

    pid: int
    start_time: int


@dataclass(frozen=True)
class ProcessInfo:
    """One process at one moment.

    state is the kernel's letter (R, S, D, Z, T, ...) for its first thread; live_thread is another
    thread that lives on behind a first one that has ended; exe is "" where it may not be read, exe_owner the
    UID that may change that file, None where that is not known, -1 where more than its owner may;
    started_at is in seconds since the epoch; namespace_pid is its PID inside its own PID namespace,
    None where that is the reader's; container is what its control group tells, the outermost one.
    """

    pid: int
    start_time: int
    ppid: int
    state: str
    comm: str
    exe: str
    argv: Tuple[str, ...]
    uid: int
    user: str
    session: int
    pgid: int
    cgroup: str
    unit: Optional[str]
    started_at: float
    live_thread: Optional[int] = None
    namespace_pid: Optional[int] = None
    container: Optional[Container] = None
    exe_owner: Optional[int] = None

    @property
    def identity(self) -> ProcessIdentity:
        """The part of it that never changes."""
        return ProcessIdentity(self.pid, self.start_time)

    @property
    def user_manager(self) -> Optional[int]:
        """UID of the user below whose service manager it runs; None where that is the system's.

        That user gives units and containers there any name.
        """
        return place_of(self.cgroup).uid

    @property
    def dead(self) -> bool:
        """Whether it has ended and only waits to be reaped."""
        return self.state in _DEAD_STATES and self.live_thread is None

    def started_before(self, moment: float) -> bool:
        """Whether it was started before a moment (seconds since the epoch), beyond doubt."""
        return self.started_at + _BOOT_TIME_SLACK < moment

    @property
    def name(self) -> str:
        """A name for people, in which everything shows: the first word of the command line, else comm.

        comm has at most 15 bytes.  Both are what the process says of itself.
        """
        first = self.argv[0].split(" ")[0] if self.argv else ""
        return visible(os.path.basename(first) or self.comm)


@dataclass(frozen=True)
class Listener:
    """A TCP socket in state LISTEN; pid is None where its owner may not be seen."""

    address: str
    port: int
    pid: Optional[int]


def parse_stat(text: str) -> Optional[Dict[str, object]]:
    """Parse /proc/PID/stat; None where the text is not one (the process ended while it was read)."""
    left, right = text.find("("), text.rfind(")")
    if left < 0 or right < left:
        return None
    rest = text[right + 1 :].split()
    if len(rest) < _FIELDS_AFTER_COMM:
        return None
    return {
        "comm": text[left + 1 : right],
        "state": rest[0],
        "ppid": int(rest[1]),
        "pgid": int(rest[2]),
        "session": int(rest[3]),
        "start_time": int(rest[19]),
    }


def parse_cgroup(text: str) -> str:
    """The path of a process's control group: the unified hierarchy's, else systemd's own."""
    named = ""
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        if parts[0] == "0" and parts[2] != "/":
            return parts[2]
        if parts[1] == "name=systemd":
            named = parts[2]
    return named


def _address(raw: str) -> str:
    """Decode the hexadecimal address of /proc/net/tcp and tcp6 (words in host byte order)."""
    import socket
    import sys

    words = [int(raw[i : i + 8], 16).to_bytes(4, sys.byteorder) for i in range(0, len(raw), 8)]
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    return socket.inet_ntop(family, b"".join(words))


def parse_listening(text: str, port: int) -> List[Tuple[str, int]]:
    """The (address, inode) pairs of the sockets that listen on a port, from /proc/net/tcp or tcp6.

    Only the state LISTEN counts: a connection in TIME_WAIT does not keep a server from binding.
    """
    found = []
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 10 or fields[3] != _LISTEN:
            continue
        address, _sep, hex_port = fields[1].rpartition(":")
        if int(hex_port, 16) == port:
            found.append((_address(address), int(fields[9])))
    return found


def parse_status(text: str) -> Dict[str, object]:
    """The effective user id and the PIDs in the nested namespaces, from /proc/PID/status."""
    uid = re.search(r"^Uid:\s+\d+\s+(\d+)", text, re.MULTILINE)
    pids = re.search(r"^NSpid:((?:\s+\d+)+)", text, re.MULTILINE)
    nested = [int(number) for number in pids.group(1).split()] if pids else []
    return {"uid": int(uid.group(1)) if uid else None, "namespace_pid": nested[-1] if len(nested) > 1 else None}


def _mount_words(line: str) -> Tuple[List[str], str, Tuple[str, str, str]]:
    """A line of mountinfo: what stands before the dash, the dash, and type, source and options after it."""
    left, dash, right = line.partition(" - ")
    after = right.split(" ") + ["", "", ""]
    return left.split(" "), dash, (after[0], after[1], after[2])


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


class ProcFs:
    """Reads processes below `root` (tests point it at a tree of their own)."""

    def __init__(self, root: str = "/proc", user_name: Callable[[int], str] = _user_name) -> None:
        self.root = root
        self._user_name = user_name
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._boot_time: Optional[float] = None

    # -- single files

    def _text(self, *parts: object, most: int = -1) -> Optional[str]:
        try:
            with open(os.path.join(self.root, *[str(p) for p in parts]), "rb") as stream:
                return stream.read(most).decode("utf-8", "replace")
        except OSError:
            return None

    def _stat(self, pid: int) -> Optional[Dict[str, object]]:
        text = self._text(pid, "stat")
        return parse_stat(text) if text else None

    def boot_id(self) -> str:
        """The kernel's identifier of this boot: start times of another boot mean nothing."""
        return (self._text("sys/kernel/random/boot_id") or "").strip()

    def in_pid_namespace(self) -> bool:
        """Whether this process is in a PID namespace of its own, where it does not see all processes."""
        try:
            return os.stat(os.path.join(self.root, "self", "ns", "pid")).st_ino != _INITIAL_PID_NAMESPACE
        except OSError:
            return False

    def hidden(self) -> str:
        """Why there may be processes of other users that do not show here, "" where all of them do.

        Of those that do not show, nothing is known: not even that they are there.
        """
        options = ""
        for line in (self._text("self/mountinfo") or "").splitlines():
            words, _dash, (kind, _source, super_options) = _mount_words(line)
            # A later line with the same place is mounted over the earlier one.
            if kind == "proc" and words[4:5] == [os.path.realpath(self.root)]:
                options = super_options
        values = dict(option.partition("=")[::2] for option in options.split(","))
        how = values.get("hidepid", "0")
        if how in _SHOWS_ALL or self._may_trace():
            return ""
        group = values.get("gid", "")
        if how not in _PTRACEABLE and group.isdigit() and int(group) in {os.getegid(), *os.getgroups()}:
            return ""
        return "%s is mounted with hidepid=%s, so that processes of other users do not show" % (self.root, how)

    def _may_trace(self) -> bool:
        """Whether this process may look into all others: root may, unless that was taken from it."""
        found = re.search(r"^CapEff:\s*([0-9a-f]+)$", self._text("self/status") or "", re.MULTILINE)
        return bool(found and int(found.group(1), 16) >> _CAP_SYS_PTRACE & 1)

    def exists(self, pid: int) -> bool:
        """Whether there is such a process, shown or not."""
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except (OSError, OverflowError):
            return True
        return True

    def pid_max(self) -> int:
        """The first number that can no longer be a PID."""
        return int((self._text("sys/kernel/pid_max") or "4194304").strip())

    def _boot(self) -> float:
        if self._boot_time is None:
            text = self._text("stat") or ""
            found = re.search(r"^btime (\d+)$", text, re.MULTILINE)
            self._boot_time = float(found.group(1)) if found else 0.0
        return self._boot_time

    def ticks_now(self) -> int:
        """Now, in the clock ticks in which start times are given."""
        return int(time.clock_gettime(time.CLOCK_BOOTTIME) * self._ticks)

    # -- processes

    def pids(self) -> List[int]:
        """All processes (thread group leaders), in ascending order."""
        try:
            return sorted(int(name) for name in os.listdir(self.root) if name.isdigit())
        except OSError:
            return []

    def identity(self, pid: int) -> Optional[ProcessIdentity]:
        """PID and start time of a process, or None where there is none: one small read."""
        stat = self._stat(pid)
        return ProcessIdentity(pid, int(str(stat["start_time"]))) if stat else None

    def state(self, identity: ProcessIdentity) -> str:
        """The kernel's letter for exactly this process, or "" where it is gone."""
        stat = self._stat(identity.pid)
        if stat is None or stat["start_time"] != identity.start_time:
            return ""
        return str(stat["state"])

    def alive(self, identity: ProcessIdentity) -> bool:
        """Whether exactly this process still runs; a zombie does not.

        A leader that has ended shows as a zombie while its other threads run on and hold all that the
        process ever held: that one is alive.
        """
        state = self.state(identity)
        if state not in _DEAD_STATES:
            return bool(state)
        return self._live_thread(identity.pid) is not None

    def _live_thread(self, pid: int) -> Optional[int]:
        """A thread that lives on where the first one has ended."""
        try:
            threads = sorted(int(name) for name in os.listdir(os.path.join(self.root, str(pid), "task")))
        except (OSError, ValueError):
            return None
        for thread in threads:
            parsed = parse_stat(self._text(pid, "task", thread, "stat") or "")
            if parsed is not None and parsed["state"] not in _DEAD_STATES:
                return thread
        return None

    def read(self, pid: int) -> Optional[ProcessInfo]:
        """Everything about one process, or None where there is none."""
        stat = self._stat(pid)
        if stat is None:
            return None
        live_thread = self._live_thread(pid) if stat["state"] in _DEAD_STATES else None
        # The first thread, when it ends, takes its view of the process with it.
        view = (pid,) if live_thread is None else (pid, "task", live_thread)
        try:
            exe = os.readlink(os.path.join(self.root, *[str(part) for part in view], "exe"))
        except OSError:
            exe = ""
        if exe.endswith(" (deleted)"):  # the file was replaced by an upgrade; the name still tells
            exe = exe[: -len(" (deleted)")]
        try:
            uid = os.stat(os.path.join(self.root, str(pid))).st_uid
        except OSError:
            return None
        status = parse_status(self._text(pid, "status") or "")
        if status["uid"] is not None:  # the folder belongs to root where the process may not be dumped
            uid = int(str(status["uid"]))
        cmdline = self._text(*view, "cmdline", most=MOST_ARGUMENTS) or ""
        cgroup = parse_cgroup(self._text(*view, "cgroup") or "")
        place = place_of(cgroup)
        unit = place.unit if place.container is None else place.guest_unit
        start_time = int(str(stat["start_time"]))
        return ProcessInfo(
            pid=pid,
            start_time=start_time,
            ppid=int(str(stat["ppid"])),
            state=str(stat["state"]),
            comm=str(stat["comm"]),
            exe=exe,
            argv=tuple(cmdline.rstrip("\0").split("\0")) if cmdline else (),
            uid=uid,
            user=self._user_name(uid),
            session=int(str(stat["session"])),
            pgid=int(str(stat["pgid"])),
            cgroup=cgroup,
            unit=unit.name if unit is not None else None,
            started_at=self._boot() + start_time / self._ticks,
            live_thread=live_thread,
            container=place.container,
            exe_owner=self._exe_owner(view) if exe else None,
            namespace_pid=None if status["namespace_pid"] is None else int(str(status["namespace_pid"])),
        )

    def _exe_owner(self, view: Tuple[object, ...]) -> Optional[int]:
        """Who may change the file that a process runs, see ProcessInfo."""
        try:
            status = os.stat(os.path.join(self.root, *[str(part) for part in view], "exe"))
        except OSError:
            return None
        return -1 if status.st_mode & _OTHERS_MAY_WRITE else status.st_uid

    def ancestors(self, pid: int) -> List[int]:
        """The parents of a process up to PID 1, nearest first, without the process itself."""
        chain: List[int] = []
        seen: Set[int] = {pid}
        stat = self._stat(pid)
        while stat is not None:
            parent = int(str(stat["ppid"]))
            if parent < 1 or parent in seen:
                break
            chain.append(parent)
            seen.add(parent)
            stat = self._stat(parent)
        return chain

    def environ(self, pid: int) -> Optional[Dict[str, str]]:
        """The environment that a process was started with; None where it may not be read, is gone, or has no end.

        What a process changes in its own environment later does not show here.
        """
        view: Tuple[object, ...] = (pid,)
        stat = self._stat(pid)
        if stat is not None and stat["state"] in _DEAD_STATES:
            view = (pid, "task", self._live_thread(pid) or pid)
        try:
            with open(os.path.join(self.root, *[str(part) for part in view], "environ"), "rb") as stream:
                content = stream.read(MOST_ARGUMENTS + 1)
        except OSError:
            return None
        if len(content) > MOST_ARGUMENTS:
            return None
        text = os.fsdecode(content)
        entries = [entry.partition("=") for entry in text.split("\0")]
        return {name: value for name, equals, value in entries if equals and name}

    def namespace(self, pid: int, kind: str) -> Optional[str]:
        """What tells the namespace of a process ("mnt", "net", "ipc", ...) apart; None where it may not be seen."""
        try:
            return os.readlink(os.path.join(self.root, str(pid), "ns", kind))
        except OSError:
            return None

    def session_members(self, session: int) -> List[ProcessInfo]:
        """All processes of a session (see setsid(2)), in ascending order of PID."""
        members = []
        for pid in self.pids():
            stat = self._stat(pid)
            if stat is not None and stat["session"] == session:
                info = self.read(pid)
                if info is not None and info.session == session:
                    members.append(info)
        return members

    # -- sockets

    def listeners(self, port: int) -> List[Listener]:
        """Who listens on a TCP port, over IPv4 and IPv6."""
        wanted: Dict[int, str] = {}
        for table in ("net/tcp", "net/tcp6"):
            for address, inode in parse_listening(self._text(table) or "", port):
                wanted[inode] = address
        if not wanted:
            return []
        owners = self._socket_owners(set(wanted))
        found = []
        for inode, address in sorted(wanted.items(), key=lambda item: item[1]):
            for pid in sorted(owners.get(inode, set())) or [None]:  # type: ignore[list-item]
                found.append(Listener(address, port, pid))
        return found

    def _socket_owners(self, inodes: Set[int]) -> Dict[int, Set[int]]:
        links = {"socket:[%d]" % inode: inode for inode in inodes}
        owners: Dict[int, Set[int]] = {}
        for pid in self.pids():
            for link in self.open_files(pid):
                if link in links:
                    owners.setdefault(links[link], set()).add(pid)
        return owners

    def open_files(self, pid: int) -> Iterator[str]:
        """What a process's descriptors lead to, as the kernel names it; nothing where they may not be seen."""
        folder = os.path.join(self.root, str(pid), "fd")
        try:
            names = os.listdir(folder)
        except OSError:
            return
        for name in names:
            try:
                yield os.readlink(os.path.join(folder, name))
            except OSError:
                continue
