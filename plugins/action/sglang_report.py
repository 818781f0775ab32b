# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows a restart's report on the controller; see the module of the same name for its options."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from typing import Any, Dict, List, Optional

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.inferops.sglang.plugins.plugin_utils.restart_report import (
    HEADER,
    cells,
    changes,
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


def _write(path: str, report: List[Dict[str, Any]]) -> None:
    """Replace a file whole: a reader sees the old report or the new one, never half of it."""
    folder = os.path.dirname(os.path.abspath(path))
    descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".sglang_report.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump({"format": 1, "hosts": report}, stream, indent=2)
            stream.write("\n")
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


class ActionModule(ActionBase):
    """Runs on the controller; opens no connection."""

    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        _validated, arguments = self.validate_argument_spec(
            {"hosts": {"type": "list", "elements": "str", "required": True}, "path": {"type": "path"}}
        )
        hostvars = (task_vars or {})["hostvars"]
        check_mode = bool(self._task.check_mode)
        report = []
        for host in arguments["hosts"]:
            if host not in hostvars:
                raise AnsibleActionFail("hosts: %r is not in the inventory. Give names of inventory hosts." % host)
            variables = hostvars[host]
            facts = {name: variables[name] for name in _FACTS if name in variables}
            report.append(entry(host, facts, check_mode))

        width = min(max(shutil.get_terminal_size((_WIDEST, 24)).columns, _NARROWEST), _WIDEST)
        display = Display()
        display.display("")
        display.display(table(HEADER, [cells(item) for item in report], width))
        for block in changes(report):
            display.display("\n" + block)
        for item in report:
            if item["failure"]:
                display.display("\n%s: %s" % (item["host"], item["failure"]))
        display.display("\n%s\n" % summary(report))

        if arguments["path"] and not check_mode:
            try:
                _write(arguments["path"], report)
            except OSError as exc:
                raise AnsibleActionFail(
                    "path: %s cannot be written: %s. Give a file in a folder that you may write to."
                    % (arguments["path"], exc.strerror)
                ) from exc
        result.update(changed=False, report=report)
        return result
