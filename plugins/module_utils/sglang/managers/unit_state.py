# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What systemd says about the unit of a server.

Source: `systemctl show`, whose properties are described in org.freedesktop.systemd1(5).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Dict, Optional

from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import QUERY_TIMEOUT, Runner

# How long the journal is read (seconds): it may be large, and on a slow disk.
_JOURNAL_TIMEOUT = 30.0

PROPERTIES = (
    "LoadState",
    "ActiveState",
    "SubState",
    "MainPID",
    "Result",
    "ExecMainCode",
    "ExecMainStatus",
    "NRestarts",
    "InvocationID",
    "ControlGroup",
    "StandardOutput",
    "UnitFileState",
    "TimeoutStopUSec",
)

# ExecMainCode holds si_code of waitid(2): how the main process ended.
_EXITED, _KILLED, _DUMPED = 1, 2, 3


class UnitError(Exception):
    """The state of a unit could not be read; the message says why."""


@dataclass(frozen=True)
class UnitState:
    """One look at a unit.

    main_pid is 0 where no main process runs; exec_status is the exit status of the main process that
    ended last, or the number of the signal that ended it (exec_code tells which: 1, or 2 and 3);
    restarts counts the automatic restarts since somebody last started the unit; file_state says whether
    it is started at boot ("enabled"); stop_timeout is how long it has to stop, in systemd's words.
    """

    name: str
    load: str
    active: str
    sub: str
    main_pid: int
    result: str
    exec_code: int
    exec_status: int
    restarts: int
    invocation: str
    control_group: str
    output: str
    file_state: str = ""
    stop_timeout: str = ""

    @property
    def exists(self) -> bool:
        """Whether systemd could load the unit."""
        return self.load == "loaded"

    @property
    def dead(self) -> bool:
        """Whether its main process is gone and the unit knows it (also between two automatic restarts)."""
        if self.sub in ("auto-restart", "auto-restart-queued"):
            return True
        return self.active in ("failed", "inactive") or (self.active == "deactivating" and self.main_pid == 0)

    @property
    def idle(self) -> bool:
        """Whether systemd runs nothing of it and will not by itself."""
        return self.active in ("failed", "inactive")

    @property
    def killed(self) -> bool:
        """Whether SIGKILL, possibly of the kernel's out-of-memory killer, ended the main process."""
        return self.result == "oom-kill" or (self.exec_code in (_KILLED, _DUMPED) and self.exec_status == 9)

    @property
    def exit_status(self) -> Optional[int]:
        """Exit status of the main process that ended last, 128 + N after signal N; None before any ended."""
        if self.exec_code == _EXITED:
            return self.exec_status
        if self.exec_code in (_KILLED, _DUMPED):
            return 128 + self.exec_status
        return None

    def describe(self) -> str:
        """The state in a few words, with the result and how the main process ended."""
        words = "the unit %s is %s (%s)" % (self.name, self.active, self.sub)
        if self.result not in ("", "success"):
            words += ", result %s" % self.result
        if self.exec_code == _EXITED:
            words += ", its main process ended with status %d" % self.exec_status
        elif self.exec_code in (_KILLED, _DUMPED):
            words += ", its main process was ended by signal %d" % self.exec_status
        return words


def parse_show(name: str, text: str) -> UnitState:
    """Parse the output of `systemctl show`.  Raises UnitError where a property is missing or no number."""
    values: Dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            values[key] = value

    def number(key: str) -> int:
        # systemd before 235 does not count restarts
        raw = values.get(key, "0" if key == "NRestarts" else "")
        try:
            return int(raw)
        except ValueError:
            raise UnitError("systemctl show %s gives %s=%r, which is no number" % (name, key, raw)) from None

    for key in ("LoadState", "ActiveState", "SubState"):
        if not values.get(key):
            raise UnitError("systemctl show %s does not give %s" % (name, key))
    return UnitState(
        name=name,
        load=values["LoadState"],
        active=values["ActiveState"],
        sub=values["SubState"],
        main_pid=number("MainPID"),
        result=values.get("Result", ""),
        exec_code=number("ExecMainCode"),
        exec_status=number("ExecMainStatus"),
        restarts=number("NRestarts"),
        invocation=values.get("InvocationID", ""),
        control_group=values.get("ControlGroup", ""),
        output=values.get("StandardOutput", ""),
        file_state=values.get("UnitFileState", ""),
        stop_timeout=values.get("TimeoutStopUSec", ""),
    )


def read_unit(name: str, run: Runner) -> UnitState:
    """Ask systemd for the state of a unit.  Raises UnitError."""
    done = run(["systemctl", "show", "--no-pager", "--property", ",".join(PROPERTIES), name], QUERY_TIMEOUT)
    if done.missing:
        raise UnitError("systemctl cannot be run: this host has no such program")
    if not done.ok:
        raise UnitError("systemctl show %s failed: %s" % (name, done.reason))
    return parse_show(name, done.out)


def last_invocation(name: str, run: Runner) -> str:
    """The identifier of the unit's last start, from the journal ("" where it does not tell).

    systemd itself forgets a unit that ended as it is allowed to, and SGLang ends with SIGKILL also when
    it dies of an error.
    """
    done = run(
        ["journalctl", "--quiet", "--no-pager", "--unit", name, "--lines=1", "--output=json"],
        _JOURNAL_TIMEOUT,
    )
    try:
        entry = json.loads(done.out) if done.ok else {}
    except ValueError:
        return ""
    if not isinstance(entry, dict):
        return ""
    return str(entry.get("INVOCATION_ID") or entry.get("_SYSTEMD_INVOCATION_ID") or "")


def journal_of(invocation: str, run: Runner, lines: int = 4000) -> str:
    """What a unit logged in one of its runs (or "" where the journal cannot be read)."""
    if not invocation:
        return ""
    own = "_SYSTEMD_INVOCATION_ID=" + invocation
    # What systemd itself says about the unit carries the identifier in another field.
    about = "INVOCATION_ID=" + invocation
    done = run(
        ["journalctl", "--quiet", "--no-pager", "--all", "--output=cat", "--lines=%d" % lines, own, "+", about],
        _JOURNAL_TIMEOUT,
    )
    return done.out if done.ok else ""


def sync_journal(run: Runner) -> None:
    """Wait until the journal has what processes wrote so far, as far as that can be had."""
    run(["journalctl", "--sync"], QUERY_TIMEOUT)
