# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options that the GPU modules share, and the checks of their values.

Everything is checked before anything is touched; an error names option, value and remedy.
"""

from __future__ import annotations

import math
import re
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.matching import Who
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Failure, GpuError
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.open import AUTO, READERS
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.plan import (
    ANY,
    EXCLUSIVE,
    NEVER,
    Filters,
    Rules,
    compile_pattern,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.protection import Allowance
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.users import user_ids
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.verdict import Limits

Spec = Dict[str, Dict[str, Any]]


def _strings(**more: Any) -> Dict[str, Any]:
    return {"type": "list", "elements": "str", "default": [], **more}


def selection_spec() -> Spec:
    """Options of every GPU module."""
    return {
        "gpus": _strings(),
        "expected_count": {"type": "int"},
        "nvml_timeout": {"type": "float", "default": 10.0},
        "reader": {"type": "str", "choices": list(READERS), "default": AUTO},
    }


def free_spec() -> Spec:
    """Options of the modules that let the user say what counts as free."""
    return {
        "max_used_mib": {"type": "int"},
        "max_used_fraction": {"type": "float"},
        "baseline": {"type": "dict", "default": {}},
        "ignore_recovery_action": {"type": "bool", "default": False},
    }


def reclaim_spec() -> Spec:
    """Options of gpu_reclaim alone."""
    return {
        "grace": {"type": "float", "default": 10.0},
        "kill_timeout": {"type": "float", "default": 60.0},
        "users": _strings(),
        "units": _strings(),
        "containers": _strings(),
        "command_pattern": {"type": "str", "default": ""},
        "attached": {"type": "str", "choices": [EXCLUSIVE, ANY, NEVER], "default": EXCLUSIVE},
        "protect_users": _strings(),
        "protect_executables": _strings(),
        "protect_units": _strings(),
        "protect_containers": _strings(),
        "protect_sessions": {"type": "list", "elements": "int", "default": []},
        "stop_services": {"type": "bool", "default": False},
        "service_timeout": {"type": "float", "default": 90.0},
        "stop_mps": {"type": "bool", "default": False},
        "ignore_recovery_action": {"type": "bool", "default": False},
    }


def allow_spec() -> Spec:
    """Options of the modules that accept that some processes stay."""
    return {
        "allow_users": _strings(),
        "allow_executables": _strings(),
        "allow_units": _strings(),
        "allow_containers": _strings(),
    }


def wait_spec() -> Spec:
    """Options of gpu_wait_free alone."""
    return {
        "timeout": {"type": "float", "default": 120.0},
        "stable_for": {"type": "float", "default": 2.0},
        "interval": {"type": "float", "default": 0.02},
        "allow_mib": {"type": "int", "default": 0},
    }


def reset_spec() -> Spec:
    """Options of gpu_reset alone."""
    return {
        "when": {"type": "str", "choices": ["needed", "always"], "default": "needed"},
        "include_peers": {"type": "bool", "default": False},
        "fabric_manager": {"type": "str", "choices": ["auto", "keep", "stop"], "default": "auto"},
        "nvidia_drm": {"type": "str", "choices": ["auto", "refuse", "unload", "ignore"], "default": "auto"},
        "in_guest": {"type": "bool", "default": False},
        "stop_units": _strings(),
        "keep_units": _strings(),
        "service_timeout": {"type": "float", "default": 90.0},
        "reset_timeout": {"type": "float", "default": 180.0},
        "settle_timeout": {"type": "float", "default": 60.0},
        "allocation_test": {"type": "str", "choices": ["auto", "required", "never"], "default": "auto"},
        "allocation_timeout": {"type": "float", "default": 60.0},
    }


def mutually_exclusive() -> List[Sequence[str]]:
    """Options of `free_spec` that contradict each other."""
    return [("max_used_mib", "max_used_fraction")]


def check_selection(params: Mapping[str, Any]) -> None:
    """Check the values of `selection_spec`.  Raises GpuError."""
    _seconds(params, "nvml_timeout", above=0.0)
    if params["expected_count"] is not None and params["expected_count"] < 1:
        _reject("expected_count", params["expected_count"], "give the number of GPUs of the host, or leave it out")
    for selector in params["gpus"]:
        if not selector.strip():
            _reject("gpus", selector, "name an index, a UUID or a PCI bus id, or leave the entry out")


def check_free(params: Mapping[str, Any]) -> None:
    """Check the values of `free_spec`.  Raises GpuError."""
    if params["max_used_mib"] is not None:
        _mib(params, "max_used_mib")
    fraction = params["max_used_fraction"]
    if fraction is not None and not 0 <= fraction < 1:  # also refuses "not a number"
        _reject("max_used_fraction", fraction, "give a part of all memory, from 0 to below 1")
    for uuid, mib in params["baseline"].items():
        if not str(uuid).startswith(("GPU-", "MIG-")):
            _reject("baseline", uuid, "give MiB by UUID, as gpu_info returns them under baseline")
        if not str(mib).isdigit():
            _reject("baseline", mib, "give a number of MiB, 0 or more, for %s" % uuid)


def check_reclaim(params: Mapping[str, Any]) -> None:
    """Check the values of `reclaim_spec`.  Raises GpuError."""
    _seconds(params, "grace", least=0.0)
    _seconds(params, "kill_timeout", above=0.0)
    _seconds(params, "service_timeout", above=0.0)
    _executables(params, "protect_executables")
    for session in params["protect_sessions"]:
        if session < 1:
            _reject("protect_sessions", session, "give the PID of the process that began the session")
    for option in ("units", "protect_units", "containers", "protect_containers"):
        _patterns(params, option)
    try:
        compile_pattern(params["command_pattern"])
    except re.error as exc:
        _reject("command_pattern", params["command_pattern"], "give a regular expression of Python (%s)" % exc)


def check_allow(params: Mapping[str, Any]) -> None:
    """Check the values of `allow_spec`.  Raises GpuError."""
    _executables(params, "allow_executables")
    _patterns(params, "allow_units")
    _patterns(params, "allow_containers")


def check_wait(params: Mapping[str, Any]) -> None:
    """Check the values of `wait_spec`.  Raises GpuError."""
    _seconds(params, "timeout", above=0.0)
    _seconds(params, "stable_for", least=0.0)
    _seconds(params, "interval", least=0.01)
    if params["stable_for"] >= params["timeout"]:
        _reject("stable_for", params["stable_for"], "it must be shorter than timeout (%g)" % params["timeout"])
    longest = "stable_for" if params["stable_for"] else "timeout"
    if params["interval"] > params[longest]:
        _reject("interval", params["interval"], "it must not be longer than %s (%g)" % (longest, params[longest]))
    _mib(params, "allow_mib")


def check_reset(params: Mapping[str, Any]) -> None:
    """Check the values of `reset_spec`.  Raises GpuError."""
    for option in ("service_timeout", "reset_timeout", "settle_timeout", "allocation_timeout"):
        _seconds(params, option, above=0.0)
    for option in ("stop_units", "keep_units"):
        _patterns(params, option)
    for pattern in params["stop_units"]:
        if not pattern.strip("*?."):
            _reject("stop_units", pattern, "name the units; a pattern of everything would stop the host's own services")
    for selector in params["gpus"]:
        if selector.strip().upper().startswith("MIG-"):
            _reject("gpus", selector, "name the whole GPU: an instance of it cannot be reset alone")


def check_baseline(params: Mapping[str, Any], uuids: FrozenSet[str]) -> None:
    """Check that a baseline, if there is one, tells of each selected GPU.  Raises GpuError."""
    lacking = sorted(uuids.difference(params["baseline"])) if params["baseline"] else []
    if lacking:
        raise GpuError(
            Failure(
                "option",
                "baseline says nothing about %s" % ", ".join(lacking),
                "Record it anew on this host with gpu_info while these GPUs are idle",
                permanent=True,
            )
        )


def limits_from(params: Mapping[str, Any], allowance: Allowance) -> Limits:
    """What counts as free, from `free_spec` and, where the module has it, allow_mib."""
    return Limits(
        max_used_mib=params["max_used_mib"],
        max_used_fraction=params["max_used_fraction"],
        baseline={str(uuid): int(mib) for uuid, mib in params["baseline"].items()},
        allow_mib=params.get("allow_mib", 0),
        allowance=allowance,
        ignore_recovery=params["ignore_recovery_action"],
    )


def who_from(params: Mapping[str, Any], verb: str) -> Who:
    """Whom the options VERB_users, VERB_executables, VERB_units, VERB_containers and VERB_sessions name.

    Raises GpuError for a user that does not exist.
    """
    return Who(
        uids=user_ids(verb + "_users", params[verb + "_users"]),
        executables=tuple(params[verb + "_executables"]),
        units=tuple(params[verb + "_units"]),
        containers=tuple(params[verb + "_containers"]),
        sessions=frozenset(params.get(verb + "_sessions", ())),
    )


def rules_from(params: Mapping[str, Any]) -> Rules:
    """Which holders are to be ended, from `reclaim_spec`.  Raises GpuError for a user that does not exist."""
    filters = Filters(
        uids=user_ids("users", params["users"]),
        units=tuple(params["units"]),
        containers=tuple(params["containers"]),
        command=compile_pattern(params["command_pattern"]),
    )
    return Rules(filters, params["attached"])


def _seconds(
    params: Mapping[str, Any], option: str, above: Optional[float] = None, least: Optional[float] = None
) -> None:
    value = params[option]
    if not math.isfinite(value):
        _reject(option, value, "give a number of seconds")
    if above is not None and value <= above:
        _reject(option, value, "give more than %g seconds" % above)
    if least is not None and value < least:
        _reject(option, value, "give at least %g seconds" % least)


def _mib(params: Mapping[str, Any], option: str) -> None:
    if params[option] < 0:
        _reject(option, params[option], "give a number of MiB, 0 or more")


def _executables(params: Mapping[str, Any], option: str) -> None:
    for entry in params[option]:
        if not entry or ("/" in entry and not entry.startswith("/")) or entry.endswith("/"):
            _reject(option, entry, "give an absolute path, or a file name without a folder")


def _patterns(params: Mapping[str, Any], option: str) -> None:
    for entry in params[option]:
        if not entry.strip() or entry.endswith(":"):
            _reject(option, entry, "give a name or a shell pattern, or leave the entry out")


def _reject(option: str, value: Any, remedy: str) -> None:
    raise GpuError(
        Failure("option", "%s: %r cannot be used" % (option, value), remedy[:1].upper() + remedy[1:], permanent=True)
    )
