# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who acts, as the host sees it.

Two kinds of evidence, kept apart.  The kernel's own: the user ids, and the user who logged in (loginuid of
proc(5), which sudo and su do not change, and which an ordinary user cannot set).  And what the environment
says, which whoever started the process could have set to anything.
"""

from __future__ import annotations

import os
import pwd
import re
from typing import Any, Dict, Mapping

# "no such id" in the kernel's 32 bits: of a process that no login led to.
_UNSET = 0xFFFFFFFF
_NAMED = ("SUDO_USER", "DOAS_USER", "PKEXEC_UID")
_CONNECTION = "SSH_CONNECTION"
_ADDRESS = re.compile(r"[0-9A-Za-z.:%_-]{1,64}")
# sudo empties the environment, so the shells above it are asked for the connection: so many at most.
_ANCESTORS = 16
_MOST_ENVIRONMENT = 1 << 18


def who(environment: Mapping[str, str], run: str = "", root: str = "/proc") -> Dict[str, Any]:
    """uid and user; real_uid where it is another; login_uid, login_user and session where there was a login.

    environment: what it says, {} for nothing.  run: what the controller calls its run, left out where it is empty.
    root is where proc is mounted.
    """
    uid = os.geteuid()
    found: Dict[str, Any] = {"uid": uid, "user": _user_name(uid)}
    if os.getuid() != uid:
        found["real_uid"] = os.getuid()
    login = _number(root, "self/loginuid")
    if login is not None:
        found.update(login_uid=login, login_user=_user_name(login))
    session = _number(root, "self/sessionid")
    if session is not None:
        found["session"] = session
    found["environment"] = _told(environment, root)
    if run:
        found["run"] = run
    return found


def _told(environment: Mapping[str, str], root: str) -> Dict[str, str]:
    told = {name: environment[name] for name in _NAMED if environment.get(name)}
    client = _client(environment.get(_CONNECTION, "")) or _client_of_ancestors(root)
    if client:
        told["ssh_client"] = client
    return told


def _client(connection: str) -> str:
    """The address in SSH_CONNECTION (client, port, server, port), "" where it has none."""
    first = connection.split(" ", 1)[0]
    return first if _ADDRESS.fullmatch(first) else ""


def _client_of_ancestors(root: str) -> str:
    pid = os.getppid()
    for _step in range(_ANCESTORS):
        if pid <= 1:
            break
        for entry in _read(root, "%d/environ" % pid).split(b"\0"):
            if entry.startswith(_CONNECTION.encode() + b"="):
                client = _client(entry.partition(b"=")[2].decode("ascii", "replace"))
                if client:
                    return client
        pid = _parent(root, pid)
    return ""


def _parent(root: str, pid: int) -> int:
    """The parent of a process, 0 where it is gone."""
    fields = _read(root, "%d/stat" % pid).rpartition(b")")[2].split()
    return int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else 0


def _number(root: str, name: str) -> Any:
    text = _read(root, name).strip()
    return int(text) if text.isdigit() and int(text) != _UNSET else None


def _read(root: str, name: str) -> bytes:
    try:
        with open(os.path.join(root, name), "rb") as stream:
            return stream.read(_MOST_ENVIRONMENT)
    except OSError:
        return b""


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
