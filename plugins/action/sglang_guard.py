# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides by load which profile replica groups are to run; see the module of the same name for its options."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars

from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import visible
from ansible_collections.inferops.sglang.plugins.plugin_utils import guard_state
from ansible_collections.inferops.sglang.plugins.plugin_utils.guard_decision import (
    BUSY,
    Memory,
    Verdict,
    decide,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.guard_inventory import (
    ALSO_READ,
    SETTINGS,
    Guarded,
    group_of,
    guarded_groups,
    pattern_of,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.guard_look import SERVING, load_of, read_look
from ansible_collections.inferops.sglang.plugins.plugin_utils.guard_profile import fitting, in_words
from ansible_collections.inferops.sglang.plugins.plugin_utils.guard_words import line
from ansible_collections.inferops.sglang.plugins.plugin_utils.machine_readable import is_for_programs
from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_settings import RolloutError
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_profiles_file import read_profiles

# What the playbook registers on the hosts.
_SERVERS = "sglang_guard_servers"
# They would win over what is decided for each host, and with -e they do.
_NOT_BY_HAND = {
    "sglang_hosts": "the guard says itself which hosts are restarted: give sglang_guard_hosts",
    "sglang_spec_profile": "the guard chooses it: leave it out, or restart by hand with restart_eagle3",
}
_LONGEST_LINE = 2000  # characters


class ActionModule(ActionBase):
    """Runs on the controller; opens no connection."""

    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        _validated, arguments = self.validate_argument_spec(
            {
                "step": {"type": "str", "choices": ["check", "decide", "finish"], "default": "decide"},
                "hosts": {"type": "list", "elements": "str", "default": []},
                "candidates": {"type": "list", "elements": "str", "default": []},
                "pattern": {"type": "raw", "default": "all"},
                "state": {"type": "path"},
                "commit": {"type": "bool", "default": True},
            }
        )
        variables = task_vars or {}
        result["changed"] = False
        try:
            path = guard_state.prepare(arguments["state"] or guard_state.default_path(), own=not arguments["state"])
            if arguments["step"] == "finish":
                self._finish(path)
                return result
            groups = self._groups(arguments["hosts"], variables)
            if arguments["step"] == "decide":
                result.update(self._decide(groups, arguments, path, variables))
        except RolloutError as error:
            raise AnsibleActionFail("%s Nothing was stopped." % error) from None
        return result

    def _groups(self, hosts: Sequence[str], variables: Mapping[str, Any]) -> List[Guarded]:
        """Raises RolloutError and AnsibleActionFail."""
        by_hand = load_extra_vars(self._loader)
        for name, remedy in _NOT_BY_HAND.items():
            if name in by_hand:
                raise AnsibleActionFail("%s is given with -e: %s. Nothing was stopped." % (name, remedy))
        known = {host: self._read(variables, host, SETTINGS + ALSO_READ) for host in hosts}
        return guarded_groups(hosts, known, read_profiles)

    def _decide(
        self, groups: Sequence[Guarded], arguments: Mapping[str, Any], path: str, variables: Mapping[str, Any]
    ) -> Dict[str, Any]:
        # Who is at work is the playbook, and this is a child of it.
        now, pid = time.time(), os.getppid()
        commit = arguments["commit"] and not self._task.check_mode
        with guard_state.locked(path):
            state = guard_state.read(path)
            busy = guard_state.is_at_work(state.run, pid, now)
            verdicts = {}
            for group in groups:
                memory = state.groups.get(group.name, Memory())
                verdict = self._verdict(group, memory, variables, now)
                if busy and verdict.switches:
                    run = state.run or guard_state.Run()
                    told = "PID %d of %s" % (run.pid, visible(run.node))
                    verdict = replace(verdict, reason=BUSY, memory=memory, detail=told)
                verdicts[group.name] = verdict
                state.groups[group.name] = verdict.memory
            switches = any(verdict.switches for verdict in verdicts.values())
            if commit:
                if switches:
                    state.run = guard_state.this_run(now, pid)
                elif not busy:
                    state.run = None
                guard_state.write(path, state)
        _say("", *(line(group.name, verdicts[group.name], group.settings) for group in groups), "")
        return {**self._result(groups, verdicts, arguments, variables), "state": path}

    def _verdict(self, group: Guarded, memory: Memory, variables: Mapping[str, Any], now: float) -> Verdict:
        hostvars = variables["hostvars"]
        looks = []
        for host in group.hosts:
            # As it was registered: what a host returned is never a template.
            raw = hostvars.raw_get(host) if hasattr(hostvars, "raw_get") else hostvars[host]
            looks.append(read_look(host, raw.get(_SERVERS), group.instances[host], group.statistic))
        serving = [look for look in looks if look.state == SERVING and look.node_rank == 0]
        running = {look.host: fitting(look.effective, group.profiles[look.host]) for look in serving}
        verdict = decide(looks, running, load_of(serving, group.statistic), group.settings, memory, now)
        strangers = [look for look in serving if not running[look.host]]
        if verdict.detail and strangers and verdict.detail.startswith(strangers[0].host + " runs none"):
            return replace(verdict, detail="%s (%s)" % (verdict.detail, in_words(strangers[0].effective)))
        return verdict

    def _result(
        self,
        groups: Sequence[Guarded],
        verdicts: Mapping[str, Verdict],
        arguments: Mapping[str, Any],
        variables: Mapping[str, Any],
    ) -> Dict[str, Any]:
        profiles = {host: verdict.wanted for verdict in verdicts.values() if verdict.switches for host in verdict.hosts}
        switched = {name for name, verdict in verdicts.items() if verdict.switches}
        left_out = []
        if switched:
            for host in dict.fromkeys([*arguments["hosts"], *arguments["candidates"]]):
                of_group = group_of(self._read(variables, host, ("sglang_replica_group",)))
                # One that somebody has stopped stays so; those that --limit leaves out are left to it.
                if host not in profiles and (of_group not in switched or host in arguments["hosts"]):
                    left_out.append(host)
        shown = {}
        for group in groups:
            verdict = verdicts[group.name]
            shown[group.name] = {
                "load": None if verdict.load is None else round(verdict.load.value, 2),
                "load_complete": verdict.load is not None and verdict.load.complete,
                "present": verdict.present,
                "wanted": verdict.wanted,
                "switch": verdict.switches,
                "reason": verdict.reason,
                "message": line(group.name, verdict, group.settings),
                "hosts": list(verdict.hosts),
            }
        return {
            "groups": shown,
            "switch": bool(profiles),
            "profiles": profiles,
            "pattern": pattern_of(arguments["pattern"], list(profiles), left_out),
        }

    def _finish(self, path: str) -> None:
        """Nobody is at work any more.  Raises RolloutError."""
        if self._task.check_mode:
            return
        with guard_state.locked(path):
            state = guard_state.read(path)
            if state.run is not None and state.run.pid == os.getppid() and state.run.node == os.uname().nodename:
                state.run = None
                guard_state.write(path, state)

    def _read(self, variables: Mapping[str, Any], host: str, wanted: Tuple[str, ...]) -> Dict[str, Any]:
        """Some variables of a host: those that are set, and not empty.  Raises AnsibleActionFail."""
        hostvars = variables["hostvars"]
        if host not in hostvars:
            raise AnsibleActionFail("hosts: %r is not in the inventory. Give names of inventory hosts." % host)
        of_host = hostvars[host]
        found = {}
        for name in wanted:
            if name not in of_host:
                continue
            try:
                value = of_host[name]
            except Exception as exc:
                raise AnsibleActionFail("%s of the host %s cannot be read: %s" % (name, host, exc)) from exc
            if value not in (None, "", {}, []):
                found[name] = value
        return found


def _say(*lines: str) -> None:
    to_stderr = is_for_programs(constants.DEFAULT_STDOUT_CALLBACK)
    for text in lines:
        # It may quote a host, which must not move the terminal.
        Display().display(visible(text, _LONGEST_LINE), stderr=to_stderr)
