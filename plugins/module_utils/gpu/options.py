# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options that the GPU modules share, and the checks of their values.

Everything is checked before anything is touched; an error names option, value and remedy.
"""

from __future__ import annotations

import math
from typing import Any, Dict, Mapping, Optional

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Failure, GpuError
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.verdict import DEFAULT_MAX_USED_MIB

Spec = Dict[str, Dict[str, Any]]


def selection_spec() -> Spec:
    """Options of every GPU module."""
    return {
        "gpus": {"type": "list", "elements": "str", "default": []},
        "expected_count": {"type": "int"},
        "nvml_timeout": {"type": "float", "default": 10.0},
    }


def free_spec() -> Spec:
    """Options of the modules that let the user say what counts as free."""
    return {"max_used_mib": {"type": "int", "default": DEFAULT_MAX_USED_MIB}}


def reclaim_spec() -> Spec:
    """Options of gpu_reclaim alone."""
    return {
        "grace": {"type": "float", "default": 10.0},
        "kill_timeout": {"type": "float", "default": 60.0},
        "users": {"type": "list", "elements": "str", "default": []},
        "protect_users": {"type": "list", "elements": "str", "default": []},
        "protect_executables": {"type": "list", "elements": "str", "default": []},
    }


def allow_spec() -> Spec:
    """Options of the modules that accept that some processes stay."""
    return {
        "allow_users": {"type": "list", "elements": "str", "default": []},
        "allow_executables": {"type": "list", "elements": "str", "default": []},
    }


def wait_spec() -> Spec:
    """Options of gpu_wait_free alone."""
    return {
        "timeout": {"type": "float", "default": 120.0},
        "stable_for": {"type": "float", "default": 2.0},
        "interval": {"type": "float", "default": 0.1},
        "allow_mib": {"type": "int", "default": 0},
    }


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
    _mib(params, "max_used_mib")


def check_reclaim(params: Mapping[str, Any]) -> None:
    """Check the values of `reclaim_spec`.  Raises GpuError."""
    _seconds(params, "grace", least=0.0)
    _seconds(params, "kill_timeout", above=0.0)
    _executables(params, "protect_executables")


def check_allow(params: Mapping[str, Any]) -> None:
    """Check the values of `allow_spec`.  Raises GpuError."""
    _executables(params, "allow_executables")


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


def _reject(option: str, value: Any, remedy: str) -> None:
    raise GpuError(
        Failure("option", "%s: %r cannot be used" % (option, value), remedy[:1].upper() + remedy[1:], permanent=True)
    )
