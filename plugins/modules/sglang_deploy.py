#!/usr/bin/python
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Checks a deployment or carries it out in one call; the action plugin of this name gathers its settings."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_deploy
short_description: Check a deployment of SGLang, or carry it out, in one call of the host
version_added: 0.1.0
author: ["inferops.sglang authors (@inferops)"]
description:
  - The role C(inferops.sglang.sglang_deploy) in two calls of the host instead of a dozen. It is the role's own tool.
    Use the role, or the playbooks, and not this.
  - Runs the modules of this collection one after the other, in one process, with what they would get as tasks of their
    own. Each records and refuses what it would record and refuse as such, and where one fails, no further one begins.
  - With O(phase=rehearse) M(inferops.sglang.sglang_preflight), then in check mode
    M(inferops.sglang.sglang_release), M(inferops.sglang.sglang_wait_ready), M(inferops.sglang.gpu_reclaim),
    M(inferops.sglang.gpu_wait_free) and M(inferops.sglang.sglang_process). Nothing is touched. Where the host runs what
    it should already, the modules after the second are left out.
  - With O(phase=replace) M(inferops.sglang.sglang_process) (stop), M(inferops.sglang.gpu_reclaim),
    M(inferops.sglang.gpu_wait_free), M(inferops.sglang.sglang_release), M(inferops.sglang.sglang_process) (start),
    M(inferops.sglang.sglang_wait_ready) and M(inferops.sglang.sglang_release) (proven). It does not bring back what was
    there before.
  - A host on whose deployment other hosts or routers have a say is left to the tasks of the role, which
    RV(further) says.
  - Where the connection is lost, the module that runs is brought to its end and no further one begins. Meanwhile a
    second call for the same instance is refused.
options:
  phase:
    description: What is done.
    type: str
    choices: [rehearse, replace]
    required: true
  rollback:
    description: Whether a release that is kept on the host is put live instead of what the variables say. With
      O(phase=replace) the rehearsal's counts.
    type: bool
    default: false
  settings:
    description: The variables of the role, by their names without C(sglang_deploy_), and those of the roles C(gpu_free)
      and C(sglang_stop). The action plugin fills it in.
    type: dict
    default: {}
  known:
    description: What RV(facts) of the rehearsal says. The action plugin fills it in.
    type: dict
    default: {}
  run_dir:
    description: Folder of the file that keeps a second call out.
    type: path
    default: /run/sglang
  return_after:
    description: Seconds after which a wait for the server is left, to be gone on with by O(resume). V(0) means never.
    type: float
    default: 0
  resume:
    description: RV(resume) of the call before.
    type: dict
attributes:
  check_mode:
    support: full
    description: Says what would be done.
  diff_mode:
    support: full
    description: Shows the differences that its modules show, one after the other.
  platform:
    support: full
    platforms: linux
    description: Needs C(/proc).
notes:
  - While it waits, it says how far the server is as M(inferops.sglang.sglang_wait_ready) does.
seealso:
  - module: inferops.sglang.sglang_preflight
  - module: inferops.sglang.sglang_process
  - module: inferops.sglang.sglang_wait_ready
"""

EXAMPLES = r"""
# What the role does with a host that runs a server of its own.
- name: Check the host
  inferops.sglang.sglang_deploy:
    phase: rehearse
  register: sglang_deploy_rehearsed

- name: Restart the host
  inferops.sglang.sglang_deploy:
    phase: replace
  register: sglang_deploy_replaced
"""

RETURN = r"""
facts:
  description: The results of the modules that were run, and what else the role knows, by the names under which the role
    registers them. Of a module that failed, too. Written as JSON, since Ansible looks through all values of a result
    some ten times on its way, which costs the controller more than anything else.
  returned: always
  type: str
  sample: '{"sglang_deploy_unchanged": true}'
further:
  description: Whether tasks of the role have something left to do here.
  returned: always
  type: bool
  sample: false
token:
  description: What tells this rehearsal from others.
  returned: with O(phase=rehearse)
  type: str
  sample: 3f1c9e0c5d7b4a52
of:
  description: RV(token) of the rehearsal whose deployment this was.
  returned: with O(phase=replace)
  type: str
  sample: 3f1c9e0c5d7b4a52
step:
  description: Which step failed, by the name of its task in the role.
  returned: when a step failed
  type: str
  sample: Stop the server
reason:
  description: The reason code of the module that failed. Empty where it has none.
  returned: when a step failed
  type: str
  sample: out_of_memory
log_tail:
  description: The last lines of the server's log, without secrets, where the module that failed has some.
  returned: when a step failed
  type: list
  elements: str
  sample: []
waiting:
  description: Whether the server is still waited for.
  returned: when O(return_after) has passed
  type: bool
  sample: true
progress:
  description: How far the server is, as M(inferops.sglang.sglang_wait_ready) returns it.
  returned: when O(return_after) has passed
  type: dict
  sample: {phase: loading_weights}
resume:
  description: For the option of the same name.
  returned: when O(return_after) has passed
  type: dict
  sample: {}
"""

import contextlib
import json
from functools import partial
from pathlib import Path
from typing import Any, ContextManager, Dict

from ansible.module_utils.basic import AnsibleModule, remove_values

from ansible_collections.inferops.sglang.plugins.module_utils.deploying.arguments import secret_args
from ansible_collections.inferops.sglang.plugins.module_utils.deploying.deployment import (
    Deployment,
    DeploymentFailed,
    StillWaiting,
)
from ansible_collections.inferops.sglang.plugins.module_utils.deploying.listener import somebody_listens
from ansible_collections.inferops.sglang.plugins.module_utils.deploying.settings import SettingsError, read_settings
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import (
    RUN_DIR,
    InstanceError,
    InstancePaths,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.server_process import (
    ServerProcessError,
    exclusive,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import settle_hidden_values


def only_one(settings: Dict[str, Any], run_dir: str) -> ContextManager[None]:
    """Keep a second call for the instance out: one whose controller is gone may still be at its last module.

    Raises InstanceError, ServerProcessError and OSError.
    """
    paths = InstancePaths(str(settings["instance"]), state_dir=str(settings["state_dir"]), run_dir=run_dir)
    return exclusive(Path(run_dir) / (paths.instance + ".deploying"))


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "phase": {"type": "str", "choices": ["rehearse", "replace"], "required": True},
            "rollback": {"type": "bool", "default": False},
            # no_log keeps it out of the host's log; see settle_hidden_values.
            "settings": {"type": "dict", "default": {}, "no_log": True},
            "known": {"type": "dict", "default": {}, "no_log": True},
            "run_dir": {"type": "path", "default": RUN_DIR},
            "return_after": {"type": "float", "default": 0},
            "resume": {"type": "dict", "no_log": True},
        },
        supports_check_mode=True,
    )
    params = module.params
    module.no_log_values.clear()
    try:
        settings = read_settings(params["settings"])
    except SettingsError as error:
        module.fail_json(msg=str(error), facts=json.dumps({"sglang_deploy_touched": False}), further=False)
    settle_hidden_values(module.no_log_values, settings["environment"], secret_args(settings))
    alone = contextlib.nullcontext if module.check_mode else partial(only_one, settings, params["run_dir"])
    deployment = Deployment(settings, params["known"], module.check_mode, somebody_listens, alone)
    failed: Dict[str, Any] = {}
    waits: Dict[str, Any] = {}
    try:
        if params["phase"] == "rehearse":
            deployment.rehearse(params["rollback"])
        else:
            rollback = bool(params["known"].get("sglang_deploy_rollback"))
            deployment.replace(rollback, params["return_after"], params["resume"])
    except DeploymentFailed as failure:
        failed = {key: failure.result[key] for key in ("exception",) if key in failure.result}
        failed.update(
            msg=str(failure),
            step=failure.step,
            reason=failure.result.get("reason") or "",
            log_tail=failure.result.get("log_tail") or [],
        )
    except StillWaiting as part:
        waits = {"waiting": True, "progress": part.progress, "resume": part.resume}
    except (ServerProcessError, InstanceError) as error:
        failed = {"msg": str(error)}
    except OSError as error:
        where = error.filename or params["run_dir"]
        failed = {"msg": "%s: %s. Run as root, or give folders that may be written." % (where, error.strerror)}
    result: Dict[str, Any] = {"changed": deployment.changed, "further": False, **waits}
    # All settings of a host are a lot to send back.
    result["invocation"] = {"module_args": {name: params[name] for name in ("phase", "rollback", "return_after")}}
    if module._diff and deployment.diff:
        result["diff"] = deployment.diff
    facts, result = remove_values((deployment.facts, {**result, **failed}), module.no_log_values)
    # Looked for once more, they might turn the text into none.
    module.no_log_values.clear()
    # A short key is found in these, too.
    facts.update((name, value) for name, value in deployment.facts.items() if isinstance(value, bool))
    result["facts"] = json.dumps(facts)
    if failed:
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
