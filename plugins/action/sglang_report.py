# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows a restart's report on the controller; see the module of the same name for its options."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import visible_value
from ansible_collections.inferops.sglang.plugins.plugin_utils.deploy_facts import known_facts
from ansible_collections.inferops.sglang.plugins.plugin_utils.machine_readable import is_for_programs
from ansible_collections.inferops.sglang.plugins.plugin_utils.restart_report import (
    as_servers,
    changes,
    columns,
    cut_off,
    dropped_out,
    entry,
    left,
    places,
    summary,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_words import left_line
from ansible_collections.inferops.sglang.plugins.plugin_utils.table import table

# Names of variables that a report is made of: nothing else is templated, as that costs time per host.
_FACTS = (
    "sglang_deploy_checked",
    "sglang_deploy_unchanged",
    "sglang_deploy_touched",
    "gpu_free_plan",
    "gpu_free_reclaimed",
    "gpu_free_proof",
    "sglang_deploy_ready",
    "sglang_deploy_release",
    "sglang_deploy_restored",
    "sglang_deploy_failure",
    "sglang_deploy_not_restored",
    "sglang_deploy_not_routed",
    "sglang_deploy_node",
)
_NARROWEST, _WIDEST = 100, 180


def _write(path: str, report: List[Dict[str, Any]], finished: bool) -> None:
    """Replace a file whole: a reader sees the old report or the new one, never half of it."""
    folder = os.path.dirname(os.path.abspath(path))
    descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".sglang_report.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump({"format": 1, "finished": finished, "written": _now(), "hosts": report}, stream, indent=2)
            stream.write("\n")
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _entry(
    host: str, facts: Mapping[str, Any], check_mode: bool, place: Tuple[str, Optional[int]], refused: str
) -> Dict[str, Any]:
    """One host's entry.  A host may answer anything; that is no reason to say nothing about the others."""
    try:
        return entry(host, facts, check_mode, place, refused)
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        item = cut_off(entry(host, {}), touched=True)
        story = "What its modules returned is not what they return (%s): it is not known what became of its server."
        return {**item, "failure": story % error}


def _show(report: List[Dict[str, Any]], everything: bool) -> None:
    """Print the table, what failed and the sum; also what changes, and what is left, at the end of a run."""
    width = min(max(shutil.get_terminal_size((_WIDEST, 24)).columns, _NARROWEST), _WIDEST)
    servers = as_servers(report)
    header, rows = columns(servers)
    blocks = [table(header, rows, width), *(changes(report) if everything else [])]
    blocks.extend(_failures(report))
    rest = left_line(left(report)) if everything else ""
    blocks.append(summary(servers) + ("\n" + rest if rest else "") + "\n")
    display, to_stderr = Display(), is_for_programs(constants.DEFAULT_STDOUT_CALLBACK)
    for block in blocks:
        display.display("\n" + block, stderr=to_stderr)


def _failures(report: List[Dict[str, Any]]) -> List[str]:
    """What failed, told once for all hosts of which the same is true."""
    hosts: Dict[str, List[str]] = {}
    for item in report:
        if item["failure"]:
            hosts.setdefault(item["failure"], []).append(item["host"])
    return ["%s: %s" % (", ".join(names), failure) for failure, names in hosts.items()]


class ActionModule(ActionBase):
    """Runs on the controller; opens no connection."""

    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        _validated, arguments = self.validate_argument_spec(
            {
                "hosts": {"type": "list", "elements": "str", "required": True},
                "at_work": {"type": "list", "elements": "str"},
                "final": {"type": "bool", "default": True},
                "shown": {"type": "list", "elements": "str"},
                "plan": {"type": "dict", "default": {}},
                "refused": {"type": "dict", "default": {}},
                "lost": {"type": "list", "elements": "str", "default": []},
                "path": {"type": "path"},
            },
            required_by={"at_work": ["path"]},
        )
        at_work: Optional[List[str]] = arguments["at_work"]
        finished = at_work is None and arguments["final"]
        check_mode = bool(self._task.check_mode)
        variables = task_vars or {}
        report = self._report(arguments, variables["hostvars"], check_mode)
        # A failure is caught and remembered in the playbooks; only a lost connection takes a host out of the play.
        gone = set(variables.get("ansible_play_hosts_all", ())) - set(variables.get("ansible_play_hosts", ()))
        gone.update(arguments["lost"])
        report = [dropped_out(item) if item["host"] in gone else item for item in report]
        shown = [item for item in report if arguments["shown"] is None or item["host"] in arguments["shown"]]
        if at_work is None and shown:
            _show(shown, everything=finished and len(shown) == len(report))
        if arguments["path"] and not check_mode:
            try:
                _write(arguments["path"], report, finished)
            except OSError as exc:
                raise AnsibleActionFail(
                    "path: %s cannot be written: %s. Give a file in a folder that you may write to."
                    % (arguments["path"], exc.strerror)
                ) from exc
        result.update(changed=False, finished=finished, report=report)
        return result

    def _report(
        self, arguments: Mapping[str, Any], hostvars: Mapping[str, Any], check_mode: bool
    ) -> List[Dict[str, Any]]:
        """One entry for each host.  Raises AnsibleActionFail for one that is not in the inventory."""
        at_work: Optional[List[str]] = arguments["at_work"]
        place = places(arguments["plan"])
        report = []
        for host in arguments["hosts"]:
            if host not in hostvars:
                raise AnsibleActionFail("hosts: %r is not in the inventory. Give names of inventory hosts." % host)
            variables = hostvars[host]
            # Before anything is touched, what is known is of an earlier restart in the same run of Ansible.
            known = at_work is None or len(at_work) > 0
            facts = known_facts(variables, _FACTS) if known else {}
            refused = arguments["refused"].get(host, "")
            item = visible_value(_entry(host, facts, check_mode, place.get(host, ("", None)), refused))
            if not known:
                item = cut_off(item, touched=False)
            elif at_work and host in at_work and place.get(host, ("", 0))[1] is not None:
                item = cut_off(item, touched=True)
            report.append(item)
        return report
