#!/usr/bin/python
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: checks a configuration of an SGLang server without touching what runs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_preflight
short_description: Check an SGLang configuration before the running server is touched
version_added: 0.1.0
author: ["inferops.sglang authors (@inferops)"]
description:
  - Checks everything about a configuration that can be checked while another server still runs, and reports all
    problems together. Starts, stops and writes nothing.
  - Looks at the models, the port, the GPUs, the environment and the state of the instance, applies rules of its own,
    and lets the argument parser of the host's own SGLang judge the command line.
  - Returns the command line and the B(effective) configuration, so that the running server can be compared with it.
extends_documentation_fragment:
  - inferops.sglang.sglang_instance
options:
  run_dir:
    description: Folder of the PID files of servers without a service manager. An absolute path.
    type: path
    default: /run/sglang
  etc_dir:
    description: Folder of the files that the server and its unit read. An absolute path.
    type: path
    default: /etc/sglang
  unit_dir:
    description: Folder of the systemd units. An absolute path.
    type: path
    default: /etc/systemd/system
  python:
    description:
      - Python interpreter on the host in which SGLang is installed.
      - A bare name is looked for in E(PATH) of O(environment), else of the session.
    type: str
    default: python3
  launch:
    description: What the interpreter runs, one word an element.
    type: list
    elements: str
    default: ["-m", "sglang.launch_server"]
  model_path:
    description:
      - Folder of the model, an absolute path, or its name on a hub.
      - A name on a hub is not checked.
    type: str
    required: true
  served_model_name:
    description: Name under which the model is served. Without it, its path.
    type: str
  host:
    description: Address that the server listens on.
    type: str
    default: 127.0.0.1
  port:
    description: Port that the server listens on, 1024 or higher.
    type: int
    default: 30000
  tp_size:
    description: Tensor parallel size.
    type: int
    default: 1
  pp_size:
    description: Pipeline parallel size.
    type: int
    default: 1
  dp_size:
    description: Data parallel size. Without attention-DP in O(extra_args), each replica has GPUs of its own.
    type: int
    default: 1
  gpus:
    description:
      - The GPUs that the server may use, each an NVML index, a UUID, a unique start of a UUID, or a PCI bus id.
      - The server gets them as E(CUDA_VISIBLE_DEVICES).
      - An empty list means those that E(CUDA_VISIBLE_DEVICES) in O(environment) names, else all.
    type: list
    elements: str
    default: []
  expected_count:
    description: How many GPUs the host must have, whatever O(gpus) selects. Without it, this is not checked.
    type: int
  nvml_timeout:
    description: How many seconds one query of one GPU may take.
    type: float
    default: 10.0
  speculative_algorithm:
    description:
      - Algorithm of speculative decoding, such as V(EAGLE3).
      - V(none) means no speculation, and that all other C(speculative_*) options and arguments are left out.
      - Empty means that none was given, and then no other C(speculative_*) option may be.
    type: str
    default: ''
  speculative_draft_model_path:
    description: Folder of the draft model, an absolute path, or its name on a hub.
    type: str
  speculative_num_steps:
    description:
      - Draft steps.
      - Of this, O(speculative_eagle_topk) and O(speculative_num_draft_tokens) give all three or none.
    type: int
  speculative_eagle_topk:
    description: Candidates that are kept in each draft step.
    type: int
  speculative_num_draft_tokens:
    description:
      - Draft tokens that are verified at once.
      - With O(speculative_eagle_topk=1) SGLang makes it the steps plus one, whatever is given.
    type: int
  max_running_requests:
    description:
      - Largest number of requests that run at a time.
      - Without it SGLang decides, and with speculation takes 48.
    type: int
  mem_fraction_static:
    description: Share of the GPU memory for weights and cache, between 0 and 1. Without it SGLang decides.
    type: float
  extra_args:
    description:
      - Further arguments of the server, one word an element.
      - An argument that has an option here, or whose value is a secret, is refused.
    type: list
    elements: str
    default: []
  environment:
    description:
      - Environment variables of the server. Ansible does not log them on the host.
      - In the result, variables whose name contains KEY, TOKEN, SECRET, PASSWORD or CREDENTIAL have no value.
    type: dict
    default: {}
  secret_args:
    description:
      - Arguments of the server that must not be seen in process lists, such as C(api-key) and C(admin-api-key). Names
        of options without dashes in front, and their values.
      - They are not part of RV(sglang.command). Give them to M(inferops.sglang.sglang_release) as well.
    type: dict
    default: {}
  user:
    description: User that the server will run as. Empty means root.
    type: str
    default: ''
  working_directory:
    description: Folder in which the server will start. Empty means the root folder.
    type: str
    default: ''
  replace_foreign:
    description: Whether M(inferops.sglang.sglang_release) will be told to replace files that it did not write.
    type: bool
    default: false
  parser:
    description:
      - Whether the argument parser of the host's own SGLang judges the command line.
      - V(auto) does so where it can be imported. Where O(launch) needs SGLang and the interpreter has none at all, the
        task fails.
      - V(required) fails where it cannot be imported.
      - V(skip) does without.
    type: str
    choices: [auto, required, skip]
    default: auto
  parser_timeout:
    description: How many seconds the parser may take, most of which are spent on importing SGLang.
    type: float
    default: 180.0
requirements:
  - nvidia-ml-py on the managed host, in the Python that Ansible uses there (it installs the module C(pynvml))
  - the NVIDIA driver with its library libnvidia-ml.so.1
attributes:
  check_mode:
    support: full
    description: Does the same, since it changes nothing.
  diff_mode:
    support: none
    description: Changes nothing, so there is no difference to show.
  platform:
    support: full
    platforms: linux
    description: The platforms it runs on.
seealso:
  - module: inferops.sglang.sglang_release
  - module: inferops.sglang.sglang_wait_ready
"""

EXAMPLES = r"""
- name: Check EAGLE-3 with two steps
  inferops.sglang.sglang_preflight:
    python: /opt/sglang/bin/python
    model_path: /models/target
    tp_size: 8
    expected_count: 8
    max_running_requests: 48
    speculative_algorithm: EAGLE3
    speculative_draft_model_path: /models/draft-eagle3
    speculative_num_steps: 2
    speculative_eagle_topk: 1
    speculative_num_draft_tokens: 3
  register: checked

- name: Check the same server without speculation
  inferops.sglang.sglang_preflight:
    python: /opt/sglang/bin/python
    model_path: /models/target
    tp_size: 8
    speculative_algorithm: none
"""

RETURN = r"""
sglang:
  description: The server as it would be, and the instance as it is.
  returned: unless an option has an impossible value
  type: dict
  contains:
    instance:
      description: Name of the instance.
      returned: always
      type: str
      sample: main
    version:
      description: Version of the host's SGLang. Empty where it is not known.
      returned: always
      type: str
      sample: 0.5.17
    command:
      description: The complete command line, without O(secret_args).
      returned: always
      type: list
      elements: str
      sample: [/opt/sglang/bin/python, -m, sglang.launch_server, --model-path, /models/target]
    environment:
      description: Environment variables of the server, secrets blanked out, with those that select O(gpus).
      returned: always
      type: dict
      sample:
        CUDA_DEVICE_ORDER: PCI_BUS_ID
        CUDA_VISIBLE_DEVICES: 0,1
    requested:
      description:
        - What was asked for, by the names of SGLang's own fields.
        - Always contains C(speculative_algorithm), which is null for a server that does not speculate.
      returned: always
      type: dict
      sample:
        model_path: /models/target
        speculative_algorithm: EAGLE3
        speculative_num_steps: 2
    effective:
      description:
        - What SGLang makes of it, in plain values and without secrets. Where no GPU is visible to the parser, without
          what it derives from one.
        - Without the parser, what was asked for and the adjustments that every version of SGLang makes.
      returned: always
      type: dict
      sample:
        max_running_requests: 48
        model_path: /models/target
        speculative_algorithm: EAGLE3
        speculative_num_steps: 2
    adjusted:
      description: Fields that SGLang changes, each with C(requested) and C(effective).
      returned: always
      type: dict
      sample:
        speculative_num_draft_tokens:
          effective: 3
          requested: 8
    gpus:
      description: UUIDs of the GPUs that the server will use, in the order of its ranks.
      returned: always
      type: list
      elements: str
      sample: [GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e]
    parser:
      description: The SGLang whose parser judged, or V(not run) and the reason.
      returned: always
      type: str
      sample: sglang 0.5.17
    running:
      description: The instance as it runs now. Null where it does not.
      returned: always
      type: dict
      contains:
        pid:
          description: PID of its main process.
          returned: always
          type: int
          sample: 4711
        start_ticks:
          description: When that process started, in clock ticks after boot. Tells it from a later one of the same PID.
          returned: always
          type: int
          sample: 123456
        manager:
          description: Who runs it.
          returned: always
          type: str
          sample: systemd
        unit:
          description: Its systemd unit. Empty with another manager.
          returned: always
          type: str
          sample: sglang-main.service
        user:
          description: Whose process it is.
          returned: always
          type: str
          sample: root
        release:
          description: ID of the release that it was started from. Empty where that is not known, as with systemd.
          returned: always
          type: str
          sample: 20261130T104500Z-5d41402a
    has_last_good:
      description: Whether there is a proven release to go back to.
      returned: always
      type: bool
      sample: true
checks:
  description: Everything that was checked. One name may occur several times.
  returned: unless an option has an impossible value
  type: list
  elements: dict
  contains:
    name:
      description: What was checked.
      returned: always
      type: str
      sample: port
    status:
      description: V(ok), V(failed), V(warning) or V(skipped).
      returned: always
      type: str
      sample: ok
    message:
      description: One sentence, with the remedy where one is needed.
      returned: always
      type: str
      sample: Port 30000 is free.
"""

import os
from typing import Any, Dict, List, Mapping, Sequence

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import GpuError, GpuReading
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.open import open_session
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.pynvml_guard import DISTRIBUTION, PynvmlMissing
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.selection import check_count
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.arguments import settings_from
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import WARNING, problem_summary
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.host_checks import free_shared_memory
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import (
    ETC_DIR,
    RUN_DIR,
    UNIT_DIR,
    InstanceError,
    InstancePaths,
    instance_options,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.launch_environment import environment_from
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.parser_probe import run_probe
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight import (
    GpusUnknown,
    Host,
    Request,
    run_preflight,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import (
    secret_argument_values,
    settle_hidden_values,
)
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
        model_path={"type": "str", "required": True},
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
    if not params["model_path"].strip():
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
    """The options as one value.  Raises InstanceError."""
    return Request(
        settings=settings_from(params),
        paths=InstancePaths(
            params["instance"],
            params["state_dir"],
            run_dir=params["run_dir"],
            etc_dir=params["etc_dir"],
            unit_dir=params["unit_dir"],
        ),
        launch=tuple(params["launch"]),
        gpus=tuple(params["gpus"]),
        environment=environment_from(params["environment"]),
        secret_args={str(name): str(value) for name, value in params["secret_args"].items()},
        **{
            name: params[name]
            for name in (
                *("manager", "python", "user", "working_directory"),
                *("parser", "parser_timeout", "replace_foreign"),
            )
        },
    )


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    params = module.params
    settle_hidden_values(module.no_log_values, params["environment"], params["secret_args"])
    # Refused further down, and not to be repeated on the way.
    module.no_log_values.update(value for value in secret_argument_values(params["extra_args"]) if value)
    problems = impossible_options(params)
    if problems:
        module.fail_json(msg=" ".join(problems))
    try:
        request = request_from(params)
    except InstanceError as error:
        module.fail_json(msg=str(error))
    procfs = ProcFs()
    host = Host(
        procfs=procfs,
        list_gpus=lambda: list_gpus(params, procfs),
        run_command=lambda command: module.run_command(list(command), handle_exceptions=False),
        probe=run_probe,
        shared_memory=free_shared_memory,
        session=dict(os.environ),
    )
    outcome = run_preflight(request, host)
    for check in outcome.checks:
        if check.status == WARNING:
            module.warn(check.message)
    result = {"changed": False, "sglang": outcome.facts, "checks": [check.to_dict() for check in outcome.checks]}
    summary = problem_summary(outcome.checks)
    if summary:
        module.fail_json(msg=summary, **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
