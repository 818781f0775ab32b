# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""All checks of a configuration, in one go, while the old server serves.

Everything that looks at the host comes in through `Host`, so that tests decide what is there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import GpuReading
from ansible_collections.inferops.sglang.plugins.module_utils.sglang import parser_probe
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.arguments import (
    Settings,
    build_argv,
    check_extra_args,
    check_secret_args,
    requested_fields,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import (
    Check,
    failed,
    failures,
    ok,
    skipped,
    warning,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.effective import (
    adjusted_fields,
    check_adjusted,
    effective_from_parser,
    effective_without_parser,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.gpu_assignment import Assignment, assign
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.host_checks import (
    check_account,
    check_folders,
    check_shared_memory,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import SYSTEMD, InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.interpreter import DEFAULT_PATH, find_interpreter
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.launch_environment import check_environment
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.models_dir import check_draft_fits, inspect_model
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.ports import check_port
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import (
    redact_argv,
    redact_environment,
    redact_text,
    secrets_of,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import (
    Release,
    ReleaseError,
    read_current,
    read_last_good,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.running import (
    Running,
    RunningError,
    find_running,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.server_process import base_environment
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.speculation import (
    check_speculation,
    implied_draft_tokens,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.unit_state import Runner
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs

AUTO = "auto"
REQUIRED = "required"
SKIP = "skip"

# Of the operator's session these reach the parser where systemd will run the server: the rest of the
# session would not reach the server either.
_SESSION_VARIABLES = ("HOME", "LANG", "LOGNAME", "USER")


class GpusUnknown(Exception):
    """The host's GPUs cannot be listed; the message has the remedy."""


@dataclass(frozen=True)
class Request:
    """What was asked for.  environment and secret_args hold plain values; parser_timeout is in seconds."""

    settings: Settings
    paths: InstancePaths
    manager: str
    python: str
    launch: Tuple[str, ...]
    gpus: Tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    secret_args: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    working_directory: str = ""
    parser: str = AUTO
    parser_timeout: float = 180.0
    replace_foreign: bool = False


@dataclass(frozen=True)
class Host:
    """The host, as far as the checks look at it.

    list_gpus returns all GPUs or raises GpusUnknown; shared_memory is in MiB; session is the
    environment in which the checks run.
    """

    procfs: ProcFs
    list_gpus: Callable[[], Sequence[GpuReading]]
    run_command: Runner
    probe: Callable[[str, Sequence[str], Mapping[str, str], float, Sequence[str]], parser_probe.ProbeResult]
    shared_memory: Callable[[], Optional[int]]
    session: Mapping[str, str]


@dataclass(frozen=True)
class Outcome:
    """The module's result `sglang`, and everything that was found."""

    facts: Dict[str, Any]
    checks: List[Check]


@dataclass(frozen=True)
class _State:
    """The instance as it is."""

    current: Optional[Release]
    last_good: Optional[Release]
    running: Running
    checks: List[Check]


def run_preflight(request: Request, host: Host) -> Outcome:
    """Check everything; problems are collected, never raised."""
    settings = request.settings
    state = _read_state(request, host)
    python, python_problem = find_interpreter(
        request.python, request.environment.get("PATH") or host.session.get("PATH", "")
    )
    checks = list(state.checks)
    # What the parser would only repeat in its own words.
    basics = [failed("python", python_problem)] if python_problem else [ok("python", f"python: {python}.")]
    basics += _check_numbers(settings)
    basics += check_extra_args(settings) + check_secret_args(request.secret_args, settings)
    basics += check_speculation(settings) + _check_models(settings)
    checks += basics

    assignment = _assign(request, host)
    environment = dict(request.environment, **assignment.environment)
    checks += assignment.checks
    checks += check_account(request.user, request.working_directory)
    checks += check_folders(request.paths, request.manager, bool(request.secret_args), request.replace_foreign)
    checks += check_shared_memory(host.shared_memory())
    checks += check_port(
        settings.host,
        settings.port,
        host.procfs.listeners,
        host.procfs.read,
        state.running.owns,
    )

    usable = not failures(basics + check_environment(request.environment, ""))
    answer = _ask_parser(request, host, python, environment) if usable else None
    checks += _judge(answer, request)
    version = answer.version if answer is not None else ""
    checks += check_environment(request.environment, version)
    requested, effective = _fields(settings, answer)
    adjusted = adjusted_fields(requested, effective)
    if answer is not None and answer.status == parser_probe.ACCEPTED:
        # The rules of speculation have explained this one.
        known = {"speculative_num_draft_tokens"} if implied_draft_tokens(settings) is not None else set()
        checks += check_adjusted({name: values for name, values in adjusted.items() if name not in known})
    return Outcome(
        {
            "instance": request.paths.instance,
            "version": version,
            "command": redact_argv([python, *request.launch, *build_argv(settings)]),
            "environment": redact_environment(environment),
            "requested": requested,
            "effective": effective,
            "adjusted": adjusted,
            "gpus": assignment.uuids,
            "parser": _parser_in_words(answer, request, usable),
            "running": state.running.to_dict(),
            "has_last_good": state.last_good is not None,
        },
        checks,
    )


# -- the instance


def _read_state(request: Request, host: Host) -> _State:
    paths, checks = request.paths, []
    releases: List[Optional[Release]] = []
    for read in (read_current, read_last_good):
        try:
            releases.append(read(paths))
        except ReleaseError as error:
            releases.append(None)
            checks.append(failed("instance", str(error)))
    running = Running(request.manager)
    try:
        running = find_running(paths, request.manager, host.procfs, host.run_command)
        checks += _check_other_manager(request, host, releases[0])
    except RunningError as error:
        checks.append(failed("instance", str(error)))
    if not checks:
        what = f"runs as PID {running.process.pid}" if running.process is not None else "does not run"
        checks.append(ok("instance", f"{paths.instance} {what}."))
    return _State(releases[0], releases[1], running, checks)


def _check_other_manager(request: Request, host: Host, current: Optional[Release]) -> List[Check]:
    """A server that another manager runs would not be stopped."""
    if current is None or current.manager == request.manager:
        return []
    try:
        other = find_running(request.paths, current.manager, host.procfs, host.run_command)
    except RunningError:
        return []  # no systemd here any more, so it runs nothing
    if other.process is None:
        return []
    return [
        failed(
            "instance",
            f"{request.paths.instance} runs as PID {other.process.pid} under the manager {current.manager}, "
            f"and manager is {request.manager}: stop it first, or set manager to {current.manager}.",
        )
    ]


# -- options


def _check_numbers(settings: Settings) -> List[Check]:
    found = [
        failed("options", f"{name} is {getattr(settings, name)}: it must be at least 1.")
        for name in ("tp_size", "pp_size", "dp_size", "max_running_requests")
        if getattr(settings, name) is not None and getattr(settings, name) < 1
    ]
    fraction = settings.mem_fraction_static
    if fraction is not None and not 0 < fraction < 1:
        found.append(failed("options", f"mem_fraction_static is {fraction:g}: it must lie between 0 and 1."))
    if settings.served_model_name is not None and ":" in settings.served_model_name:
        found.append(failed("options", f"served_model_name {settings.served_model_name!r} must not contain ':'."))
    return found


def _check_models(settings: Settings) -> List[Check]:
    load_format = settings.extra_value("--load-format")
    own_tokenizer = settings.extra_value("--tokenizer-path", "--skip-tokenizer-init") is None
    target, checks = inspect_model("model_path", settings.model_path, str(load_format or ""), own_tokenizer)
    algorithm, path = settings.speculative_algorithm, settings.speculative_draft_model_path
    if algorithm is None:
        return checks
    if path is None:
        return checks + _check_own_draft(algorithm, target.value("num_nextn_predict_layers"), target.config)
    draft_format = settings.extra_value("--speculative-draft-load-format") or load_format
    draft, found = inspect_model("speculative_draft_model_path", path, str(draft_format or ""))
    return checks + found + check_draft_fits(algorithm, target, draft)


def _check_own_draft(algorithm: str, draft_layers: Any, config: Optional[Mapping[str, Any]]) -> List[Check]:
    """EAGLE without a draft model is for models that carry one, such as the DeepSeek family."""
    if algorithm not in ("EAGLE", "NEXTN") or config is None or draft_layers:
        return []
    return [
        warning(
            "speculative_draft_model_path",
            f"speculative_algorithm {algorithm} without speculative_draft_model_path works only for a model that has "
            "draft layers of its own, and config.json of this one names none.",
        )
    ]


# -- GPUs


def _assign(request: Request, host: Host) -> Assignment:
    if any(getattr(request.settings, name) < 1 for name in ("tp_size", "pp_size", "dp_size")):
        return Assignment()  # reported already
    try:
        devices = host.list_gpus()
    except GpusUnknown as error:
        return Assignment(checks=[failed("gpus", str(error))])
    return assign(request.settings, request.gpus, request.environment, devices)


# -- the parser


def _ask_parser(
    request: Request, host: Host, python: str, environment: Mapping[str, str]
) -> Optional[parser_probe.ProbeResult]:
    if request.parser == SKIP:
        return None
    argv = build_argv(request.settings)
    if request.manager == SYSTEMD:
        base = {name: host.session[name] for name in _SESSION_VARIABLES if name in host.session}
        base["PATH"] = DEFAULT_PATH
    else:
        base = base_environment(host.session, None)
    return host.probe(python, argv, dict(base, **environment), request.parser_timeout, sorted(request.secret_args))


def _judge(answer: Optional[parser_probe.ProbeResult], request: Request) -> List[Check]:
    name = "parser"
    if answer is None:
        why = "it was told not to" if request.parser == SKIP else "other problems come first"
        return [skipped(name, f"SGLang's own parser was not asked: {why}.")]
    message = redact_text(answer.message, secrets_of((), request.environment) | set(request.secret_args.values()))
    if answer.status == parser_probe.ACCEPTED:
        return [ok(name, f"SGLang {answer.version} accepts the arguments.")]
    if answer.status == parser_probe.REFUSED:
        return [failed(name, f"SGLang {answer.version} refuses the arguments: {message}")]
    if answer.status == parser_probe.NO_SGLANG and _launches_sglang(request.launch):
        return [failed(name, f"python: {request.python} has no SGLang ({message}): give the interpreter that has it.")]
    if answer.status in (parser_probe.NO_SGLANG, parser_probe.NO_PARSER):
        text = f"SGLang's own parser cannot be used with {request.python}: {message}."
        return [failed(name, text) if request.parser == REQUIRED else warning(name, f"{text} Own rules only.")]
    return [failed(name, f"SGLang's own parser {message} Raise parser_timeout, or set parser to skip.")]


def _launches_sglang(launch: Sequence[str]) -> bool:
    return len(launch) > 1 and launch[0] == "-m" and launch[1].split(".")[0] == "sglang"


def _parser_in_words(answer: Optional[parser_probe.ProbeResult], request: Request, usable: bool) -> str:
    if answer is None:
        return (
            "not run: other problems come first" if not usable and request.parser != SKIP else "not run: parser is skip"
        )
    if answer.status in (parser_probe.ACCEPTED, parser_probe.REFUSED):
        return f"sglang {answer.version}".strip()
    return f"not run: {answer.status.replace('_', ' ')}"


def _fields(settings: Settings, answer: Optional[parser_probe.ProbeResult]) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """What was asked and what comes of it."""
    requested = requested_fields(settings)
    if answer is None or answer.status != parser_probe.ACCEPTED:
        return requested, effective_without_parser(settings)
    return requested, effective_from_parser(answer.fields, requested, answer.assumed_device)
