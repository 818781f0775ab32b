# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the module sglang_preflight does; plugins/modules/sglang_preflight.py has its options."""

from __future__ import annotations

import os
import shutil
import time
from typing import Any, Dict, List, Mapping, Sequence, Type

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import GpuError, GpuReading
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.open import open_session
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.pynvml_guard import DISTRIBUTION, PynvmlMissing
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.selection import check_count
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import (
    WARNING,
    failures,
    problem_summary,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import settings_from
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.launch_environment import (
    environment_from,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.parser_probe import run_probe
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.settings import (
    ContainerError,
    container_from,
    container_option,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import (
    ETC_DIR,
    RUN_DIR,
    UNIT_DIR,
    InstanceError,
    InstancePaths,
    instance_options,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.patches.patches import patch_options
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.host_checks import (
    free_shared_memory,
    free_space,
    home_of,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.kept_release import check_kept
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.preflight import run_preflight
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.request import (
    GpusUnknown,
    Host,
    Request,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import (
    secret_argument_values,
    settle_hidden_values,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import ReleaseError
from ansible_collections.inferops.sglang.plugins.module_utils.system import commands
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs


def argument_spec() -> Dict[str, Dict[str, Any]]:
    """The options of the module."""
    return dict(
        instance_options(),
        run_dir={"type": "path", "default": RUN_DIR},
        etc_dir={"type": "path", "default": ETC_DIR},
        unit_dir={"type": "path", "default": UNIT_DIR},
        python={"type": "str", "default": "python3"},
        launch={"type": "list", "elements": "str", "default": ["-m", "sglang.launch_server"]},
        release={"type": "str"},
        model_path={"type": "str"},
        served_model_name={"type": "str"},
        host={"type": "str", "default": "127.0.0.1"},
        port={"type": "int", "default": 30000},
        tp_size={"type": "int", "default": 1},
        pp_size={"type": "int", "default": 1},
        dp_size={"type": "int", "default": 1},
        gpus={"type": "list", "elements": "str", "default": []},
        expected_count={"type": "int"},
        nvml_timeout={"type": "float", "default": 10.0},
        speculative_algorithm={"type": "str", "default": ""},
        speculative_draft_model_path={"type": "str"},
        speculative_num_steps={"type": "int"},
        speculative_eagle_topk={"type": "int"},
        speculative_num_draft_tokens={"type": "int", "no_log": False},
        max_running_requests={"type": "int"},
        mem_fraction_static={"type": "float"},
        extra_args={"type": "list", "elements": "str", "default": []},
        # no_log keeps it out of the host's log; see settle_hidden_values.
        environment={"type": "dict", "default": {}, "no_log": True},
        secret_args={"type": "dict", "default": {}, "no_log": True},
        user={"type": "str", "default": ""},
        working_directory={"type": "str", "default": ""},
        replace_foreign={"type": "bool", "default": False},
        parser={"type": "str", "choices": ["auto", "required", "skip"], "default": "auto"},
        parser_timeout={"type": "float", "default": 180.0},
        measured={"type": "dict", "default": {}},
        speculative_options={"type": "dict", "default": {}},
        container=container_option(),
        patches=patch_options(),
        unmanaged={"type": "str", "choices": ["refuse", "take_over"], "default": "refuse"},
    )


def impossible_options(params: Mapping[str, Any]) -> List[str]:
    """What is wrong with the options that say how to check."""
    problems = [
        f"{name} is {params[name]:g}: give seconds, more than 0."
        for name in ("nvml_timeout", "parser_timeout")
        if not 0 < params[name] < float("inf")
    ]
    if params["expected_count"] is not None and params["expected_count"] < 1:
        problems.append(f"expected_count is {params['expected_count']}: give at least 1, or leave it out.")
    if params["release"] is None and not params["model_path"].strip():
        problems.append("model_path is empty: give the folder of the model, or its name on a hub.")
    return problems


def list_gpus(params: Mapping[str, Any], procfs: ProcFs) -> Sequence[GpuReading]:
    """All GPUs of the host.  Raises GpusUnknown."""
    try:
        with open_session(params["nvml_timeout"], procfs) as session:
            check_count(session.system.count, params["expected_count"])
            return session.identify(range(session.system.count))
    except PynvmlMissing:
        raise GpusUnknown(missing_required_lib(DISTRIBUTION)) from None
    except GpuError as error:
        raise GpusUnknown(str(error)) from None


def request_from(params: Mapping[str, Any]) -> Request:
    """The options as one value.  Raises InstanceError and ContainerError."""
    paths = InstancePaths(
        params["instance"],
        params["state_dir"],
        run_dir=params["run_dir"],
        etc_dir=params["etc_dir"],
        unit_dir=params["unit_dir"],
    )
    return Request(
        settings=settings_from(params, str(paths.current_link)),
        paths=paths,
        launch=tuple(params["launch"]),
        gpus=tuple(params["gpus"]),
        environment=environment_from(params["environment"]),
        secret_args={str(name): str(value) for name, value in params["secret_args"].items()},
        container=container_from(params["container"], shutil.which),
        patches=tuple(params["patches"]),
        **{
            name: params[name]
            for name in (
                *("manager", "python", "user", "working_directory"),
                *("parser", "parser_timeout", "replace_foreign", "unmanaged", "measured"),
            )
        },
    )


def main(module_class: Type[AnsibleModule] = AnsibleModule) -> None:
    """Run the module; module_class makes it out of its options."""
    module = module_class(
        argument_spec=argument_spec(),
        # A release that is kept has a configuration of its own.
        mutually_exclusive=[("model_path", "release")],
        required_one_of=[("model_path", "release")],
        supports_check_mode=True,
    )
    params = module.params
    settle_hidden_values(module.no_log_values, params["environment"], params["secret_args"])
    # Refused further down, and not to be repeated on the way.
    module.no_log_values.update(value for value in secret_argument_values(params["extra_args"]) if value)
    problems = impossible_options(params)
    if problems:
        module.fail_json(msg=" ".join(problems))
    try:
        request = request_from(params)
    except (InstanceError, ContainerError) as error:
        module.fail_json(msg=str(error))
    procfs = ProcFs()
    host = Host(
        procfs=procfs,
        list_gpus=lambda: list_gpus(params, procfs),
        run_command=commands.run,
        probe=run_probe,
        shared_memory=free_shared_memory,
        session=dict(os.environ),
        free_space=free_space,
        now=time.time,
        home=home_of,
    )
    try:
        kept = params["release"]
        outcome = run_preflight(request, host) if kept is None else check_kept(kept, request, host)
    except ReleaseError as error:
        module.fail_json(msg=str(error))
    for check in outcome.checks:
        if check.status == WARNING:
            module.warn(check.message)
    summary = problem_summary(outcome.checks)
    if summary:
        # Ansible prints all of a failed result: what is right would bury what is wrong.
        module.fail_json(changed=False, msg=summary, checks=[check.to_dict() for check in failures(outcome.checks)])
    result = {"changed": False, "sglang": outcome.facts, "checks": [check.to_dict() for check in outcome.checks]}
    if module._diff:
        result["diff"] = outcome.diff
    module.exit_json(**result)
