# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks a release that is kept on the host, before a server goes back to it.

It has served once, so what may have changed since is what counts: the interpreter and its SGLang, the
models, the GPUs, the port, the other instances.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import FAILED, Check, warning
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration import speculative_options
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import (
    Settings,
    parse_extra_args,
    structured_option,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.configuration_changes import (
    describe_changes,
    diff_of,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.settings import ContainerSettings
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.preflight import Outcome, run_preflight
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.request import Host, Request
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import redact_argv, redact_environment
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import (
    Release,
    ReleaseError,
    read_current,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.releases.listing import find_release

# Settings that stay text, whatever they look like.
_TEXT = frozenset(["model_path", "served_model_name", "host", "speculative_draft_model_path", "speculative_algorithm"])
# Rules about what makes sense: a release that has served breaks them knowingly.
_ADVICE = frozenset(["adaptive", "arguments", "environment", "options", "speculation"])


def check_kept(wanted: str, request: Request, host: Host) -> Outcome:
    """Check the release that `wanted` means; of the request, what is not of a release counts.

    Raises ReleaseError where there is no such release.
    """
    paths = request.paths
    release = find_release(paths, wanted)
    outcome = run_preflight(request_of(release, request), host)
    try:
        current = read_current(paths)
    except ReleaseError:  # of no interest when going back from it; the checks have it
        current = None
    facts = dict(
        outcome.facts,
        release=release.id,
        command=redact_argv(release.command),
        environment=redact_environment(release.environment),
        requested=release.requested,
        files=dict(release.files),
        patches=release.patches,
        changes=describe_changes(current, release),
    )
    checks = [_advice(check) for check in outcome.checks] + _check_version(release, outcome.facts["version"])
    return Outcome(facts, checks, diff_of(current, release))


def _advice(check: Check) -> Check:
    return warning(check.name, check.message) if check.status == FAILED and check.name in _ADVICE else check


def _check_version(release: Release, version: str) -> List[Check]:
    before = release.sglang_version
    if not before or not version or before == version:
        return []
    return [
        warning(
            "version",
            f"The release {release.id} was made with SGLang {before} and the host now has {version}: what the server "
            "makes of it may differ, and then it counts as not proven.",
        )
    ]


def request_of(release: Release, base: Request) -> Request:
    """The request that gives this release; paths, parser and policies are those of `base`."""
    python, launch, arguments = split_command(release.command)
    container = ContainerSettings.from_dict(release.container) if release.container else None
    return replace(
        base,
        settings=settings_of(without_secrets(arguments, release, base.paths), release),
        manager=release.manager,
        python=python,
        launch=launch,
        # Inside a container they count from 0, so their UUIDs tell; on the host the environment does.
        gpus=tuple(release.gpus) if container is not None else (),
        environment=release.environment if container is None else _without_devices(release.environment),
        secret_args=release.secret_args,
        user=release.user,
        working_directory=release.working_directory,
        container=container,
        # Whether they can be applied again is found when the release is put back.
        patches=(),
    )


def split_command(command: Sequence[str]) -> Tuple[str, Tuple[str, ...], List[str]]:
    """Interpreter, what it runs, and the arguments, which begin with the first long option."""
    first = next((number for number, word in enumerate(command) if word.startswith("--")), len(command))
    return command[0], tuple(command[1:first]), list(command[first:])


def without_secrets(arguments: Sequence[str], release: Release, paths: InstancePaths) -> List[str]:
    """The arguments without the file that brings the secret ones, which the manager adds."""
    words = list(arguments)
    if release.secret_args and words[-2:] == ["--config", str(paths.secret_args_file)]:
        return words[:-2]
    return words


def settings_of(arguments: Sequence[str], release: Release) -> Settings:
    """A command line taken apart again."""
    options, stray = parse_extra_args(arguments)
    fields: Dict[str, Any] = {}
    further: Dict[str, Any] = {}
    extra = list(stray)
    for option in options:
        name = structured_option(option.name)
        start = speculative_options.PREFIX
        if name and name not in fields and len(option.values) == 1:
            fields[name] = option.values[0] if name in _TEXT else option.value
        elif option.field.startswith(start) and not name:
            further[option.field[len(start) :]] = list(option.values) if len(option.values) > 1 else option.value
        else:
            extra += option.words
    fields.setdefault("host", release.host)
    fields.setdefault("port", release.port)
    return Settings(
        **{"model_path": "", **fields},
        extra_args=tuple(extra),
        speculative_options=further,
        files=release.files,
    )


def _without_devices(environment: Dict[str, str]) -> Dict[str, str]:
    return {
        name: value for name, value in environment.items() if name not in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
    }
