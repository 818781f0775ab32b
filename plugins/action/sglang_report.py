# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows a restart's report on the controller; see the module of the same name for its options."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from typing import Any, Dict, List, Mapping, Optional

from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.inferops.sglang.plugins.plugin_utils.machine_readable import is_for_programs
from ansible_collections.inferops.sglang.plugins.plugin_utils.restart_report import (
    HEADER,
    cells,
    changes,
    cut_off,
    dropped_out,
    entry,
    summary,
)
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
    "sglang_deploy_failure",
    "sglang_deploy_not_restored",
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


def _show(report: List[Dict[str, Any]]) -> None:
    """Print the table, what changes, what failed and the sum."""
    width = min(max(shutil.get_terminal_size((_WIDEST, 24)).columns, _NARROWEST), _WIDEST)
    blocks = [table(HEADER, [cells(item) for item in report], width), *changes(report)]
    blocks.extend("%s: %s" % (item["host"], item["failure"]) for item in report if item["failure"])
    blocks.append(summary(report) + "\n")
    display, to_stderr = Display(), is_for_programs(constants.DEFAULT_STDOUT_CALLBACK)
    for block in blocks:
        display.display("\n" + block, stderr=to_stderr)


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
                "path": {"type": "path"},
            },
            required_by={"at_work": ["path"]},
        )
        at_work: Optional[List[str]] = arguments["at_work"]
        check_mode = bool(self._task.check_mode)
        variables = task_vars or {}
        report = self._report(arguments["hosts"], at_work, variables["hostvars"], check_mode)
        # A failure is caught and remembered in the playbooks; only a lost connection takes a host out of the play.
        gone = set(variables.get("ansible_play_hosts_all", ())) - set(variables.get("ansible_play_hosts", ()))
        report = [dropped_out(item) if item["host"] in gone else item for item in report]
        if at_work is None:
            _show(report)
        if arguments["path"] and not check_mode:
            try:
                _write(arguments["path"], report, finished=at_work is None)
            except OSError as exc:
                raise AnsibleActionFail(
                    "path: %s cannot be written: %s. Give a file in a folder that you may write to."
                    % (arguments["path"], exc.strerror)
                ) from exc
        result.update(changed=False, finished=at_work is None, report=report)
        return result

    def _report(
        self, hosts: List[str], at_work: Optional[List[str]], hostvars: Mapping[str, Any], check_mode: bool
    ) -> List[Dict[str, Any]]:
        """One entry for each host.  Raises AnsibleActionFail for one that is not in the inventory."""
        report = []
        for host in hosts:
            if host not in hostvars:
                raise AnsibleActionFail("hosts: %r is not in the inventory. Give names of inventory hosts." % host)
            variables = hostvars[host]
            # Before anything is touched, what is known is of an earlier restart in the same run of Ansible.
            known = at_work is None or len(at_work) > 0
            facts = {name: variables[name] for name in _FACTS if name in variables} if known else {}
            item = entry(host, facts, check_mode)
            if not known:
                item = cut_off(item, touched=False)
            elif at_work and host in at_work:
                item = cut_off(item, touched=True)
            report.append(item)
        return report
