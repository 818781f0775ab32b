# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes a release from a server that somebody started by hand, so that there is something to go back to.

Everything is read from the live process: its command, working directory, user and environment, and from
the server itself what it runs with.  It must generate once, because a release that is to be gone back to
has to work.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Protocol, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.command_line import option_value
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.compared import (
    COMPARED,
    effective_of,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import Answer, HttpError
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import (
    MARKER,
    PROCESS,
    STATE_MARKER,
    InstancePaths,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.unmanaged import (
    Unmanaged,
    address_of,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import (
    is_secret_argument,
    redact_info,
    secret_name,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs

ORIGIN = "adopted"

_TOKENS = 16
_PROMPT = "The capital of France is"

# What a login, a terminal, a session or a service manager puts into an environment: it describes the
# operator's session and says nothing about the server.
_SESSION = frozenset(
    [
        *("_", "PWD", "OLDPWD", "SHLVL", "SHELL", "USER", "LOGNAME", "USERNAME", "MAIL", "HOSTNAME", "HOSTTYPE"),
        *("TERM", "TERMINFO", "COLORTERM", "COLUMNS", "LINES", "LS_COLORS", "LSCOLORS", "PS1", "PS2", "PS4"),
        *("PROMPT_COMMAND", "EDITOR", "VISUAL", "PAGER", "LESS", "LESSOPEN", "LESSCLOSE", "MANPAGER", "BROWSER"),
        *("TMUX", "TMUX_PANE", "STY", "WINDOW", "WINDOWID", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY"),
        *("MOTD_SHOWN", "DEBUGINFOD_URLS", "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "MANAGERPID"),
        *("INVOCATION_ID", "JOURNAL_STREAM", "CREDENTIALS_DIRECTORY", "MEMORY_PRESSURE_WATCH"),
        *("MEMORY_PRESSURE_WRITE", "VIRTUAL_ENV_PROMPT", "CONDA_PROMPT_MODIFIER", "KRB5CCNAME"),
        *(MARKER, STATE_MARKER),
    ]
)
_SESSION_BEGINS = (
    *("SSH_", "XDG_", "DBUS_", "SUDO_", "HIST", "ANSIBLE_", "LISTEN_", "SYSTEMD_", "GNOME_", "KDE_", "VTE_"),
    *("TERM_PROGRAM", "GPG_", "LESS_TERMCAP", "VSCODE_", "BASH_FUNC_", "BYOBU_", "SLURM_", "PBS_", "INVOCATION_"),
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class AdoptionError(Exception):
    """A server that cannot be taken over; the message has the remedy.  Nothing was touched."""


class Client(Protocol):
    """What is needed of a client (see http_client.HttpClient)."""

    def get(self, path: str, timeout: float) -> Answer:
        """Raises HttpError."""

    def post(self, path: str, payload: Mapping[str, Any], timeout: float) -> Answer:
        """Raises HttpError."""


@dataclass(frozen=True)
class Command:
    """A command line as a release keeps it: without secrets, the program with its whole path."""

    words: List[str]
    secrets: Dict[str, str]


def split_secrets(argv: Tuple[str, ...]) -> Command:
    """Take the secret options out of a command line."""
    words: List[str] = []
    secrets: Dict[str, str] = {}
    position = 0
    while position < len(argv):
        word = argv[position]
        name, equals, value = word.partition("=")
        position += 1
        if not word.startswith("--") or not is_secret_argument(name):
            words.append(word)
        elif equals:
            secrets[secret_name(name)] = value
        elif position < len(argv):
            secrets[secret_name(name)] = argv[position]
            position += 1
    return Command(words, secrets)


def api_key_of(found: Unmanaged) -> Optional[str]:
    """The key that the server was started with, None without one."""
    return split_secrets(tuple(found.arguments)).secrets.get("api-key")


def server_environment(environment: Mapping[str, str], account: Optional[pwd.struct_passwd]) -> Dict[str, str]:
    """The part of an environment that makes the server what it is.  account is its user's."""
    kept = {}
    for name, value in environment.items():
        if name in _SESSION or name.startswith(_SESSION_BEGINS) or not _VARIABLE.fullmatch(name):
            continue
        if _CONTROL.search(value):
            continue  # no manager could pass it on
        if name == "HOME" and account is not None and value == account.pw_dir:
            continue  # every manager sets it
        kept[name] = value
    return kept


def make_release(
    found: Unmanaged,
    paths: InstancePaths,
    manager: str,
    stop_timeout: float,
    client: Client,
    procfs: ProcFs,
    request_timeout: float = 30.0,
    prove: bool = True,
) -> Release:
    """The release that would start the same server; without prove it is not asked to generate.

    Raises AdoptionError.
    """
    process = found.process
    environment = procfs.environ(process.pid)
    if environment is None:
        raise AdoptionError(
            "The environment of the process %d may not be read, so it could not be started again: run as root or as %s."
            % (process.pid, process.user)
        )
    command = split_secrets(process.argv)
    if command.secrets and option_value(found.arguments, "--config") is not None:
        raise AdoptionError(
            "The process %d has %s in its command line and a --config as well, and cannot be given two files: "
            "put the key into that file, restart it so by hand, or end it (kill %d)."
            % (process.pid, ", ".join("--" + name for name in sorted(command.secrets)), process.pid)
        )
    folder = _working_directory(process.pid, procfs)
    words = [_program(process.argv[0], process.exe, folder, environment), *command.words[1:]]
    if command.secrets:
        words += ["--config", str(paths.secret_args_file)]
    info = _server_info(client, request_timeout)
    if prove:
        _prove(found, client, request_timeout)
    effective = effective_of(redact_info(info), COMPARED)
    host, port = address_of(found.arguments)
    return Release(
        id="",
        created="",
        instance=paths.instance,
        manager=manager,
        command=words,
        environment=server_environment(environment, _account(process.uid)),
        secret_args=command.secrets,
        user=_user(process.uid, process.user, manager),
        working_directory="" if folder == "/" else folder,
        stop_timeout=stop_timeout,
        host=host,
        port=port or found.port,
        requested=dict(effective),
        effective=effective,
        sglang_version=str(info.get("version") or ""),
        origin=ORIGIN,
    )


def _prove(found: Unmanaged, client: Client, timeout: float) -> None:
    pid = found.process.pid
    payload = {"text": _PROMPT, "sampling_params": {"max_new_tokens": _TOKENS, "temperature": 0}}
    try:
        answer = client.post("/generate", payload, timeout)
        problem = "" if answer.status == 200 else "it answered %d" % answer.status
    except HttpError as error:
        problem = str(error)
    if problem:
        raise AdoptionError(
            "The process %d cannot be taken over, because it does not generate (%s), and what does not work is nothing "
            "to go back to: wait until it is ready, or end it (kill %d)." % (pid, problem, pid)
        )


def _server_info(client: Client, timeout: float) -> Dict[str, Any]:
    """What the server says it runs with; {} where it does not."""
    try:
        answer = client.get("/server_info", timeout)
        return answer.json_object() if answer.status == 200 else {}
    except HttpError:
        return {}


def _working_directory(pid: int, procfs: ProcFs) -> str:
    try:
        folder = os.readlink(os.path.join(procfs.root, str(pid), "cwd"))
    except OSError:
        return "/"
    return folder if os.path.isdir(folder) else "/"


def _program(word: str, exe: str, folder: str, environment: Mapping[str, str]) -> str:
    """The interpreter by its whole path: of a virtual environment the link, by which it is recognised."""
    if "/" in word:
        path = os.path.normpath(os.path.join(folder, word))
    else:
        path = shutil.which(word, path=environment.get("PATH", os.defpath)) or ""
    if path and os.path.realpath(path) == os.path.realpath(exe or path) and os.access(path, os.X_OK):
        return path
    return exe or path or word


def _account(uid: int) -> Optional[pwd.struct_passwd]:
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        return None


def _user(uid: int, name: str, manager: str) -> str:
    """The user of a release; "" is root with systemd, and whoever starts it with a process of its own."""
    if manager == PROCESS:
        return "" if uid == os.geteuid() else name
    return "" if uid == 0 else name
