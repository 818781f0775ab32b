# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the module sglang_release does; plugins/modules/sglang_release.py has its options."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple, Type

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import failures
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import (
    Settings,
    check_secret_args,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.launch_environment import (
    environment_from,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.settings import (
    ContainerError,
    ContainerSettings,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.files import locked, user_id
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import (
    ETC_DIR,
    PROCESS,
    UNIT_DIR,
    InstanceError,
    InstancePaths,
    instance_options,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.patches.patches import (
    PatchError,
    patch_options,
    patches_from,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.patches.shared_install import sharing_warnings
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import (
    REDACTED,
    redact_text,
    settle_hidden_values,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import (
    FILE_NAME,
    Release,
    ReleaseError,
    read_current,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.releases.folder import (
    check_file_names,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.releases.listing import (
    ADOPTED,
    linked_id,
    list_releases,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.releases.proof import proof_at
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.releases.store import (
    Plan,
    apply,
    plan_present,
    plan_proven,
    plan_restored,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.audit import AuditLog, audit_options

# Seconds to wait for another task that writes releases on this host.
_LOCK_TIMEOUT = 60.0


def argument_spec() -> Dict[str, Dict[str, Any]]:
    """The options of the module."""
    return dict(
        instance_options(),
        state={"type": "str", "choices": ["present", "proven", "restored", "inspected"], "default": "present"},
        release={"type": "str", "default": ""},
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
        container={"type": "dict", "default": {}},
        files={"type": "dict", "default": {}},
        patches=patch_options(),
        origin={"type": "str", "choices": ["", ADOPTED], "default": ""},
        proof={"type": "dict", "default": {}},
        keep={"type": "int", "default": 10},
        replace_foreign={"type": "bool", "default": False},
        **audit_options(),
    )


def wanted_release(params: Mapping[str, Any], paths: InstancePaths) -> Tuple[Release, Dict[str, str]]:
    """The release that the options describe, without id and time, and the contents of its patches by checksum.

    Raises ReleaseError.
    """
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
    container = _container(params)
    files = {str(name): str(content) for name, content in params["files"].items()}
    check_file_names(files)
    patches = sorted(patches_from(params["patches"]), key=lambda patch: patch.target)
    release = Release(
        id="",
        created="",
        command=command,
        environment=environment,
        secret_args=secret_args,
        container=container,
        files=files,
        patches=[patch.to_release() for patch in patches],
        **{
            name: params[name]
            for name in (
                *("instance", "manager", "user", "working_directory", "stop_timeout", "host", "port"),
                *("requested", "effective", "adjusted", "sglang_version", "gpus", "origin"),
            )
        },
    )
    return release, {patch.sha256_after: patch.content for patch in patches}


def _container(params: Mapping[str, Any]) -> Dict[str, Any]:
    if not params["container"]:
        return {}
    if params["manager"] == PROCESS:
        raise ReleaseError("container needs manager=systemd: its unit runs the container. Choose that manager.")
    return ContainerSettings.from_dict(params["container"]).to_dict()


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
        return plan_restored(paths, params["replace_foreign"], params["release"])
    if params["state"] == "proven":
        try:
            proof = proof_at(params["proof"], now)
        except ValueError as error:
            raise ReleaseError(f"proof: {error}.") from None
        return plan_proven(paths, params["keep"], proof)
    wanted, patch_texts = wanted_release(params, paths)
    return plan_present(wanted, paths, now, params["replace_foreign"], patch_texts)


def _shown(release: Optional[Release], link: str) -> str:
    if release is None:
        return ""
    # The contents of files are shown one by one.
    shown = dict(release.shown(), files=sorted(release.files))
    return json.dumps({link: shown}, indent=2, sort_keys=True) + "\n"


def difference(plan: Plan, paths: InstancePaths, before: Optional[Release]) -> List[Dict[str, str]]:
    """Before and after, as the user may see it."""
    secrets = plan.release.secrets()
    shown = [
        _pair(
            paths.current_link,
            redact_text(_shown(before, "current"), secrets),
            redact_text(_shown(plan.release, "current"), secrets),
        )
    ]
    old, new = ({} if before is None else before.files), plan.release.files
    shown += [
        _pair(paths.current_link / name, old.get(name, ""), new.get(name, ""))
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]
    shown += [
        _pair(change.path, change.before.decode("utf-8", "replace"), change.after.decode("utf-8", "replace"))
        for change in plan.patches.files
    ]
    shown += [_pair(item.path, "", "(content is not shown)\n") for item in plan.files]
    if plan.last_good:
        shown.append(_pair(paths.last_good_link, f"{linked_id(paths.last_good_link) or ''}\n", f"{plan.last_good}\n"))
    return shown


def _pair(path: Any, before: str, after: str) -> Dict[str, str]:
    return {"before_header": str(path), "after_header": str(path), "before": before, "after": after}


def _before(paths: InstancePaths) -> Optional[Release]:
    try:
        return read_current(paths)
    except ReleaseError:  # of no interest when going back from it
        return None


def run(module: AnsibleModule, audit: AuditLog) -> Dict[str, Any]:
    """Plan, write outside check mode, and tell what is so now.  Raises ReleaseError, InstanceError, OSError."""
    params = module.params
    check_numbers(params)
    paths = InstancePaths(
        params["instance"], params["state_dir"], etc_dir=params["etc_dir"], unit_dir=params["unit_dir"]
    )
    if params["state"] == "inspected":
        return inspect(paths)
    if module.check_mode:
        return deploy(module, paths, audit)
    # Patches are common to all instances: two tasks must not decide upon the same files at once.
    with locked(Path(params["state_dir"]), _LOCK_TIMEOUT):
        return deploy(module, paths, audit)


def deploy(module: AnsibleModule, paths: InstancePaths, audit: AuditLog) -> Dict[str, Any]:
    """Make the releases as they shall be.  Raises ReleaseError, OSError."""
    plan = make_plan(module.params, paths, datetime.now(timezone.utc))
    # What the release holds may be secret too, when it was not given to this run.
    settle_hidden_values(module.no_log_values, plan.release.environment, plan.release.secret_args)
    changed_sources = [change.path for change in plan.patches.files]
    for text in sharing_warnings(plan.release, paths, changed_sources):
        module.warn(text)
    for path in plan.patches.forgotten:
        module.warn(f"{path} is not as its patch left it: somebody else has replaced it, so it stays as it is.")
    result: Dict[str, Any] = {
        "changed": plan.changes,
        "files": [str(item.path) for item in plan.files],
        "patched": [{"path": str(change.path), "restored": not change.forward} for change in plan.patches.files],
        "removed": [folder.name for folder in plan.remove],
        "release": {
            "id": plan.release.id,
            "path": str(paths.release_dir(plan.release.id) / FILE_NAME),
            "previous_id": linked_id(paths.current_link),
            "last_good_id": plan.last_good or linked_id(paths.last_good_link),
            "manager": plan.release.manager,
            "restart_needed": plan.restart_needed,
        },
    }
    if module._diff and plan.changes:
        result["diff"] = difference(plan, paths, _before(paths))
    if not module.check_mode:
        apply(plan, paths, audit, module.params["state"])
    return result


def inspect(paths: InstancePaths) -> Dict[str, Any]:
    """What there is.  Raises OSError."""
    current = linked_id(paths.current_link)
    entries = list_releases(paths)
    managers = [entry.release.manager for entry in entries if entry.current and entry.release is not None]
    return {
        "changed": False,
        "files": [],
        "patched": [],
        "removed": [],
        "releases": [entry.to_dict() for entry in entries],
        "release": {
            "id": current,
            "path": None if current is None else str(paths.release_dir(current) / FILE_NAME),
            "previous_id": current,
            "last_good_id": linked_id(paths.last_good_link),
            "manager": managers[0] if managers else None,
            "restart_needed": False,
        },
    }


def main(module_class: Type[AnsibleModule] = AnsibleModule) -> None:
    """Run the module; module_class makes it out of its options."""
    module = module_class(
        argument_spec=argument_spec(),
        required_if=[("state", "present", ["command"])],
        supports_check_mode=True,
    )
    settle_hidden_values(module.no_log_values, module.params["environment"], module.params["secret_args"])
    audit = AuditLog.of_module(module)
    try:
        try:
            result = run(module, audit)
        finally:
            for warning in audit.problems:
                module.warn(warning)
    except (ReleaseError, InstanceError, PatchError, ContainerError) as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        name = error.filename or "A file"
        module.fail_json(msg=f"{name} cannot be used: {error.strerror}. Run as root, or choose other folders.")
    module.exit_json(**result)
