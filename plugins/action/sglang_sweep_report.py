# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes the report of a sweep on the controller; see the module of the same name for its options."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import SENTENCE, visible
from ansible_collections.inferops.sglang.plugins.plugin_utils.machine_readable import is_for_programs
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.analysis import analyse
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report import plots, source
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.csv_lines import csv_of
from ansible_collections.inferops.sglang.plugins.plugin_utils.whole_file import (
    FileError,
    check_target,
    differs,
    replace,
)

_JSON, _CSV, _HTML = "results.json", "results.csv", "report.html"
_LONGEST_TITLE = 200


class ActionModule(ActionBase):
    """Runs on the controller; opens no connection."""

    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        _validated, arguments = self.validate_argument_spec(
            {
                "dir": {"type": "path"},
                "results": {"type": "path"},
                "dest": {"type": "path"},
                "title": {"type": "str", "default": ""},
                "html": {"type": "bool", "default": True},
            },
            mutually_exclusive=[("dir", "results")],
            required_one_of=[("dir", "results")],
        )
        try:
            folder = _dest(arguments)
            document, problems = (
                source.from_folder(arguments["dir"]) if arguments["dir"] else source.from_results(arguments["results"])
            )
        except (source.SourceError, FileError) as exc:
            raise AnsibleActionFail(str(exc)) from exc
        analysis: Mapping[str, Any] = analyse(document)
        contents = {
            _JSON: json.dumps({**document, "analysis": analysis}, indent=1, allow_nan=False) + "\n",
            _CSV: csv_of(document),
        }
        missing = plots.missing() if arguments["html"] else ""
        if arguments["html"] and not missing:
            # jinja2 is part of Ansible; neither it nor matplotlib is imported where no page is wanted.
            from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.page import page

            title = visible(arguments["title"], _LONGEST_TITLE)
            contents[_HTML] = page(document, analysis, problems, title, arguments["dir"] or "") + "\n"
        files, changed = _write(folder, contents, write=not self._task.check_mode)
        result.update(
            changed=changed,
            files=files,
            summary=analysis["summary"],
            decision=analysis["decision"]["ranges"],
            crossovers=analysis["crossovers"],
            adaptive=analysis["adaptive"],
            conditions=[condition["message"] for condition in analysis["conditions"]],
            left_out=problems,
        )
        if missing:
            result.update(
                failed=True,
                msg="html: %s %s and %s have everything but the plots: run this again once it is installed."
                % (missing, _JSON, _CSV),
            )
        _show(result)
        return result


def _dest(arguments: Mapping[str, Any]) -> str:
    """The folder for the files.  Raises FileError where it cannot be written to."""
    given = arguments["dest"] or arguments["dir"]
    option = "dest" if arguments["dest"] else "dir" if arguments["dir"] else "results"
    folder = os.path.abspath(given) if given else os.path.dirname(os.path.abspath(arguments["results"]))
    for name in (_JSON, _CSV, _HTML):
        check_target(option, os.path.join(folder, name))
    return folder


def _write(folder: str, contents: Mapping[str, str], write: bool) -> Tuple[Dict[str, str], bool]:
    """The files by their kind, and whether one of them was, or would be, another one.  Raises AnsibleActionFail."""
    files, changed = {}, False
    for name, content in contents.items():
        path = os.path.join(folder, name)
        files[name.rpartition(".")[2]] = path
        if not differs(path, content):
            continue
        changed = True
        if write:
            try:
                replace("dest", path, content)
            except FileError as exc:
                raise AnsibleActionFail(str(exc)) from exc
    return files, changed


def _show(result: Mapping[str, Any]) -> None:
    """Print what matters most as whole lines."""
    lines: List[str] = [visible(str(line), SENTENCE) for line in result["summary"]]
    if result["conditions"] or result["left_out"]:
        count = len(result["conditions"]) + len(result["left_out"])
        lines.append("%d warning%s: see the report." % (count, "" if count == 1 else "s"))
    if "html" in result["files"]:
        lines.append("Report: %s" % visible(result["files"]["html"], SENTENCE))
    display, to_stderr = Display(), is_for_programs(constants.DEFAULT_STDOUT_CALLBACK)
    for line in ["", *lines, ""]:
        display.display(line, stderr=to_stderr)
