# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Say what is wrong with variables that a page shows: names that nobody knows, and values of another type.

What is known is read from where it is defined: the roles' argument specs and defaults, the playbooks, the modules, the
connections.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Dict, List, Mapping

import yaml
from ansible import constants
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.inferops.sglang.plugins.module_utils.modules import sglang_preflight
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.speculative_options import (
    KNOWN_OPTIONS,
    OWN_OPTIONS,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.guard_inventory import SETTINGS as GUARD
from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_inventory import SETTINGS
from ansible_collections.inferops.sglang.plugins.plugin_utils.spec_profile import ProfileError, merge_settings

from .pages import ROOT

_SHORT_NAME = re.compile(r"^(\w+): \"\{\{ (sglang_\w+) \| default\(", re.MULTILINE)
_IN_PLAYBOOK = re.compile(r"\b((?:sglang|gpu)_\w+) \| default\(")
_SPECULATIVE = "sglang_spec_"
_PROFILE, _PROFILES = "sglang_spec_profile", "sglang_spec_profiles"
# Settings that a profile may have, by their variables.
_SETTINGS = {
    "sglang_max_running_requests": "max_running_requests",
    "sglang_mem_fraction_static": "mem_fraction_static",
    "sglang_extra_args": "extra_args",
    "sglang_environment": "environment",
}
# A reader's own names for secrets.
_READERS_OWN = re.compile(r"vault_\w+")


def problems_of(variables: Mapping[str, Any]) -> List[str]:
    """Return one sentence for each variable that is unknown or has a value of the wrong type."""
    problems: List[str] = []
    for name, value in variables.items():
        spec = known_options().get(name)
        if spec is not None:
            problems += _type_problems(name, value, spec)
        elif not (_is_speculative(name) or name in known_names() or _READERS_OWN.fullmatch(name)):
            problems.append(f"{name}: nobody reads a variable of this name")
    return problems + _profile_problems(variables)


def _type_problems(name: str, value: Any, spec: Mapping[str, Any]) -> List[str]:
    if is_template(value):
        return []
    return [f"{name}: {text}" for text in ArgumentSpecValidator({name: spec}).validate({name: value}).error_messages]


def is_template(value: Any) -> bool:
    """Tell whether a value has a template anywhere in it, whose type only a run can tell."""
    return "{{" in str(value)


def _is_speculative(name: str) -> bool:
    return name.startswith(_SPECULATIVE) and name[len(_SPECULATIVE) :] in (*OWN_OPTIONS, *KNOWN_OPTIONS)


def _profile_problems(variables: Mapping[str, Any]) -> List[str]:
    """Merge each profile with the variables beside it, as the role does."""
    profiles = variables.get(_PROFILES) or {}
    settings = {key: variables[name] for name, key in _SETTINGS.items() if name in variables}
    settings["speculative"] = {
        name[len(_SPECULATIVE) :]: value
        for name, value in variables.items()
        if name.startswith(_SPECULATIVE) and name not in (_PROFILE, _PROFILES)
    }
    problems = []
    for profile in {"", *([variables[_PROFILE]] if _PROFILE in variables and profiles else []), *profiles}:
        # Only the chosen profile has to agree with the variables.
        beside = settings if profile in ("", variables.get(_PROFILE, "")) else {}
        try:
            merge_settings(beside, profile, profiles)
        except (ProfileError, ValueError) as error:
            problems.append(str(error))
    return problems


@lru_cache(maxsize=None)
def known_options() -> Dict[str, Mapping[str, Any]]:
    """Return the argument spec of each variable of the roles, under its long and its short name."""
    known: Dict[str, Mapping[str, Any]] = {}
    for path in sorted(ROOT.glob("roles/*/meta/argument_specs.yml")):
        specs = yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"]
        for point in specs.values():
            for name, option in (point.get("options") or {}).items():
                known[name] = {key: option[key] for key in ("type", "elements", "choices") if key in option}
        defaults = (path.parents[1] / "defaults" / "main.yml").read_text(encoding="utf-8")
        for long_name, short_name in _SHORT_NAME.findall(defaults):
            known.setdefault(short_name, known[long_name])
    # The roles take these as they are; what they consist of is the module's to say.
    module = sglang_preflight.argument_spec()
    known["sglang_container"] = known["sglang_deploy_container"] = module["container"]
    known["sglang_patches"] = known["sglang_deploy_patches"] = module["patches"]
    return known


@lru_cache(maxsize=None)
def known_names() -> frozenset:
    """Return the names of variables that playbooks, connections and Ansible itself read."""
    names = set(constants.COMMON_CONNECTION_VARS) | {_PROFILE, _PROFILES, *SETTINGS, *GUARD}
    for path in ROOT.glob("playbooks/**/*.yml"):
        names.update(_IN_PLAYBOOK.findall(path.read_text(encoding="utf-8")))
    return frozenset(names | _connection_variables())


def _connection_variables() -> set:
    """Return what ssh, pct and becoming root take, as their documentation has it."""
    from ansible.plugins.connection import ssh

    from ansible_collections.inferops.sglang.plugins.connection import pct

    names = {f"ansible_become{part}" for part in ("", "_user", "_method", "_flags", "_exe", "_password")}
    names.add("ansible_python_interpreter")
    for plugin in (ssh, pct):
        names.update(re.findall(r"- name: (ansible_\w+)", plugin.DOCUMENTATION))
    return names
