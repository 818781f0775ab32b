# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a module whose option `patches` names files on the controller."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.inferops.sglang.plugins.plugin_utils.patch_sources import (
    PatchSourceError,
    fill_contents,
    hide_contents,
)


def source_finder(action: ActionBase) -> Callable[[str], str]:
    """What finds a source: beside the playbook or role like any file, and decrypted where it is in a vault."""

    def find(src: str) -> str:
        path: str = action._loader.get_real_file(action._find_needle("files", src))
        return path

    return find


class PatchAction(ActionBase):
    """Fills in the contents of patches, and runs the module."""

    module = ""
    _supports_async = True
    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        try:
            arguments = fill_contents(self._task.args, source_finder(self))
        except PatchSourceError as exc:
            raise AnsibleActionFail(str(exc)) from exc
        result.update(
            self._execute_module(
                module_name=self.module,
                module_args=arguments,
                task_vars=task_vars,
                wrap_async=self._task.async_val,
            )
        )
        return hide_contents(result)
