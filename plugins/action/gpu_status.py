# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows the status of a fleet on the controller; see the module of the same name for its options."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
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

FORMAT = 1
# What the playbook registers on the hosts, and the variable of the inventory that says who is compared with whom.
_GPUS, _SERVERS = "gpu_status_gpus", "gpu_status_servers"
_GROUP = "sglang_replica_group"
_EVERYBODY = "all"
_NARROWEST, _WIDEST = 100, 180
# Of a file that was not there before: names of users and processes are not for everybody.
_MODE = 0o600


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
        for option in ("json", "html"):
            if arguments[option]:
                _check_target(option, arguments[option])
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
        if arguments["json"]:
            _write("json", arguments["json"], json.dumps({"format": FORMAT, "written": written, **report}, indent=2))
        if arguments["html"]:
            # jinja2 is part of Ansible, and a page is rarely wanted.
            from ansible_collections.inferops.sglang.plugins.plugin_utils.status_page import page

            _write("html", arguments["html"], page(hosts, found, report["summary"], written))
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


def _show(report: Mapping[str, Any], detail: str) -> None:
    """Print all of it as whole lines."""
    width = min(max(shutil.get_terminal_size((_WIDEST, 24)).columns, _NARROWEST), _WIDEST)
    blocks = status_text.render(report["hosts"], report["differences"], report["summary"], detail, width)
    display, to_stderr = Display(), is_for_programs(constants.DEFAULT_STDOUT_CALLBACK)
    for block in blocks:
        display.display("\n" + block, stderr=to_stderr)
    display.display("", stderr=to_stderr)


def _check_target(option: str, path: str) -> None:
    """Refuse a file that cannot be written before any host is asked.  Raises AnsibleActionFail."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise AnsibleActionFail(
            "%s: %s cannot be written: there is no folder %s. Make it, or give another file." % (option, path, folder)
        )
    if os.path.isdir(path):
        raise AnsibleActionFail("%s: %s is a folder. Give a file in it." % (option, path))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise AnsibleActionFail(
            "%s: %s cannot be written: the folder %s may not be written to. Give a file in another folder."
            % (option, path, folder)
        )


def _write(option: str, path: str, content: str) -> None:
    """Replace a file whole: a reader sees the old one or the new one, never half of it.  Raises AnsibleActionFail."""
    folder = os.path.dirname(os.path.abspath(path))
    try:
        try:
            mode = stat.S_IMODE(os.stat(path).st_mode)
        except FileNotFoundError:
            mode = _MODE
        descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".gpu_status.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(content + "\n")
                os.fchmod(stream.fileno(), mode)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as exc:
        raise AnsibleActionFail(
            "%s: %s cannot be written: %s. Give a file in a folder that you may write to."
            % (option, path, exc.strerror)
        ) from exc
