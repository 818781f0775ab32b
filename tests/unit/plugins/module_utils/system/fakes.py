# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host without programs and processes of its own: what is run is answered by table, /proc is a folder."""

from __future__ import annotations

import json
import os
import socket
import struct

from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import Completed
from ansible_collections.inferops.sglang.plugins.module_utils.system.containers import container_of
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessInfo, ProcFs

MISSING = Completed(127, err="there is no program", missing=True)
LATE = Completed(None, timed_out=True)


class FakeRun:
    """Answers a command by the longest beginning of it in the table; a program that has no answer is missing.

    An answer may be a list: one for each call, the last for all further ones; or a function, which is called.
    """

    def __init__(self, answers=None):
        self.answers = dict(answers or {})
        self.calls = []
        self.timeouts = []
        self.inputs = []
        self.environments = []

    def __call__(self, argv, timeout, input="", env=None):
        line = " ".join(argv)
        self.calls.append(line)
        self.timeouts.append(timeout)
        self.inputs.append(input)
        self.environments.append(dict(env or {}))
        begins = [key for key in self.answers if line == key or line.startswith(key + " ")]
        if not begins:
            return MISSING
        answer = self.answers[max(begins, key=len)]
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if callable(answer):
            answer = answer(line)
        return answer if isinstance(answer, Completed) else Completed(0, out=answer)

    def made(self, word):
        """The calls with a word in them."""
        return [call for call in self.calls if word in call.split()]


class FakeClock:
    """A clock that only sleeping moves on."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class FakeProc:
    """A /proc of files."""

    def __init__(self, root):
        self.root = root
        (root / "stat").write_text("btime 1000000\n")
        self.procfs = ProcFs(str(root), user_name=lambda uid: {0: "root"}.get(uid, "user%d" % uid))

    def add(
        self,
        pid,
        cgroup="0::/",
        *,
        ppid=1,
        start=100,
        state="S",
        comm="python3",
        argv=("python3",),
        uid=0,
        flags=0,
        environ="",
        exe=None,
        threads=None,
        children=None,
        namespace=None,
        status="",
        **files,
    ):
        """Make a process, and return it as it is read."""
        folder = self.root / str(pid)
        folder.mkdir()
        stat = "%d (%s) %%s %d %d %d 0 -1 %d 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0" % (
            pid,
            comm,
            ppid,
            pid,
            pid,
            flags,
            start,
        )
        numbers = "NSpid:\t%d\t%d\n" % (pid, namespace) if namespace else "NSpid:\t%d\n" % pid
        text = "Name:\tx\nUid:\t%d\t%d\t%d\t%d\n%s%s" % (uid, uid, uid, uid, numbers, status)
        (folder / "stat").write_text(stat % state)
        (folder / "status").write_text(text)
        (folder / "cmdline").write_text("\0".join(argv) + "\0")
        (folder / "cgroup").write_text(cgroup + "\n")
        (folder / "environ").write_text(environ)
        if exe is not None:
            (folder / "exe").symlink_to(exe)
        for tid, thread_state in (threads or {pid: state}).items():
            thread = folder / "task" / str(tid)
            thread.mkdir(parents=True)
            (thread / "stat").write_text(stat % thread_state)
            (thread / "status").write_text(text)
            (thread / "cgroup").write_text(cgroup + "\n")
            (thread / "cmdline").write_text("\0".join(argv) + "\0")
            for name, content in files.items():
                (thread / name).write_text(content)
            if children is not None:
                (thread / "children").write_text(" ".join(map(str, children)))
        return self.procfs.read(pid)

    def link(self, pid, name, target):
        """Make a link below a process's folder, as those of its namespaces are."""
        path = self.root / str(pid) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def remove(self, pid):
        """It has ended and was reaped."""
        (self.root / str(pid)).rename(self.root / ("gone-%d" % pid))


def show(active="active", sub="running", restart="always", main=100, starts=0, load="loaded", delay="5s"):
    """What `systemctl show` prints."""
    return (
        "Restart=%s\nRestartUSec=%s\nMainPID=%d\nNRestarts=%d\nControlGroup=/x\nId=x.service\n"
        "LoadState=%s\nActiveState=%s\nSubState=%s\n" % (restart, delay, main, starts, load, active, sub)
    )


def inspect(
    name="/sglang", status="running", restarting=False, pid=100, policy="unless-stopped", restarts=0, labels=None
):
    """What `docker inspect` prints, with a secret in it."""
    return json.dumps(
        [
            {
                "Id": "4f2a",
                "Name": name,
                "RestartCount": restarts,
                "State": {"Status": status, "Restarting": restarting, "Pid": pid, "Running": status == "running"},
                "HostConfig": {"RestartPolicy": {"Name": policy, "MaximumRetryCount": 0}},
                "Config": {"Labels": labels, "Env": ["HF_TOKEN=hf_verysecret"]},
            }
        ]
    )


def process(pid, **changes):
    """A process as it is read: root's, the first of its session, started 1000 ticks after boot."""
    values = {
        "pid": pid,
        "start_time": 1000,
        "ppid": 1,
        "state": "S",
        "comm": "python3",
        "exe": "",
        "argv": ("python3",),
        "uid": 0,
        "user": "root",
        "session": pid,
        "pgid": pid,
        "cgroup": "/",
        "unit": None,
        "started_at": 0.0,
    }
    values.update(changes)
    return ProcessInfo(**{"container": container_of(values["cgroup"]), **values})


class Kernel:
    """Processes and sockets that the test changes, with the methods of ProcFs."""

    def __init__(self, *processes, boot_id="boot"):
        self.set(*processes)
        self.sockets = []
        self.parents = {}
        self._boot_id = boot_id

    def set(self, *processes):
        self.processes = {item.pid: item for item in processes}

    def boot_id(self):
        return self._boot_id

    def read(self, pid):
        return self.processes.get(pid)

    def identity(self, pid):
        found = self.processes.get(pid)
        return found.identity if found else None

    def alive(self, identity):
        found = self.processes.get(identity.pid)
        return found is not None and found.identity == identity and not found.dead

    def ancestors(self, pid):
        return self.parents.get(pid, [1])

    def session_members(self, session):
        return [item for item in self.processes.values() if item.session == session]

    def listeners(self, port):
        return [item for item in self.sockets if item.port == port]


def gone(pid):
    """Whether there is no real process of this number, not even a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def recorded(path):
    """The records in an audit log."""
    return [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()] if path.exists() else []


class FakeJournal:
    """A socket in place of journald's; entry() is the next entry as a list of (name, value)."""

    def __init__(self, path):
        self.path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._socket.settimeout(5)

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self._socket.close()

    def entry(self):
        return parse_journal(self._socket.recv(1 << 17))


def parse_journal(datagram):
    """The fields of a datagram, read as journald reads them."""
    fields, rest = [], datagram
    while rest:
        line, _newline, rest = rest.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            (length,) = struct.unpack("<Q", rest[:8])
            value, rest = rest[8 : 8 + length], rest[8 + length :]
            assert rest[:1] == b"\n"
            rest = rest[1:]
        fields.append((name.decode(), value.decode()))
    return fields
