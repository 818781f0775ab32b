# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of supervisord as supervisors.

supervisord writes into the environment of what it starts who it is.  That environment holds secrets too,
so that only its own variables are read, and nothing but what they name leaves this file.

Source: supervisord's manual, "Subprocess Environment" and "supervisorctl Actions".
"""

from __future__ import annotations

import os
import re
import shlex
from typing import Callable, Dict, Optional, Tuple
from urllib.parse import urlsplit

from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import (
    MOST_ARGUMENTS,
    ProcessInfo,
    ProcFs,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import (
    QUERY_TIMEOUT,
    SUPERVISORD,
    Condition,
    Found,
    Runner,
    Supervisor,
)

_KEYS = (
    "SUPERVISOR_ENABLED",
    "SUPERVISOR_GROUP_NAME",
    "SUPERVISOR_PROCESS_NAME",
    "SUPERVISOR_SERVER_URL",
)
_NAME = re.compile(r"[^\s:*-][^\s:*]*$")
_STATUS = re.compile(r"^\S+\s+([A-Z]+)\b(?:\s+pid (\d+))?", re.MULTILINE)
_OVER = frozenset(("STOPPED", "EXITED", "FATAL"))
_WAITING = frozenset(("STARTING", "BACKOFF"))


def own_variables(procfs: ProcFs, pid: int) -> Dict[str, str]:
    """What supervisord wrote into the environment of a process; nothing else of it."""
    try:
        with open("%s/%d/environ" % (procfs.root, pid), "rb") as stream:
            content = stream.read(MOST_ARGUMENTS)
    except OSError:
        return {}
    found = {}
    for entry in content.split(b"\0"):
        key, equals, value = entry.partition(b"=")
        if equals and key.decode("ascii", "replace") in _KEYS:
            found[key.decode()] = value.decode("utf-8", "replace")
    return found


def owner_of(path: str) -> Optional[int]:
    """Who owns a file, or None."""
    try:
        return os.stat(path).st_uid
    except OSError:
        return None


class Supervisord:
    """Finds the program of supervisord that a process belongs to, and asks for its state.

    owner tells who owns a socket: supervisorctl may send a password there, so it must be root's or ours.
    """

    def __init__(
        self, run: Runner, procfs: ProcFs, own_uid: int, owner: Callable[[str], Optional[int]] = owner_of
    ) -> None:
        self._run = run
        self._procfs = procfs
        self._trusted = (0, own_uid)
        self._owner = owner
        self._found: Dict[Tuple[str, str], Found] = {}  # supervisorctl takes half a second

    def find(self, process: ProcessInfo) -> Found:
        """The supervisor of a process, if a supervisord still runs above it."""
        variables = own_variables(self._procfs, process.pid)
        names = [variables.get("SUPERVISOR_GROUP_NAME", ""), variables.get("SUPERVISOR_PROCESS_NAME", "")]
        url = variables.get("SUPERVISOR_SERVER_URL", "")
        if not variables.get("SUPERVISOR_ENABLED") or not all(_NAME.match(name) for name in names):
            return Found()
        name = ":".join(names)
        if not self._daemon_above(process):
            return Found(note="left over from the supervisord program %s" % name)
        if (name, url) not in self._found:
            self._found[(name, url)] = self._program(name, url)
        return self._found[(name, url)]

    def _program(self, name: str, url: str) -> Found:
        if not self._may_be_asked(url):
            return Found(
                Supervisor(
                    SUPERVISORD,
                    name,
                    policy="autorestart unknown",
                    advice="its supervisord cannot be reached safely: stop it with supervisorctl stop %s" % name,
                )
            )
        control = ("supervisorctl", "-s", url)
        query = (*control, "status", name)
        condition = self._ask(query)
        stop = (*control, "stop", name)
        advice = "stop it with: " + " ".join(shlex.quote(word) for word in stop)
        if not condition.known:
            return Found(Supervisor(SUPERVISORD, name, policy="autorestart unknown", advice=advice))
        if condition.stopped:
            return Found(note="left over from the supervisord program %s: %s" % (name, condition.words))
        return Found(
            Supervisor(
                kind=SUPERVISORD,
                name=name,
                policy="autorestart unknown",  # it does not tell
                stop=stop,
                advice=advice,
                manager=SUPERVISORD,
                query=query,
                main_pid=condition.main_pid,
            )
        )

    def condition(self, supervisor: Supervisor) -> Condition:
        """Ask supervisord for the state of the program now."""
        return self._ask(supervisor.query)

    def _ask(self, query: Tuple[str, ...]) -> Condition:
        completed = self._run(query, QUERY_TIMEOUT)
        # The exit status tells the program's state, not whether supervisord answered.
        match = _STATUS.search(completed.out)
        if match is None or completed.timed_out or completed.missing:
            return Condition("its state cannot be read: %s" % completed.reason, known=False)
        state, pid = match.group(1), int(match.group(2) or 0)
        return Condition("it is %s" % state, True, state in _OVER, state in _WAITING, pid)

    def _daemon_above(self, process: ProcessInfo) -> bool:
        for pid in self._procfs.ancestors(process.pid):
            parent = self._procfs.read(pid)
            # It is a script: its own name stands behind the interpreter's.
            if parent is not None and any(os.path.basename(word).startswith("supervisord") for word in parent.argv[:3]):
                return parent.uid in self._trusted
        return False

    def _may_be_asked(self, url: str) -> bool:
        try:
            parts = urlsplit(url)
        except ValueError:
            return False
        if parts.scheme == "unix":
            return self._owner(parts.path) in self._trusted
        return parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
