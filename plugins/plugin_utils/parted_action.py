# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a module in parts, and says between them how far it is.

What the module waits for goes on on the host in any case: what is lost with a connection is at most one part.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Dict, List, Mapping, Optional

from ansible import constants
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import visible
from ansible_collections.inferops.sglang.plugins.plugin_utils.machine_readable import is_for_programs
from ansible_collections.inferops.sglang.plugins.plugin_utils.start_progress_lines import (
    interval_for,
    label,
    lost_line,
)

_DEFAULT_INTERVAL = 10.0
# How often in a row a lost connection is tried again, and after how long at first (seconds, twice as long each time).
_ATTEMPTS = 3
_FIRST_PAUSE = 5.0
LONGEST_LINE = 500  # characters
# Only of use between two parts.
_INTERNAL = ("waiting", "progress", "resume")


class PartedAction(ActionBase):
    """An action for a module that has the options progress_interval, return_after and resume.

    It returns `waiting`, `progress` and `resume` where it is not done, and goes on with `resume`.
    """

    _supports_check_mode = True
    _supports_async = True
    module = ""  # its full name

    def progress_line(self, who: str, progress: Mapping[str, Any]) -> str:
        """What is said between two parts; progress is the module's."""
        raise NotImplementedError

    def told_every(self, arguments: Mapping[str, Any]) -> float:
        """Seconds between two lines; 0 for none."""
        return seconds_of(arguments.get("progress_interval", _DEFAULT_INTERVAL))

    def instance_of(self, arguments: Mapping[str, Any]) -> str:
        """Which server of the host is waited for."""
        return str(arguments.get("instance") or "main")

    def in_parts_all_the_same(self, arguments: Mapping[str, Any]) -> bool:
        """Whether it runs in parts also where nothing is to be said between them."""
        return False

    def given_up(self, part: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        """The result where nobody waits for the rest any more, after a part; None to go on."""
        return None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._left_behind: List[str] = []
        self.who = ""

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        arguments = dict(self._task.args)
        interval = self.told_every(arguments)
        by_hand = arguments.get("return_after") not in (None, 0, "0") or arguments.get("resume") is not None
        silent = not interval and not by_hand and self.in_parts_all_the_same(arguments)
        if self._task.async_val or by_hand or not (interval or silent):
            # One part; a wrong interval is for the module to refuse.
            wrap_async = bool(self._task.async_val) and not self._connection.has_native_async
            result.update(
                self._execute_module(
                    module_name=self.module, module_args=arguments, task_vars=variables, wrap_async=wrap_async
                )
            )
            return result
        arguments["return_after"] = interval_for(interval or _DEFAULT_INTERVAL, _hosts_at_a_time(variables))
        self.who = label(
            str(variables.get("inventory_hostname", self._play_context.remote_addr)),
            self.instance_of(arguments),
            self._task.delegate_to,
        )
        result.update(_shown(self.all_parts(arguments, variables, silent)))
        self._tidy_up()
        return result

    def all_parts(self, arguments: Dict[str, Any], variables: Dict[str, Any], silent: bool) -> Dict[str, Any]:
        """Part after part until there is a result.  Raises AnsibleConnectionFailure."""
        resume: Optional[Mapping[str, Any]] = None
        while True:
            # The module's arguments are added to by _execute_module.
            given = dict(arguments) if resume is None else dict(arguments, resume=resume)
            part = self._part(given, variables)
            if not part.get("waiting") or part.get("failed") or not isinstance(part.get("resume"), Mapping):
                return part
            end = self.given_up(part)
            if end is not None:
                return end
            resume = part["resume"]
            if not silent:
                _say(self.progress_line(self.who, part.get("progress") or {}))

    def _part(self, arguments: Dict[str, Any], variables: Dict[str, Any]) -> Dict[str, Any]:
        """One part, which is tried again where the connection is lost.  Raises AnsibleConnectionFailure in the end."""
        pause = _FIRST_PAUSE
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                part: Dict[str, Any] = self._execute_module(
                    module_name=self.module, module_args=dict(arguments), task_vars=variables
                )
                if not part.get("unreachable"):
                    return part
                reason = str(part.get("msg") or "unreachable")
            except AnsibleConnectionFailure as error:
                reason = str(error)
            _say(lost_line(self.who, reason, attempt, _ATTEMPTS, pause))
            time.sleep(pause)
            pause *= 2
            self._forget_connection()
        last: Dict[str, Any] = self._execute_module(
            module_name=self.module, module_args=dict(arguments), task_vars=variables
        )
        return last

    def _forget_connection(self) -> None:
        """Connect anew, and expect nothing of what lay on the host: it may have been booted."""
        shell = self._connection._shell
        if shell.tmpdir:
            self._left_behind.append(shell.tmpdir)
        shell.tmpdir = None
        # Not every connection can be reset, and one that is lost may fail to.
        with suppress(Exception):
            self._connection.reset()

    def _tidy_up(self) -> None:
        """Remove the folders of lost connections, which hold the arguments of the module, a key included."""
        shell = self._connection._shell
        for folder in self._left_behind:
            current = shell.tmpdir
            # The wait is over, and its result counts.
            with suppress(Exception):
                self._remove_tmp_path(folder)
            shell.tmpdir = current


def seconds_of(value: Any) -> float:
    """An interval; 0 where it is no number of seconds."""
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return 0.0
    return seconds if 0 < seconds < float("inf") else 0.0


def _hosts_at_a_time(variables: Mapping[str, Any]) -> int:
    """How many hosts of the play are waited for side by side."""
    hosts = len(variables.get("ansible_play_batch") or ()) or 1
    try:
        return min(hosts, int(variables.get("ansible_forks") or constants.DEFAULT_FORKS))
    except (TypeError, ValueError):
        return hosts


def _say(line: str) -> None:
    # It may quote a host, which must not move the terminal.
    Display().display(visible(line, LONGEST_LINE), stderr=is_for_programs(constants.DEFAULT_STDOUT_CALLBACK))


def _shown(part: Dict[str, Any]) -> Dict[str, Any]:
    """A result without what only the parts among themselves need."""
    for name in _INTERNAL:
        part.pop(name, None)
    given = part.get("invocation", {}).get("module_args", {}) if isinstance(part.get("invocation"), dict) else {}
    for name in ("resume", "return_after"):
        if isinstance(given, dict):
            given.pop(name, None)
    return part
