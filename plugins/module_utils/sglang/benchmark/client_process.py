# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The process that runs SGLang's benchmark client: started in a session of its own, found again, and ended.

It outlives the module, which runs in parts.  So it has a folder (RUN_DIR/INSTANCE.benchmark) with who it is,
what it said and what it wrote, and a file that is touched as long as somebody waits: it ends by itself where
that is touched no more, or gone.  No secret is in that folder, nor in its command line or environment: all that
it needs comes through its standard input, which is a file in memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.sglang import log_tail
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.client_script import SCRIPT
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.files import make_folder, write_text
from ansible_collections.inferops.sglang.plugins.module_utils.system import bounded_json, regular_file
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity, ProcFs

# How long it goes on although nobody waits for it: connections that are lost are tried again for that long (seconds).
PATIENCE = 180.0
_MODE = 0o644
_PRIVATE = 0o600
_GOES = 3.0  # seconds until it has seen that it is to end
_POLL = 0.02
_MOST_EVENTS = 16 << 20  # bytes


class ClientError(Exception):
    """A client that was not started: a code and a sentence."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Launch:
    """How the client is started: the words that run a Python on its standard input, and as whom."""

    words: Sequence[str]
    environment: Mapping[str, str]
    account: Optional[pwd.struct_passwd] = None


@dataclass
class ClientProcess:
    """The client of one instance.

    nonce tells the clients of one run from those of another; marker begins each of its events.
    """

    folder: Path
    procfs: ProcFs
    nonce: str
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    identity: Optional[ProcessIdentity] = None
    _child: Optional[subprocess.Popen[bytes]] = field(default=None, repr=False)

    @property
    def marker(self) -> str:
        """What each line of an event begins with."""
        return "inferops-sglang-benchmark-%s:" % self.nonce

    @property
    def alive_file(self) -> Path:
        """The file that is touched while somebody waits."""
        return self.folder / "alive"

    @property
    def _events_file(self) -> Path:
        return self.folder / "events"

    @property
    def _log_file(self) -> Path:
        return self.folder / "log"

    @property
    def _record_file(self) -> Path:
        return self.folder / "process.json"

    # -- beginning

    def attach(self) -> bool:
        """Find the client that an earlier part of this run has started; whether there is one, alive or not."""
        record = self._record()
        if record.get("nonce") != self.nonce or record.get("boot_id") != self.procfs.boot_id():
            return False
        self.identity = ProcessIdentity(int(record["pid"]), int(record["start_time"]))
        return True

    def refuse_other(self) -> None:
        """Raise ClientError where another run measures this server, and clear up after one that does no more."""
        record = self._record()
        pid, began = record.get("pid"), record.get("start_time")
        known = isinstance(pid, int) and isinstance(began, int) and record.get("boot_id") == self.procfs.boot_id()
        other = record.get("nonce") != self.nonce
        if known and other and self.procfs.alive(ProcessIdentity(int(pid or 0), int(began or 0))):
            raise ClientError(
                "busy",
                "Another run measures this server now (PID %s): wait for it. Where nobody waits for it any more, it "
                "ends by itself within %d seconds." % (pid, PATIENCE),
            )
        self.remove()

    def _record(self) -> Dict[str, Any]:
        try:
            found = bounded_json.loads(regular_file.read_text(self._record_file, regular_file.MIB))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def start(self, launch: Launch, task: Mapping[str, Any]) -> None:
        """Start it on a task of the client script (see client_script).  Raises ClientError and OSError."""
        make_folder(self.folder)
        self.alive_file.write_bytes(b"")
        self.alive_file.chmod(_MODE)
        whole = dict(task, marker=self.marker, alive=str(self.alive_file), patience=PATIENCE)
        text = "%s\nmain(json.loads(%a))\n" % (SCRIPT, json.dumps(whole))
        events, log = _open_private(self._events_file), _open_private(self._log_file)
        try:
            with _file_in_memory(text.encode()) as source:
                self._child = subprocess.Popen(
                    list(launch.words),
                    stdin=source,
                    stdout=events,
                    stderr=log,
                    cwd="/",
                    env=dict(launch.environment),
                    start_new_session=True,
                    close_fds=True,
                    preexec_fn=_become(launch.account),
                )
        except (OSError, subprocess.SubprocessError) as error:
            self.remove()
            raise ClientError("client_failed", "%s cannot be started: %s." % (launch.words[0], error)) from None
        finally:
            os.close(events)
            os.close(log)
        self.identity = self.procfs.identity(self._child.pid)
        record = {
            "nonce": self.nonce,
            "pid": self._child.pid,
            "start_time": self.identity.start_time if self.identity is not None else 0,
            "boot_id": self.procfs.boot_id(),
        }
        write_text(self._record_file, json.dumps(record, sort_keys=True) + "\n", _MODE)

    # -- meanwhile

    def touch(self) -> None:
        """Tell it that somebody waits."""
        with contextlib.suppress(FileNotFoundError):
            os.utime(str(self.alive_file))

    def running(self) -> bool:
        """Whether it has not ended."""
        if self._child is not None:
            return self._child.poll() is None
        return self.identity is not None and self.procfs.alive(self.identity)

    @property
    def status(self) -> Optional[int]:
        """Its exit status, -N after signal N; None where it runs, or where an earlier part started it."""
        return self._child.poll() if self._child is not None else None

    def events(self) -> List[Dict[str, Any]]:
        """All that it has said so far."""
        try:
            text = regular_file.read_text(self._events_file, _MOST_EVENTS)
        except (OSError, UnicodeDecodeError):
            return []
        return read_events(text, self.marker)

    def log(self, secrets: Iterable[str]) -> List[str]:
        """The cleaned lines at the end of what it wrote."""
        return log_tail.read_lines(str(self._log_file), secrets)

    # -- the end

    def end(self) -> None:
        """End it, if it runs, and wait until it has ended."""
        with contextlib.suppress(FileNotFoundError):
            self.alive_file.unlink()
        # In a container no signal of ours reaches it, but it looks for its file.
        self._wait(_GOES)
        identity = self.identity
        if self.running() and identity is not None:
            # Its own session and group: we started it so, and it is still this very process.
            with contextlib.suppress(OSError):
                os.killpg(identity.pid, signal.SIGKILL)
            self._wait(_GOES)

    def _wait(self, patience: float) -> None:
        deadline = self.clock() + patience
        while self.running() and self.clock() < deadline:
            self.sleep(_POLL)

    def remove(self) -> None:
        """Remove its folder."""
        if self.folder.is_symlink():
            self.folder.unlink()
        elif self.folder.exists():
            shutil.rmtree(str(self.folder))


def read_events(text: str, marker: str) -> List[Dict[str, Any]]:
    """The events in what the client script has written; a line that is not whole yet is left for later."""
    found = []
    for line in text.split("\n")[:-1]:
        if not line.startswith(marker):
            continue
        try:
            event = bounded_json.loads(line[len(marker) :])
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            found.append(event)
    return found


def _open_private(path: Path) -> int:
    return os.open(
        str(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, _PRIVATE
    )


@contextlib.contextmanager
def _file_in_memory(data: bytes) -> Any:
    """A descriptor of a file without a name, at its beginning."""
    try:
        descriptor = os.memfd_create("benchmark", os.MFD_CLOEXEC)
    except (AttributeError, OSError):
        # A system without such files.
        with tempfile.TemporaryFile() as stream:
            descriptor = os.dup(stream.fileno())
    try:
        while data:
            data = data[os.write(descriptor, data) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def _become(account: Optional[pwd.struct_passwd]) -> Callable[[], None]:
    """What the child does between fork and exec.  Nothing here may print or import."""
    reset = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD, signal.SIGPIPE]

    def prepare() -> None:
        for number in reset:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        if account is not None:
            os.initgroups(account.pw_name, account.pw_gid)
            os.setgid(account.pw_gid)
            os.setuid(account.pw_uid)

    return prepare
