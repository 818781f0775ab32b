# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a deployment out of a host's variables: no I/O but that of templates and of a sweep's folder.

Ansible compiles each template anew in each process, that is for each task of each host: a hundred of them cost the
controller a tenth of a second.  Nearly all variables of the role are just another name for a variable of the inventory
with a default.  These are read here without Ansible's help, and mean the same.
"""

from __future__ import annotations

import ast
import re
from typing import Any, Callable, Dict, Mapping, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.deploying.settings import NAMES, PREFIX
from ansible_collections.inferops.sglang.plugins.plugin_utils.spec_profile import merge_settings
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_profiles_file import read_profiles

Template = Callable[[Any], Any]

# An alias with a default, as the role writes them.
_ALIAS = re.compile(r"\{\{ (?P<name>\w+) \| default\((?P<default>[^{}]*|\{\})\) \}\}")
_CONSTANTS = {"true": True, "false": False, "none": None}
_BRACES = ("{{", "{%", "{#")
_NOT_SET = object()

# The speculative settings of the inventory, and how the role puts them together.
_SPECULATIVE = re.compile(r"sglang_spec_(?!profiles?$)(?P<name>.+)", re.DOTALL)
_ALL_SPECULATIVE = "{{ __sglang_deploy_spec_variables }}"

# Variables of the other roles, with the defaults of these.
OTHER_ROLES: Mapping[str, Tuple[str, Any]] = {
    "stop_grace": ("sglang_stop_timeout", 120),
    "stop_kill_timeout": ("sglang_stop_kill_timeout", 60),
    "stop_remove_leftovers": ("sglang_stop_remove_leftovers", True),
    "drain_timeout": ("sglang_drain_timeout", 30),
    **{
        "gpu_free_" + name: ("gpu_free_" + name, default)
        for name, default in (
            ("reader", "auto"),
            ("nvml_timeout", 10),
            ("reclaim", True),
            ("units", []),
            ("command_pattern", ""),
            ("attached", "exclusive"),
            ("protect_users", []),
            ("protect_executables", []),
            ("protect_units", []),
            ("protect_containers", []),
            ("protect_sessions", []),
            ("grace", 10),
            ("kill_timeout", 60),
            ("stop_services", False),
            ("service_timeout", 90),
            ("stop_mps", False),
            ("max_used_mib", ""),
            ("max_used_fraction", ""),
            ("baseline", {}),
            ("ignore_recovery_action", False),
            ("allow_users", []),
            ("allow_executables", []),
            ("allow_units", []),
            ("allow_containers", []),
            ("allow_mib", 0),
            ("timeout", 120),
            ("stable_for", 2),
            ("interval", 0.02),
        )
    },
}
# Where the profile has a say.
_MERGED = ("speculative", "max_running_requests", "mem_fraction_static", "extra_args", "environment")
# Variables that say whether the host is deployed in two calls, or by the tasks of the role.
_BY_TASKS = ("node_group", "gpu_host", "container_pull")


class Variables:
    """The variables of a host for the role.

    template is Ansible's, for what is more than an alias.  is_trusted says whether Ansible takes a text for a template:
    what a host has returned, for one, it leaves as it is.
    """

    def __init__(self, variables: Mapping[str, Any], template: Template, is_trusted: Callable[[str], bool]) -> None:
        self._variables = variables
        self._template = template
        self._is_trusted = is_trusted

    def of_role(self, name: str) -> Any:
        """A variable of the role, by its name without prefix.  Raises KeyError where the role is not there."""
        return self._value(self._variables[PREFIX + name])

    def of_other_role(self, name: str) -> Any:
        """A variable of OTHER_ROLES."""
        variable, default = OTHER_ROLES[name]
        return self._value(self._variables[variable]) if variable in self._variables else default

    def _value(self, raw: Any) -> Any:
        if _is_plain(raw):
            return raw
        alias = _ALIAS.fullmatch(raw) if isinstance(raw, str) and self._is_trusted(raw) else None
        if alias is not None:
            found, default = _literal(alias["default"])
            aliased = self._variables.get(alias["name"], _NOT_SET)
            # A template may lead nowhere, and then the default counts: that is for Ansible to find out.
            if aliased is _NOT_SET and found:
                return default
            if aliased is not _NOT_SET and _is_plain(aliased) and (found or alias["default"].isidentifier()):
                return aliased
        elif isinstance(raw, str) and raw == _ALL_SPECULATIVE and self._is_trusted(raw):
            return self._speculative()
        return self._template(raw)

    def _speculative(self) -> Dict[str, Any]:
        found = ((_SPECULATIVE.fullmatch(name), name) for name in self._variables)
        return {match["name"]: self._value(self._variables[name]) for match, name in found if match is not None}

    # -- what they are together

    def are_for_tasks(self, *more: str) -> bool:
        """Whether the host is left to the tasks of the role: other hosts or an engine have a say.

        more: further variables of which none may be set.
        """
        return any(_set(self.of_role(name)) for name in (*_BY_TASKS, *more))

    def has_routers(self) -> bool:
        """Whether routers are told of the server: those of further ranks serve nobody."""
        return bool(self.of_role("router_url")) and not self.of_role("rank_zero")

    def settings(self) -> Dict[str, Any]:
        """All settings, the profile among them.  Raises ProfileError."""
        own = {
            name: self.of_role(name) for name in NAMES if name not in OTHER_ROLES and name not in (*_MERGED, "measured")
        }
        own.update((name, self.of_other_role(name)) for name in OTHER_ROLES)
        if self.has_routers():
            # Out of its routers it gets no more requests, and has the time for those that it has.
            own["drain_timeout"] = self.of_role("router_drain_timeout")
        folder = self.of_role("sweep_dir")
        merged = merge_settings(
            {name: self.of_role(name) for name in _MERGED},
            self.of_role("profile"),
            self.of_role("profiles"),
            (lambda: read_profiles(str(folder))) if folder else None,
            self.of_role("sweep_concurrency"),
        )
        own.update((name, merged[name]) for name in _MERGED)
        own["measured"] = merged.get("measured", {})
        return own


def _literal(text: str) -> Tuple[bool, Any]:
    """Whether a default is a constant, and which.  Escapes, and more than one argument, are for Ansible."""
    if text in _CONSTANTS:
        return True, _CONSTANTS[text]
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return False, None
    return "\\" not in text and not isinstance(value, tuple), value


def _is_plain(value: Any) -> bool:
    """Whether there is no template in it, nor anything that may be one."""
    if isinstance(value, str):
        return not any(brace in value for brace in _BRACES)
    if isinstance(value, dict):
        return all(_is_plain(part) for pair in value.items() for part in pair)
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float))


def _set(value: Any) -> bool:
    return bool(value) and str(value).lower() not in ("false", "no", "off", "n", "f", "0")
