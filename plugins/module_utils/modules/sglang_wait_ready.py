# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the module sglang_wait_ready does; plugins/modules/sglang_wait_ready.py has its options."""

from __future__ import annotations

import math
import re
from typing import Any, Dict, Optional, Type

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import (
    LOG_DIR,
    PROCESS,
    RUN_DIR,
    InstanceError,
    InstancePaths,
    instance_options,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.managers.unit_state import UnitError
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.server_process import PidFileError
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.ranks import parse_address
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.readiness import NotReady, StillWaiting
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.wait_state import StateError
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.wait_task import UsageError, WaitTask
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import ReleaseError
from ansible_collections.inferops.sglang.plugins.module_utils.system import commands

_MIN_TOKENS = 16
_MOST_SOAK_REQUESTS = 100000
_MOST_CONCURRENCY = 256


def _check_options(params: Dict[str, Any]) -> None:
    """Raises UsageError."""
    for name in ("timeout", "interval", "request_timeout"):
        if not (params[name] > 0 and math.isfinite(params[name])):
            raise UsageError("%s: %r is not a positive number of seconds: give more than 0." % (name, params[name]))
    for name in ("return_after", "progress_interval"):
        if not (params[name] >= 0 and math.isfinite(params[name])):
            raise UsageError("%s: %r is not a number of seconds: give 0 or more." % (name, params[name]))
    if not (params["min_accept_length"] >= 0 and math.isfinite(params["min_accept_length"])):
        raise UsageError(
            "min_accept_length: %r is no number of tokens: give 1.0 or more." % params["min_accept_length"]
        )
    if params["max_new_tokens"] < _MIN_TOKENS:
        raise UsageError(
            "max_new_tokens: %d is too little to judge speculation by: give %d or more."
            % (params["max_new_tokens"], _MIN_TOKENS)
        )
    for name, least, most in (
        ("soak_requests", 0, _MOST_SOAK_REQUESTS),
        ("soak_concurrency", 1, _MOST_CONCURRENCY),
        ("soak_tokens", 1, None),
        ("port", 1, 65535),
    ):
        value = params[name]
        if value is not None and (value < least or (most is not None and value > most)):
            allowed = "%d or more" % least if most is None else "a number from %d to %d" % (least, most)
            raise UsageError("%s: %d is not possible: give %s." % (name, value, allowed))
    if params["rank_zero"] is not None:
        try:
            parse_address(params["rank_zero"])
        except ValueError as error:
            raise UsageError("rank_zero: %s: give HOST:PORT of the node of rank 0." % error) from None
    prompts = params["prompts"]
    if prompts is not None and not (prompts and all(prompt.strip() for prompt in prompts)):
        raise UsageError("prompts: an empty list, or an empty prompt, proves nothing: give some text, or leave it out.")
    key = params["api_key"]
    if key is not None and not re.fullmatch(r"[\x21-\x7e]*", key):
        raise UsageError("api_key: it holds characters that a HTTP header cannot carry: give printable ASCII.")


def main(module_class: Type[AnsibleModule] = AnsibleModule) -> None:
    """Run the module; module_class makes it out of its options."""
    module = module_class(
        argument_spec={
            **instance_options(),
            "run_dir": {"type": "path", "default": RUN_DIR},
            "log_dir": {"type": "path", "default": LOG_DIR},
            "host": {"type": "str"},
            "port": {"type": "int"},
            "timeout": {"type": "float", "default": 1800},
            "interval": {"type": "float", "default": 0.25},
            "request_timeout": {"type": "float", "default": 30},
            "progress_interval": {"type": "float", "default": 10},
            "expected": {"type": "dict"},
            "compare": {"type": "list", "elements": "str"},
            "min_accept_length": {"type": "float", "default": 1.2},
            "max_new_tokens": {"type": "int", "default": 128, "no_log": False},
            "prompts": {"type": "list", "elements": "str"},
            "soak_requests": {"type": "int", "default": 128},
            "soak_concurrency": {"type": "int", "default": 8},
            "soak_tokens": {"type": "int", "default": 32, "no_log": False},
            "rank_zero": {"type": "str"},
            "peers": {"type": "str", "default": ""},
            "api_key": {"type": "str", "no_log": True},
            "return_after": {"type": "float", "default": 0},
            "resume": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    try:
        _check_options(module.params)
        if module.check_mode:
            InstancePaths(module.params["instance"], state_dir=module.params["state_dir"])
            module.exit_json(
                changed=False,
                skipped_reason="Nothing is started in check mode, so there is nothing to wait for.",
            )
        if module.params["manager"] != PROCESS and module.get_bin_path("systemctl") is None:
            raise UsageError("manager: this host has no systemctl: set manager to process.")
        task = WaitTask(module.params, commands.run)
    except (UsageError, InstanceError, ReleaseError, PidFileError, StateError) as error:
        module.fail_json(msg=str(error))
    try:
        task.run()
    except StillWaiting:
        module.exit_json(**task.part())
    except NotReady as error:
        failed: Optional[NotReady] = error
    except (UnitError, PidFileError) as error:
        failed = NotReady("unknown_state", str(error))
    else:
        failed = None
    for warning in task.warnings:
        module.warn(task.shown(warning))
    if failed is not None:
        module.fail_json(**task.results(), **task.failure(failed))
    module.exit_json(**task.proven())
