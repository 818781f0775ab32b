# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server as a process of its own: started in its own session, and found again.

The PID file says which process it is: PID, start time and boot, so that another process which got the
same PID later is never taken for the server.  The workers of a server stay in its session, also after
its main process died: Linux gives a number to no new process while a session of that number exists.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import pwd
import shutil
import signal
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.files import make_folder, write_text
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release
from ansible_collections.inferops.sglang.plugins.module_utils.system import bounded_json, regular_file
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import (
    ProcessIdentity,
    ProcessInfo,
    ProcFs,
)

# What a server gets from the environment of the one who starts it.  Everything else, proxies and the
# variables of Ansible's own session above all, it gets only where the release says so.
_INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH")
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LOG_MODE = 0o640
_PID_FILE_MODE = 0o644


class ServerProcessError(Exception):
    """Something that keeps the server from being started, found or stopped; the message has the remedy."""


class PidFileError(ServerProcessError):
    """A PID file that does not tell which process is meant."""


# -- the PID file


@dataclass(frozen=True)
class PidRecord:
    """The content of a PID file.  start_ticks is in clock ticks after the boot named by boot_id."""

    pid: int
    start_ticks: int
    boot_id: str
    release: str
    command_sha256: str

    @property
    def identity(self) -> ProcessIdentity:
        """The process that is meant."""
        return ProcessIdentity(self.pid, self.start_ticks)


def parse_pid_record(text: str) -> PidRecord:
    """Read the content of a PID file.  Raises ValueError saying what is wrong with it."""
    try:
        data = bounded_json.loads(text)
    except ValueError as error:
        raise ValueError("it is not JSON (%s)" % error) from None
    if not isinstance(data, dict):
        raise ValueError("it is not a JSON object")
    for name, kind in (("pid", int), ("start_ticks", int), ("boot_id", str), ("release", str), ("command_sha256", str)):
        if name not in data:
            raise ValueError("the key %s is missing" % name)
        if not isinstance(data[name], kind) or isinstance(data[name], bool):
            raise ValueError("%s is %r" % (name, data[name]))
    if data["pid"] <= 2:
        raise ValueError("pid is %d, which can be no server" % data["pid"])
    return PidRecord(**{name: data[name] for name in ("pid", "start_ticks", "boot_id", "release", "command_sha256")})


def read_pid_file(path: Path) -> Optional[PidRecord]:
    """The record in a PID file, or None where there is no file.  Raises PidFileError."""
    try:
        text = regular_file.read_text(path, regular_file.MIB)
        owner = os.stat(str(path)).st_uid
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise PidFileError(_broken(path, "it is not text")) from None
    except OSError as error:
        raise PidFileError("The PID file %s cannot be read: %s. Run as its owner." % (path, error.strerror)) from None
    try:
        record = parse_pid_record(text)
    except ValueError as error:
        raise PidFileError(_broken(path, str(error))) from None
    if owner not in (0, os.geteuid()):
        _check_owner(path, record, owner)
    return record


def _check_owner(path: Path, record: PidRecord, owner: int) -> None:
    """Let a file of another user name no process but one of that user.  Raises PidFileError."""
    process = ProcFs().read(record.pid)
    if process is not None and process.uid != owner:
        raise PidFileError(
            _broken(path, "it belongs to user %d, and names the process %d of %s" % (owner, record.pid, process.user))
        )


def _broken(path: Path, problem: str) -> str:
    return (
        "The PID file %s is broken: %s. Nothing was ended. See which server runs (ps -eo pid,sid,lstart,args), "
        "end it by hand, then remove the file." % (path, problem)
    )


def write_pid_file(path: Path, record: PidRecord) -> None:
    """Replace a PID file whole."""
    write_text(path, json.dumps(asdict(record), sort_keys=True) + "\n", _PID_FILE_MODE)


# -- what is started


@dataclass(frozen=True)
class Launch:
    """What makes a server: the whole command, its additional environment, and as whom and where it runs."""

    command: Tuple[str, ...]
    environment: Mapping[str, str]
    user: str = ""
    working_directory: str = ""
    secret_args: Mapping[str, str] = field(default_factory=dict)

    def digest(self) -> str:
        """SHA-256 of all of it: two launches with the same one start the same server."""
        content = [
            list(self.command),
            sorted(self.environment.items()),
            self.user,
            self.working_directory,
            sorted(self.secret_args.items()),
        ]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def launch_of(release: Release) -> Launch:
    """What a release starts."""
    return Launch(
        command=tuple(release.command),
        environment=dict(release.environment),
        user=release.user,
        working_directory=release.working_directory,
        secret_args=dict(release.secret_args),
    )


def base_environment(inherited: Mapping[str, str], account: Optional[pwd.struct_passwd]) -> Dict[str, str]:
    """The part of the environment that every server gets; account is of the user it runs as, if another."""
    environment = {name: value for name, value in inherited.items() if name in _INHERITED or name.startswith("LC_")}
    environment.setdefault("PATH", _DEFAULT_PATH)
    if account is not None:
        environment.update(
            HOME=account.pw_dir, USER=account.pw_name, LOGNAME=account.pw_name, SHELL=account.pw_shell or "/bin/sh"
        )
        environment.pop("TMPDIR", None)  # the caller's, which the user may not be able to write
    return environment


def account_of(user: str) -> Optional[pwd.struct_passwd]:
    """The account to switch to, or None where the caller's own is meant.  Raises ServerProcessError."""
    if not user:
        return None
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        raise ServerProcessError("user: there is no user %r on this host: create it, or give another." % user) from None
    if account.pw_uid == os.geteuid():
        return None
    if os.geteuid() != 0:
        raise ServerProcessError(
            "user: only root can start a process of %r, and this is %s: set become to true."
            % (user, pwd.getpwuid(os.geteuid()).pw_name)
        )
    return account


def check_launch(launch: Launch, environment: Mapping[str, str]) -> None:
    """Find what would keep a launch from working before anything is written.  Raises ServerProcessError."""
    if not launch.command or not launch.command[0]:
        raise ServerProcessError("command: it is empty: give the whole command, interpreter first.")
    for word in list(launch.command) + list(environment) + list(environment.values()):
        if "\0" in word:
            raise ServerProcessError("command, environment: a NUL character cannot be passed to a process: remove it.")
    for name in environment:
        if not name or "=" in name:
            raise ServerProcessError("environment: %r is not a name of a variable." % name)
    folder = launch.working_directory
    if folder and not os.path.isdir(folder):
        raise ServerProcessError("working_directory: %s is not a folder on this host: create it." % folder)
    program = launch.command[0]
    if "/" in program and not program.startswith("/"):
        program = os.path.join(folder or "/", program)
    if shutil.which(program, path=environment.get("PATH")) is None:
        raise ServerProcessError(
            "command: the program %s is missing or not executable: install it, or give its absolute path." % program
        )


def rotate_log(path: Path) -> None:
    """Keep the log of the start before as PATH.1, so that the log holds one start only."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > 0:
            path.replace(path.with_name(path.name + ".1"))


def _prepare_child(account: Optional[pwd.struct_passwd]) -> Callable[[], None]:
    """What the child does between fork and exec.  Nothing here may print or import."""
    reset = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD]

    def prepare() -> None:
        # An ignored or blocked signal stays so after exec: the server must hear the one that stops it.
        for number in reset:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.umask(0o022)
        if account is not None:
            os.initgroups(account.pw_name, account.pw_gid)
            os.setgid(account.pw_gid)
            os.setuid(account.pw_uid)

    return prepare


def spawn(
    launch: Launch, environment: Mapping[str, str], account: Optional[pwd.struct_passwd], log_path: Path
) -> subprocess.Popen[bytes]:
    """Start the server in a session of its own, with nothing of the caller's open.  Raises ServerProcessError."""
    try:
        descriptor = regular_file.open_own_log(log_path, _LOG_MODE)
    except OSError as error:
        raise ServerProcessError(
            "The log %s cannot be written: %s. Move it away." % (log_path, error.strerror)
        ) from None
    try:
        return subprocess.Popen(
            list(launch.command),
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            cwd=launch.working_directory or "/",
            env=dict(environment),
            start_new_session=True,
            close_fds=True,
            preexec_fn=_prepare_child(account),
        )
    except OSError as error:
        # filename is the program, or the working directory where that could not be entered
        raise ServerProcessError(
            "The server could not be started: %s: %s." % (error.filename or launch.command[0], error.strerror)
        ) from None
    except subprocess.SubprocessError as error:
        who = launch.user or "this user"
        raise ServerProcessError("The server could not be started as %s: %s." % (who, error)) from None
    finally:
        os.close(descriptor)


def died_within(
    process: subprocess.Popen[bytes], seconds: float, clock: Callable[[], float], sleep: Callable[[float], None]
) -> Optional[int]:
    """Watch a new process for a moment; its exit status where it ended, else None."""
    deadline = clock() + seconds
    while True:
        status = process.poll()
        if status is not None or clock() >= deadline:
            return status
        sleep(0.02)


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Let nobody else start or stop this server meanwhile.  Raises ServerProcessError where somebody does."""
    make_folder(path.parent)
    descriptor = os.open(str(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ServerProcessError(
                "Another run is starting or stopping this server now (it holds %s): wait for it to end." % path
            ) from None
        yield
    finally:
        os.close(descriptor)


# -- what runs


@dataclass(frozen=True)
class Found:
    """What a PID file leads to.

    stale says why the record's process is not there any more, "" where it runs; leftovers are live
    members of its session without it.
    """

    record: Optional[PidRecord]
    running: bool = False
    stale: str = ""
    leftovers: Tuple[ProcessInfo, ...] = ()


def session_of(record: PidRecord, procfs: ProcFs) -> List[ProcessInfo]:
    """The live members of a server's session other than its main process, in ascending order of PID."""
    if record.boot_id != procfs.boot_id():
        return []
    leader = procfs.identity(record.pid)
    if leader is not None and leader != record.identity:
        return []  # the number was given away, which happens only after the session's end
    return [
        member
        for member in procfs.session_members(record.pid)
        if member.pid != record.pid and member.start_time >= record.start_ticks and procfs.alive(member.identity)
    ]


def inspect(record: Optional[PidRecord], procfs: ProcFs) -> Found:
    """Look for the process that a PID file names."""
    if record is None:
        return Found(None)
    if record.boot_id != procfs.boot_id():
        return Found(record, stale="the host was booted since")
    if procfs.alive(record.identity):
        return Found(record, running=True)
    present = procfs.identity(record.pid)
    if present is not None and present != record.identity:
        return Found(record, stale="the PID %d belongs to a process started later" % record.pid)
    return Found(record, stale="the process %d has ended" % record.pid, leftovers=tuple(session_of(record, procfs)))
