# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""All checks of a configuration, in one go, while the old server serves.

Everything that looks at the host comes in through `Host`, so that tests decide what is there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import Check, failed, failures, ok
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.adaptive import check_adaptive
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import (
    Settings,
    build_argv,
    check_extra_args,
    check_secret_args,
    check_speculative_options,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.configuration_changes import (
    describe_changes,
    diff_of,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.effective import (
    adjusted_fields,
    effective_without_parser,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.launch_environment import (
    check_environment,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.measured import check_measured
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.speculation import check_speculation
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import SYSTEMD
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.interpreter import find_interpreter
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.concurrency_checks import (
    check_graphs,
    check_same_limit,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.container_checks import (
    check_container,
    settle,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.gpus import assign_gpus
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.host import check_host
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.instance import (
    read_state,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.models import (
    check_inheritance,
    locate_with,
    look_at_models,
    model_paths,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.others import look_around
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.parser import (
    ask_parser,
    check_result,
    fields_of,
    in_words,
    judge,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.patches import (
    check_wanted_patches,
    located_patches,
    patches_shown,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.probe_checks import check_probes
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.request import (
    Host,
    Request,
    inherited_environment,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.tls_checks import check_tls, files_of
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import redact_argv, redact_environment
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release


@dataclass(frozen=True)
class Outcome:
    """The module's result `sglang`, everything that was found, and the diff for Ansible's diff mode."""

    facts: Dict[str, Any]
    checks: List[Check]
    diff: Dict[str, str]


def run_preflight(request: Request, host: Host) -> Outcome:
    """Check everything; problems are collected, never raised."""
    settings = request.settings
    if request.container is not None:
        settled = settle(request.container, _paths_read(request), host.run_command)
        request = replace(request, container=settled)
    state = read_state(request, host)
    assignment = assign_gpus(request, host)
    environment = dict(request.environment, **assignment.environment)
    python, basics = _check_interpreter(request, host, assignment.uuids)
    # What the parser would only repeat in its own words.
    basics += _check_numbers(settings)
    basics += check_extra_args(settings) + check_speculative_options(settings)
    basics += check_secret_args(request.secret_args, settings)
    basics += check_speculation(settings) + check_adaptive(settings, "", request.container is None)
    models = look_at_models(settings, locate_with(request.container))
    basics += models.checks
    basics += _check_serving(request, effective_without_parser(settings))

    checks = [*state.checks, *basics, *assignment.checks]
    inherited = inherited_environment(request, host)
    checks += check_host(request, host, state.running, dict(inherited, **environment), models.folders)
    others = look_around(request, host, state.running, assignment.uuids)
    checks += others.checks

    usable = not failures(basics + check_environment(request.environment, ""))
    answer = ask_parser(request, host, python, environment, assignment.uuids) if usable else None
    version = answer.version if answer is not None else ""
    requested, effective = fields_of(request, answer)
    checks += judge(answer, request)
    checks += check_environment(request.environment, version, settings.host, inherited)
    checks += check_result(request, answer, requested, effective) + _check_serving(request, effective)
    checks += check_measured(request.measured, settings, version)
    checks += check_inheritance(settings, models, effective)
    checks += check_same_limit(effective, state.current.effective if state.current is not None else None)
    checks += check_graphs(settings, effective)
    checks += check_wanted_patches(request, answer, effective)

    patches = located_patches(request, answer)
    command = [python, *request.launch, *build_argv(settings)]
    wanted = _release(request, command, environment, [patch.to_release() for patch in patches])
    facts = {
        "instance": request.paths.instance,
        "release": "",
        "version": version,
        "command": redact_argv(command),
        "environment": redact_environment(environment),
        "requested": requested,
        "effective": effective,
        "adjusted": adjusted_fields(requested, effective),
        "gpus": assignment.uuids,
        "files": dict(settings.files),
        "container": wanted.container,
        "patches": patches_shown(patches),
        "parser": in_words(answer, request),
        "running": state.running.to_dict(),
        "neighbours": others.neighbours,
        "unmanaged": others.unmanaged,
        "has_last_good": state.last_good is not None,
        "changes": describe_changes(state.current, wanted),
    }
    return Outcome(facts, _without_repetition(checks), diff_of(state.current, wanted))


def _check_interpreter(request: Request, host: Host, gpus: Sequence[str]) -> Tuple[str, List[Check]]:
    """The interpreter's path, and what is wrong with it or with the container that it is in."""
    container = request.container
    if container is not None:
        if request.manager != SYSTEMD:
            message = f"container needs manager {SYSTEMD}, whose unit runs it, and manager is {request.manager}."
            return request.python, [failed("container", message)]
        return request.python, check_container(container, request.paths, _paths_read(request), host.run_command, gpus)
    search_path = request.environment.get("PATH") or host.session.get("PATH", "")
    python, problem = find_interpreter(request.python, search_path)
    return python, [failed("python", problem)] if problem else [ok("python", f"python: {python}.")]


def _paths_read(request: Request) -> List[str]:
    """The absolute paths that the server reads, as far as its options name them."""
    return [*model_paths(request.settings), *files_of(request.settings, request.secret_args)]


def _check_serving(request: Request, fields: Mapping[str, Any]) -> List[Check]:
    """Whether the server will answer at all, and can be asked; fields are what SGLang makes of the request."""
    locate = locate_with(request.container)
    return check_probes(fields) + check_tls(request.settings, request.secret_args, fields, request.user, locate)


def _check_numbers(settings: Settings) -> List[Check]:
    found = [
        failed("options", f"{name} is {getattr(settings, name)}: it must be at least 1.")
        for name in ("tp_size", "pp_size", "dp_size", "max_running_requests")
        if getattr(settings, name) is not None and getattr(settings, name) < 1
    ]
    fraction = settings.mem_fraction_static
    if fraction is not None and not 0 < fraction < 1:
        found.append(failed("options", f"mem_fraction_static is {fraction:g}: it must lie between 0 and 1."))
    nodes = settings.extra_value("--nnodes")
    if isinstance(nodes, int) and nodes > 1 and settings.extra_value("--dist-init-addr", "--nccl-init-addr") is None:
        found.append(
            failed(
                "options",
                f"--nnodes {nodes} in extra_args without --dist-init-addr: the nodes would wait for each other without "
                "end. Add --dist-init-addr with the address of rank 0 and a free port.",
            )
        )
    if settings.served_model_name is not None and ":" in settings.served_model_name:
        found.append(failed("options", f"served_model_name {settings.served_model_name!r} must not contain ':'."))
    return found


def _release(
    request: Request, command: List[str], environment: Mapping[str, str], patches: List[Dict[str, Any]]
) -> Release:
    """The configuration as the release that would be made of it, as far as that is known before."""
    return Release(
        id="",
        created="",
        instance=request.paths.instance,
        manager=request.manager,
        # A release names the file of its secret arguments, who asks for one does not.
        command=command + (["--config", str(request.paths.secret_args_file)] if request.secret_args else []),
        environment=dict(environment),
        secret_args=dict(request.secret_args),
        user=request.user,
        working_directory=request.working_directory,
        container=request.container.to_dict() if request.container is not None else {},
        files=dict(request.settings.files),
        patches=patches,
    )


def _without_repetition(checks: List[Check]) -> List[Check]:
    """What was found before and after the parser was asked stands once."""
    return list(dict.fromkeys(checks))
