# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a deployment: which there are and what they are; pure, no I/O.

Here is what must be right for other settings to be put together with it, or for an order of steps.  The rest is checked
by the module that gets it.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Tuple

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

PREFIX = "sglang_deploy_"
# What each module refuses by itself, with an own word for what is not given.
_ANY: Tuple[str, ...] = (
    *(
        "instance",
        "state_dir",
        "manager",
        "audit_path",
        "python",
        "launch",
        "model_path",
        "served_model_name",
        "host",
        "port",
    ),
    *("expected_count", "tp_size", "pp_size", "dp_size", "max_running_requests", "mem_fraction_static"),
    *("default_algorithm", "api_key", "user", "working_directory", "unmanaged", "parser", "parser_timeout"),
    *("stop_timeout", "enabled", "keep", "rollback_to", "ready_timeout", "request_timeout", "progress_interval"),
    *("min_accept_length", "soak_requests", "soak_concurrency", "rank_zero", "drain_timeout", "stop_grace"),
    *("stop_kill_timeout", "stop_remove_leftovers"),
    *("gpu_free_nvml_timeout", "gpu_free_reader", "gpu_free_command_pattern", "gpu_free_attached", "gpu_free_grace"),
    *("gpu_free_kill_timeout", "gpu_free_stop_services", "gpu_free_service_timeout", "gpu_free_stop_mps"),
    *("gpu_free_ignore_recovery_action", "gpu_free_max_used_mib", "gpu_free_max_used_fraction", "gpu_free_timeout"),
    *("gpu_free_stable_for", "gpu_free_interval", "gpu_free_allow_mib"),
)
_LISTS: Tuple[str, ...] = (
    *("gpus", "extra_args", "patches", "reclaim_users", "reclaim_containers"),
    *("gpu_free_units", "gpu_free_protect_users", "gpu_free_protect_executables", "gpu_free_protect_units"),
    *("gpu_free_protect_containers", "gpu_free_protect_sessions", "gpu_free_allow_users"),
    *("gpu_free_allow_executables", "gpu_free_allow_units", "gpu_free_allow_containers"),
)
_DICTS: Tuple[str, ...] = (
    *("container", "environment", "secret_args", "speculative", "measured", "gpu_free_baseline"),
)
_BOOLS: Tuple[str, ...] = ("force_restart", "gpu_free_reclaim")

NAMES: Tuple[str, ...] = (*_ANY, *_LISTS, *_DICTS, *_BOOLS)


class SettingsError(ValueError):
    """Settings that are no settings; the message names the variable, its value and the remedy."""


def read_settings(given: Mapping[str, Any]) -> Dict[str, Any]:
    """The settings with lists as lists, and so on.  Raises SettingsError."""
    spec: Dict[str, Dict[str, Any]] = {name: {"type": "raw", "required": True, "no_log": False} for name in _ANY}
    for names, kind in ((_LISTS, "list"), (_DICTS, "dict"), (_BOOLS, "bool")):
        spec.update({name: {"type": kind, "required": True, "no_log": False} for name in names})
    # What is null was not given.
    nothing: Dict[str, Any] = {**{name: [] for name in _LISTS}, **{name: {} for name in _DICTS}}
    known = {name: nothing[name] if value is None and name in nothing else value for name, value in given.items()}
    result = ArgumentSpecValidator(spec).validate(known)
    if result.error_messages:
        raise SettingsError("The variables %s* are in error: %s." % (PREFIX, "; ".join(result.error_messages)))
    settings: Dict[str, Any] = result.validated_parameters
    return settings
