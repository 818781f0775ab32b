# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gathers the settings of a deployment on the controller for the module of the same name, and says how far it is."""

from __future__ import annotations

import json
import secrets
from typing import Any, Dict, List, Mapping, Optional

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure

from ansible_collections.inferops.sglang.plugins.module_utils.deploying.settings import PREFIX
from ansible_collections.inferops.sglang.plugins.plugin_utils.deploy_facts import REHEARSED, deploy_facts, read_facts
from ansible_collections.inferops.sglang.plugins.plugin_utils.deploy_settings import Variables
from ansible_collections.inferops.sglang.plugins.plugin_utils.parted_action import PartedAction, seconds_of
from ansible_collections.inferops.sglang.plugins.plugin_utils.patch_action import source_finder
from ansible_collections.inferops.sglang.plugins.plugin_utils.patch_sources import PatchSourceError, fill_contents
from ansible_collections.inferops.sglang.plugins.plugin_utils.spec_profile import ProfileError
from ansible_collections.inferops.sglang.plugins.plugin_utils.start_progress_lines import progress_line

try:
    from ansible.template import is_trusted_as_template
except ImportError:  # ansible-core 2.18
    from ansible.utils.unsafe_proxy import AnsibleUnsafe

    def is_trusted_as_template(value: object) -> bool:
        """Whether Ansible takes it for a template."""
        return not isinstance(value, AnsibleUnsafe)


# What a deployment needs of its rehearsal.
_NEEDED = ("sglang_deploy_checked", "sglang_deploy_release", "sglang_deploy_rollback")
_NO_ROLE = (
    "sglang_deploy works on the variables of the role inferops.sglang.sglang_deploy, which are not there: include the "
    "role with tasks_from rehearse and replace, or run the playbook inferops.sglang.restart_eagle3."
)


class ActionModule(PartedAction):
    """Runs inferops.sglang.sglang_deploy on the host."""

    module = "inferops.sglang.sglang_deploy"
    _supports_async = False
    _supports_diff = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Of all parts so far.
        self._facts: Dict[str, Any] = {}
        self._changed = False
        self._diff: List[Any] = []

    def progress_line(self, who: str, progress: Mapping[str, Any]) -> str:
        """How far the start is."""
        return progress_line(who, progress)

    def told_every(self, arguments: Mapping[str, Any]) -> float:
        """A rehearsal waits for nothing."""
        return 0.0 if arguments["phase"] == "rehearse" else seconds_of(arguments["settings"]["progress_interval"])

    def instance_of(self, arguments: Mapping[str, Any]) -> str:
        """Which server of the host is waited for."""
        return str(arguments["settings"]["instance"])

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        variables = task_vars or {}
        if PREFIX + "instance" not in variables:
            raise AnsibleActionFail(_NO_ROLE)
        found = Variables(variables, self._templar.template, is_trusted_as_template)
        if self._task.args.get("phase") == "rehearse":
            return dict(self._rehearse(found, tmp, variables), token=secrets.token_hex(8))
        return self._replace(found, tmp, variables)

    def _rehearse(self, found: Variables, tmp: Optional[str], variables: Dict[str, Any]) -> Dict[str, Any]:
        if found.are_for_tasks():
            return {"changed": False, "facts": "{}", "further": True}
        self._task.args["settings"] = self._settings(found)
        result = super().run(tmp, variables)
        # The tasks of the role ask routers, and the server that is left as it is.
        unchanged = read_facts(result).get("sglang_deploy_unchanged") is True
        result["further"] = not result.get("failed") and (unchanged or found.has_routers())
        return result

    def _replace(self, found: Variables, tmp: Optional[str], variables: Dict[str, Any]) -> Dict[str, Any]:
        known = deploy_facts(variables)
        unchanged = known is None or known.get("sglang_deploy_unchanged") is not False
        if known is None or unchanged or found.are_for_tasks("router_url"):
            return {"changed": False, "facts": "{}", "further": True}
        self._task.args.update(
            settings=self._settings(found), known={name: known[name] for name in _NEEDED if name in known}
        )
        try:
            result = super().run(tmp, variables)
        except AnsibleConnectionFailure as error:
            result = {"unreachable": True, "msg": str(error)}
        # Nobody knows how far a call came that brought no answer.
        facts = {
            "sglang_deploy_touched": not self._task.check_mode,
            **self._facts,
            **read_facts(result),
        }
        result["facts"] = json.dumps(facts)
        result["changed"] = self._changed or bool(result.get("changed"))
        if self._diff:
            result["diff"] = self._diff
        result["of"] = variables[REHEARSED]["token"]
        return result

    def _settings(self, found: Variables) -> Dict[str, Any]:
        """The settings, with the texts of patches.  Raises AnsibleActionFail."""
        try:
            return fill_contents(found.settings(), source_finder(self))
        except (ProfileError, PatchSourceError) as error:
            raise AnsibleActionFail(str(error)) from error

    def _part(self, arguments: Dict[str, Any], variables: Dict[str, Any]) -> Dict[str, Any]:
        """One call.  Only a wait is tried again where the connection is lost: what stops and starts may still run."""
        if arguments.get("resume") is None:
            part: Dict[str, Any] = self._execute_module(
                module_name=self.module, module_args=dict(arguments), task_vars=variables
            )
        else:
            part = super()._part(arguments, variables)
        self._facts.update(read_facts(part))
        self._changed = self._changed or bool(part.get("changed"))
        self._diff.extend(part.get("diff") or [])
        return part
