# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows the status of a fleet on the controller; see the module of the same name for its options."""

from __future__ import annotations

import json
import shutil
import time
from typing import Any, Dict, List, Mapping, Optional

from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.inferops.sglang.plugins.plugin_utils import status_text
from ansible_collections.inferops.sglang.plugins.plugin_utils.machine_readable import is_for_programs
from ansible_collections.inferops.sglang.plugins.plugin_utils.status_differences import (
    CONDITIONS,
    conditions,
    differences,
    differing_columns,
    summary,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.status_host import host_entry
from ansible_collections.inferops.sglang.plugins.plugin_utils.whole_file import FileError, check_target, replace

FORMAT = 1
# What the playbook registers on the hosts, and the variable of the inventory that says who is compared with whom.
_GPUS, _SERVERS = "gpu_status_gpus", "gpu_status_servers"
_GROUP = "sglang_replica_group"
_EVERYBODY = "all"
_NARROWEST, _WIDEST = 100, 180


class ActionModule(ActionBase):
    """Runs on the controller; opens no connection."""

    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        _validated, arguments = self.validate_argument_spec(
            {
                "hosts": {"type": "list", "elements": "str", "required": True},
                "detail": {"type": "str", "choices": list(status_text.DETAILS), "default": status_text.AUTO},
                "json": {"type": "path"},
                "html": {"type": "path"},
                "fail_on": {"type": "list", "elements": "str", "choices": list(CONDITIONS), "default": []},
            }
        )
        try:
            for option in ("json", "html"):
                if arguments[option]:
                    check_target(option, arguments[option])
        except FileError as exc:
            raise AnsibleActionFail(str(exc)) from exc
        result["changed"] = False
        if not arguments["hosts"]:
            return result  # the options were checked, and that was it
        hosts = self._entries(arguments["hosts"], (task_vars or {})["hostvars"])
        found = differences(hosts)
        odd = differing_columns(found)
        for entry in hosts:
            entry["differs"] = odd.get(entry["host"], [])
        written = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        report: Dict[str, Any] = {"hosts": hosts, "differences": found, "summary": summary(hosts, found)}
        _show(report, arguments["detail"])
        _write(arguments, report, written)
        result.update(report)
        held = conditions(hosts, found)
        wrong = {name: held[name] for name in arguments["fail_on"] if held[name]}
        if wrong:
            told = "; ".join("%s: %s" % (name, status_text.named(names)) for name, names in wrong.items())
            result.update(failed=True, msg="The fleet is not as fail_on asks for. %s" % told)
        return result

    @staticmethod
    def _entries(names: List[str], hostvars: Mapping[str, Any]) -> List[Dict[str, Any]]:
        """One entry for each host.  Raises AnsibleActionFail for one that is not in the inventory."""
        entries = []
        for host in names:
            if host not in hostvars:
                raise AnsibleActionFail("hosts: %r is not in the inventory. Give names of inventory hosts." % host)
            # As they were registered: what a host returned is never a template.
            raw = hostvars.raw_get(host) if hasattr(hostvars, "raw_get") else hostvars[host]
            group = hostvars[host].get(_GROUP) if _GROUP in raw else None
            entries.append(host_entry(host, str(group or _EVERYBODY), raw.get(_GPUS), raw.get(_SERVERS)))
        return entries


def _write(arguments: Mapping[str, Any], report: Mapping[str, Any], written: str) -> None:
    """Write the files that are wanted.  Raises AnsibleActionFail."""
    try:
        if arguments["json"]:
            content = json.dumps({"format": FORMAT, "written": written, **report}, indent=2)
            replace("json", arguments["json"], content + "\n")
        if arguments["html"]:
            # jinja2 is part of Ansible, and a page is rarely wanted.
            from ansible_collections.inferops.sglang.plugins.plugin_utils.status_page import page

            content = page(report["hosts"], report["differences"], report["summary"], written)
            replace("html", arguments["html"], content + "\n")
    except FileError as exc:
        raise AnsibleActionFail(str(exc)) from exc


def _show(report: Mapping[str, Any], detail: str) -> None:
    """Print all of it as whole lines."""
    width = min(max(shutil.get_terminal_size((_WIDEST, 24)).columns, _NARROWEST), _WIDEST)
    blocks = status_text.render(report["hosts"], report["differences"], report["summary"], detail, width)
    display, to_stderr = Display(), is_for_programs(constants.DEFAULT_STDOUT_CALLBACK)
    for block in blocks:
        display.display("\n" + block, stderr=to_stderr)
    display.display("", stderr=to_stderr)
