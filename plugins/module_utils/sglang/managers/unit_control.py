# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tells systemd to start, stop, kill, enable and disable the unit of a server, and how that went.

Source: systemctl(1).  Nothing here waits longer than it says, also when systemd does not answer.
"""

from __future__ import annotations

from typing import Callable

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.managers.unit_state import (
    UnitError,
    UnitState,
    read_unit,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import QUERY_TIMEOUT, Runner

# Reading all unit files anew may take a while on a busy host (seconds).
_RELOAD_TIMEOUT = 60.0
# Longer than any unit of ours has for its start: what a container left behind is removed first (seconds).
_START_TIMEOUT = 120.0


def _must(run: Runner, timeout: float, what: str, *words: str) -> None:
    done = run(["systemctl", "--no-ask-password", *words], timeout)
    if done.missing:
        raise UnitError("systemctl cannot be run: this host has no such program")
    if not done.ok:
        raise UnitError("%s failed: %s" % (what, done.reason.rstrip(".")))


def reload(run: Runner) -> None:
    """Let systemd read the unit files.  Raises UnitError."""
    _must(run, _RELOAD_TIMEOUT, "systemctl daemon-reload", "daemon-reload")


def start(name: str, run: Runner) -> None:
    """Start a unit and wait until its program was executed.  Raises UnitError."""
    _must(run, _START_TIMEOUT, "systemctl start %s" % name, "start", name)


def enable(name: str, run: Runner) -> None:
    """Have a unit started at boot.  Raises UnitError."""
    _must(run, _RELOAD_TIMEOUT, "systemctl enable %s" % name, "enable", name)


def disable(name: str, run: Runner) -> None:
    """Have a unit no longer started at boot.  Raises UnitError."""
    _must(run, _RELOAD_TIMEOUT, "systemctl disable %s" % name, "disable", name)


def forget_failures(name: str, run: Runner) -> None:
    """Let a unit be started again that has failed too often in too short a time."""
    run(["systemctl", "--no-ask-password", "reset-failed", name], QUERY_TIMEOUT)


def request_stop(name: str, run: Runner) -> None:
    """Ask systemd to stop a unit, and do not wait for it.  Raises UnitError."""
    _must(run, QUERY_TIMEOUT, "systemctl stop %s" % name, "stop", "--no-block", name)


def kill(name: str, run: Runner) -> None:
    """Send SIGKILL to all processes of a unit; what cannot be done so is left to others."""
    run(["systemctl", "--no-ask-password", "kill", "--signal=SIGKILL", name], QUERY_TIMEOUT)


def wait_until_idle(
    name: str, seconds: float, run: Runner, clock: Callable[[], float], sleep: Callable[[float], None]
) -> UnitState:
    """Wait until systemd runs nothing of a unit, or the time is over; its state then.  Raises UnitError."""
    deadline = clock() + seconds
    while True:
        state = read_unit(name, run)
        if state.idle or clock() >= deadline:
            return state
        sleep(min(0.2, max(0.0, deadline - clock())))
