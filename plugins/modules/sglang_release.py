#!/usr/bin/python
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: the configurations of an SGLang server, and which of them counts."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_release
short_description: Keep the configurations of an SGLang server as releases
version_added: 0.1.0
author: ["inferops.sglang authors (@inferops)"]
description:
  - Writes a configuration as a release, makes it the current one, remembers which one was proven, and goes back to
    that one.
  - A release is a folder below C(STATE_DIR/INSTANCE/releases). The link C(current) names the release that the manager
    starts, C(last_good) the one that was proven last.
  - With O(manager=systemd) it also writes the unit C(sglang-INSTANCE.service) and its environment file. Changes of your
    own belong into drop-ins of the unit, which are left alone.
  - Starts and stops nothing. A unit that was rewritten needs C(daemon_reload) of M(ansible.builtin.systemd_service).
  - Each file is replaced whole or not at all.
extends_documentation_fragment:
  - inferops.sglang.sglang_instance
options:
  state:
    description:
      - V(present) makes the given configuration the current release. Nothing changes where it is that already.
      - V(proven) remembers the current release as the last good one, and removes old releases.
      - V(restored) makes the last good release the current one again, also where the current one cannot be read.
    type: str
    choices: [present, proven, restored]
    default: present
  etc_dir:
    description: Folder of the files that the server and its unit read, with a folder for each server. An absolute path.
    type: path
    default: /etc/sglang
  unit_dir:
    description: Folder of the systemd units. An absolute path.
    type: path
    default: /etc/systemd/system
  command:
    description:
      - The server's complete command line, one word an element, beginning with the absolute path of the program.
      - Required for O(state=present).
    type: list
    elements: str
  environment:
    description:
      - Environment variables of the server.
      - They are stored in files that only their owner can read, and Ansible does not log them on the host.
      - In results and differences, variables whose name contains KEY, TOKEN, SECRET, PASSWORD or CREDENTIAL have no
        value.
    type: dict
    default: {}
  secret_args:
    description:
      - Arguments of the server that must not be seen in process lists, such as C(api-key) and C(admin-api-key). Names
        of options without dashes in front, and their values.
      - They reach the server in a file of its own, through SGLang's C(--config), which is appended to O(command).
    type: dict
    default: {}
  user:
    description: User that the server runs as. Empty means root.
    type: str
    default: ''
  working_directory:
    description: Folder in which the server starts. Empty means the root folder.
    type: str
    default: ''
  stop_timeout:
    description: Seconds that systemd gives the server to finish its requests when it is stopped.
    type: float
    default: 300.0
  host:
    description: Address that the server listens on. Stored for those who ask the server.
    type: str
    default: 127.0.0.1
  port:
    description: Port that the server listens on. Stored for those who ask the server.
    type: int
    default: 30000
  requested:
    description: What was asked for, as RV(inferops.sglang.sglang_preflight#module:sglang.requested). Stored.
    type: dict
    default: {}
  effective:
    description:
      - What the server must report when it runs, as RV(inferops.sglang.sglang_preflight#module:sglang.effective).
        Stored.
    type: dict
    default: {}
  adjusted:
    description: Where these two differ, as RV(inferops.sglang.sglang_preflight#module:sglang.adjusted). Stored.
    type: dict
    default: {}
  sglang_version:
    description:
      - Version of SGLang. Stored, and decides which exit status the unit takes for a regular end.
      - Empty where it is not known.
    type: str
    default: ''
  gpus:
    description: UUIDs of the GPUs that the server uses. Stored.
    type: list
    elements: str
    default: []
  keep:
    description: With O(state=proven), how many releases stay, at least 1. The proven release always does.
    type: int
    default: 10
  replace_foreign:
    description:
      - Whether to replace a unit, environment file or file of secret arguments that this module did not write.
      - Otherwise such a file fails the task before anything is written.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
    description: Reads and checks everything and writes nothing.
  diff_mode:
    support: full
    description: Shows the release before and after, without secrets.
  platform:
    support: full
    platforms: linux
    description: The platforms it runs on.
seealso:
  - module: inferops.sglang.sglang_preflight
  - module: inferops.sglang.sglang_process
  - module: inferops.sglang.sglang_wait_ready
"""

EXAMPLES = r"""
- name: Make a checked configuration the current release
  inferops.sglang.sglang_release:
    state: present
    command: "{{ checked.sglang.command }}"
    # secret values are blanked out in the result of the preflight
    environment: "{{ checked.sglang.environment | combine(sglang_environment) }}"
    secret_args:
      api-key: "{{ vault_sglang_api_key }}"
    requested: "{{ checked.sglang.requested }}"
    effective: "{{ checked.sglang.effective }}"
    adjusted: "{{ checked.sglang.adjusted }}"
    sglang_version: "{{ checked.sglang.version }}"
    gpus: "{{ checked.sglang.gpus }}"

- name: Remember that it works
  inferops.sglang.sglang_release:
    state: proven

- name: Go back to what worked last
  inferops.sglang.sglang_release:
    state: restored
"""

RETURN = r"""
release:
  description: The release that is the current one afterwards. In check mode, the one that would be.
  returned: success
  type: dict
  contains:
    id:
      description: Its name, time of writing in UTC and a part of the hash of its content.
      returned: always
      type: str
      sample: 20261130T104500Z-5d41402a
    path:
      description: Its file.
      returned: always
      type: str
      sample: /var/lib/sglang/main/releases/20261130T104500Z-5d41402a/release.json
    previous_id:
      description: The release that was the current one before. Null where there was none.
      returned: always
      type: str
      sample: 20261129T180000Z-7d793037
    last_good_id:
      description: The release that was proven last. Null where there is none.
      returned: always
      type: str
      sample: 20261129T180000Z-7d793037
    restart_needed:
      description: Whether another release became the current one, so that a running server is not of it.
      returned: always
      type: bool
      sample: true
files:
  description: Files that were written outside the release. In check mode, those that would be.
  returned: success
  type: list
  elements: str
  sample: [/etc/sglang/main/environment, /etc/systemd/system/sglang-main.service]
removed:
  description: IDs of old releases that were removed. In check mode, those that would be.
  returned: success
  type: list
  elements: str
  sample: []
"""

import json
from datetime import datetime, timezone
from typing import Any, Dict, List, Mapping, Optional

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.arguments import Settings, check_secret_args
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import failures
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.files import user_id
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import (
    ETC_DIR,
    UNIT_DIR,
    InstanceError,
    InstancePaths,
    instance_options,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.launch_environment import environment_from
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import (
    REDACTED,
    redact_text,
    secrets_of,
    settle_hidden_values,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import (
    FILE_NAME,
    Release,
    ReleaseError,
    read_current,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release_store import (
    Plan,
    apply,
    linked_id,
    plan_present,
    plan_proven,
    plan_restored,
)


def argument_spec() -> Dict[str, Dict[str, Any]]:
    """The options of the module."""
    return dict(
        instance_options(),
        state={"type": "str", "choices": ["present", "proven", "restored"], "default": "present"},
        etc_dir={"type": "path", "default": ETC_DIR},
        unit_dir={"type": "path", "default": UNIT_DIR},
        command={"type": "list", "elements": "str"},
        # no_log keeps it out of the host's log; see settle_hidden_values.
        environment={"type": "dict", "default": {}, "no_log": True},
        secret_args={"type": "dict", "default": {}, "no_log": True},
        user={"type": "str", "default": ""},
        working_directory={"type": "str", "default": ""},
        stop_timeout={"type": "float", "default": 300.0},
        host={"type": "str", "default": "127.0.0.1"},
        port={"type": "int", "default": 30000},
        requested={"type": "dict", "default": {}},
        effective={"type": "dict", "default": {}},
        adjusted={"type": "dict", "default": {}},
        sglang_version={"type": "str", "default": ""},
        gpus={"type": "list", "elements": "str", "default": []},
        keep={"type": "int", "default": 10},
        replace_foreign={"type": "bool", "default": False},
    )


def wanted_release(params: Mapping[str, Any], paths: InstancePaths) -> Release:
    """The release that the options describe, without id and time.  Raises ReleaseError."""
    if params["user"] and user_id(params["user"]) is None:
        raise ReleaseError(f"user {params['user']!r} does not exist on this host: create it, or name another one.")
    environment = environment_from(params["environment"])
    secret_args = {str(name): str(value) for name, value in params["secret_args"].items()}
    command = list(params["command"] or [])
    if not command:
        raise ReleaseError("command is empty: give the whole command line, the absolute path of the program first.")
    problems = failures(check_secret_args(secret_args, Settings("", extra_args=tuple(command))))
    if problems:
        raise ReleaseError(" ".join(problem.message for problem in problems))
    if secret_args:
        command += ["--config", str(paths.secret_args_file)]
    _check_nothing_blank(command, environment, secret_args)
    return Release(
        id="",
        created="",
        command=command,
        environment=environment,
        secret_args=secret_args,
        **{
            name: params[name]
            for name in (
                *("instance", "manager", "user", "working_directory", "stop_timeout", "host", "port"),
                *("requested", "effective", "adjusted", "sglang_version", "gpus"),
            )
        },
    )


def _check_nothing_blank(command: List[str], environment: Dict[str, str], secret_args: Dict[str, str]) -> None:
    """Refuse values that were blanked out on their way through a result."""
    if any(REDACTED in word for word in command):
        raise ReleaseError(f"command contains {REDACTED}, a value that was blanked out: give it in secret_args.")
    blank = sorted(name for values in (environment, secret_args) for name, value in values.items() if value == REDACTED)
    if blank:
        raise ReleaseError(
            f"The value of {', '.join(blank)} was blanked out ({REDACTED}): combine the environment of the preflight's "
            "result with the values that you gave to it."
        )


def check_numbers(params: Mapping[str, Any]) -> None:
    """Refuse numbers that mean nothing.  Raises ReleaseError."""
    if params["stop_timeout"] <= 0:
        raise ReleaseError(f"stop_timeout is {params['stop_timeout']:g}: give seconds, more than 0.")
    if params["keep"] < 1:
        raise ReleaseError(f"keep is {params['keep']}: give at least 1, since the proven release must stay.")
    if not 1 <= params["port"] <= 65535:
        raise ReleaseError(f"port is {params['port']}: give one from 1 to 65535.")


def make_plan(params: Mapping[str, Any], paths: InstancePaths, now: datetime) -> Plan:
    """What has to be done.  Raises ReleaseError."""
    if params["state"] == "restored":
        return plan_restored(paths, params["manager"], params["replace_foreign"])
    if params["state"] == "proven":
        return plan_proven(paths, params["keep"])
    return plan_present(wanted_release(params, paths), paths, now, params["replace_foreign"])


def _shown(release: Optional[Release], link: str) -> str:
    return "" if release is None else json.dumps({link: release.shown()}, indent=2, sort_keys=True) + "\n"


def difference(plan: Plan, paths: InstancePaths, before: Optional[Release]) -> List[Dict[str, str]]:
    """Before and after, as the user may see it."""
    secrets = secrets_of(plan.release.command, plan.release.environment) | set(plan.release.secret_args.values())
    shown = [
        {
            "before_header": str(paths.current_link),
            "after_header": str(paths.current_link),
            "before": redact_text(_shown(before, "current"), secrets),
            "after": redact_text(_shown(plan.release, "current"), secrets),
        }
    ]
    shown += [
        {
            "before_header": str(item.path),
            "after_header": str(item.path),
            "before": "",
            "after": "(content is not shown)\n",
        }
        for item in plan.files
    ]
    if plan.last_good:
        shown.append(
            {
                "before_header": str(paths.last_good_link),
                "after_header": str(paths.last_good_link),
                "before": f"{linked_id(paths.last_good_link) or ''}\n",
                "after": f"{plan.last_good}\n",
            }
        )
    return shown


def _before(paths: InstancePaths) -> Optional[Release]:
    try:
        return read_current(paths)
    except ReleaseError:  # of no interest when going back from it
        return None


def run(module: AnsibleModule) -> Dict[str, Any]:
    """Plan, write outside check mode, and tell what is so now.  Raises ReleaseError, InstanceError, OSError."""
    params = module.params
    check_numbers(params)
    paths = InstancePaths(
        params["instance"], params["state_dir"], etc_dir=params["etc_dir"], unit_dir=params["unit_dir"]
    )
    plan = make_plan(params, paths, datetime.now(timezone.utc))
    previous = linked_id(paths.current_link)
    # What the release holds may be secret too, when it was not given to this run.
    settle_hidden_values(module.no_log_values, plan.release.environment, plan.release.secret_args)
    result: Dict[str, Any] = {
        "changed": plan.changes,
        "files": [str(item.path) for item in plan.files],
        "removed": [folder.name for folder in plan.remove],
        "release": {
            "id": plan.release.id,
            "path": str(paths.releases_dir / plan.release.id / FILE_NAME),
            "previous_id": previous,
            "last_good_id": plan.last_good or linked_id(paths.last_good_link),
            "restart_needed": bool(plan.current),
        },
    }
    if module._diff and plan.changes:
        result["diff"] = difference(plan, paths, _before(paths))
    if not module.check_mode:
        apply(plan, paths)
    return result


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec=argument_spec(),
        required_if=[("state", "present", ["command"])],
        supports_check_mode=True,
    )
    settle_hidden_values(module.no_log_values, module.params["environment"], module.params["secret_args"])
    try:
        result = run(module)
    except (ReleaseError, InstanceError) as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        name = error.filename or "A file"
        module.fail_json(msg=f"{name} cannot be used: {error.strerror}. Run as root, or choose other folders.")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
