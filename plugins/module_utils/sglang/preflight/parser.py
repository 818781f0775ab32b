# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What SGLang's own parser is asked, and what its answer means."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import (
    Check,
    failed,
    ok,
    skipped,
    warning,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration import parser_probe
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.adaptive import (
    check_adaptive,
    check_kept,
    check_reach,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import (
    build_argv,
    requested_fields,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.effective import (
    adjusted_fields,
    check_adjusted,
    effective_from_parser,
    effective_without_parser,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.known_options import (
    check_option_names,
    sources_of,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.parser_probe import ProbeResult
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.speculation import (
    check_worker,
    implied_draft_tokens,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.run import probe_words
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.settings import ContainerError
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.patches import targets_of
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.request import (
    REQUIRED,
    SKIP,
    Host,
    Request,
    probe_environment,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import redact_text, secrets_of

_NAME = "parser"
_SKIP = "set parser to skip"
_WITHOUT = "Set parser to skip to do without it."


def ask_parser(
    request: Request, host: Host, python: str, environment: Mapping[str, str], gpus: Sequence[str]
) -> Optional[ProbeResult]:
    """Ask it, in the container where there is one; None where it is not to be asked.

    gpus are the UUIDs of those that the server will use.  A container is given them too: without a GPU, SGLang
    refuses what only certain GPUs can do.
    """
    if request.parser == SKIP:
        return None
    settings = request.settings
    options: Dict[str, Any] = {
        "secret_args": sorted(request.secret_args),
        "targets": targets_of(request.patches),
    }
    if settings.files:
        folder = request.paths.current_link
        options["files"] = {str(folder / name): text for name, text in settings.files.items()}
    container = request.container
    if container is not None:
        user = request.user

        def wrap(words: List[str], variables: Mapping[str, str]) -> List[str]:
            return probe_words(container, (), variables, words[0], gpus, user)

        options["wrap"] = wrap
    try:
        return host.probe(
            python,
            build_argv(settings),
            dict(probe_environment(request, host), **environment),
            request.parser_timeout,
            **options,
        )
    except ContainerError as error:
        return ProbeResult(parser_probe.BROKEN, message=f"could not be asked: {error}.")


def judge(answer: Optional[ProbeResult], request: Request) -> List[Check]:
    """The parser's own opinion."""
    if answer is None:
        why = "it was told not to" if request.parser == SKIP else "other problems come first"
        return [skipped(_NAME, f"SGLang's own parser was not asked: {why}.")]
    message = redact_text(answer.message, secrets_of((), request.environment, request.secret_args))
    if answer.status == parser_probe.ACCEPTED:
        return [ok(_NAME, f"SGLang {answer.version} accepts the arguments.")]
    if answer.status == parser_probe.REFUSED:
        unseen = f" It saw no GPU: where that is why, {_SKIP}." if answer.assumed_device else ""
        return [failed(_NAME, f"SGLang {answer.version} refuses the arguments: {message}{unseen}")]
    if answer.status == parser_probe.NO_SGLANG and _launches_sglang(request.launch):
        return [failed(_NAME, f"python: {request.python} has no SGLang ({message}): give the interpreter that has it.")]
    if answer.status in (parser_probe.NO_SGLANG, parser_probe.NO_PARSER):
        text = f"SGLang's own parser cannot be used with {request.python}: {message}."
        return [failed(_NAME, text) if request.parser == REQUIRED else warning(_NAME, f"{text} Own rules only.")]
    remedy = "Raise parser_timeout, or set parser to skip." if answer.status == parser_probe.HUNG else _WITHOUT
    return [failed(_NAME, f"SGLang's own parser {message} {remedy}")]


def _launches_sglang(launch: Sequence[str]) -> bool:
    return len(launch) > 1 and launch[0] == "-m" and launch[1].split(".")[0] == "sglang"


def in_words(answer: Optional[ProbeResult], request: Request) -> str:
    """Whose parser judged, or why none did."""
    if answer is None:
        return "not run: parser is skip" if request.parser == SKIP else "not run: other problems come first"
    if answer.status in (parser_probe.ACCEPTED, parser_probe.REFUSED):
        return f"sglang {answer.version}".strip()
    return f"not run: {answer.status.replace('_', ' ')}"


def accepted(answer: Optional[ProbeResult]) -> bool:
    """Whether there is a result of the parser."""
    return answer is not None and answer.status == parser_probe.ACCEPTED


def fields_of(request: Request, answer: Optional[ProbeResult]) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """What was asked for and what comes of it."""
    requested = requested_fields(request.settings)
    if answer is None or answer.status != parser_probe.ACCEPTED:
        return requested, effective_without_parser(request.settings)
    return requested, effective_from_parser(answer.fields, requested, answer.assumed_device)


def check_result(
    request: Request, answer: Optional[ProbeResult], requested: Mapping[str, Any], effective: Mapping[str, Any]
) -> List[Check]:
    """What the answer says beyond yes and no: names, adjusted values, the worker, adaptive speculation."""
    settings = request.settings
    version = answer.version if answer is not None else ""
    on_host = request.container is None
    checks: List[Check] = []
    if answer is not None:
        sources = sources_of(sorted(requested), list(settings.speculative_options), sorted(request.secret_args))
        for option in settings.extra_options:
            sources.pop(option.name, None)
        checks += check_option_names(
            build_argv(settings), sorted(request.secret_args), answer.options, sources, version
        )
    checks += check_adaptive(settings, version, on_host) + check_reach(settings, effective, on_host)
    checks += check_kept(requested, effective, accepted(answer))
    if accepted(answer):
        # The rules of speculation have explained this one.
        known = {"speculative_num_draft_tokens"} if implied_draft_tokens(settings) is not None else set()
        adjusted = adjusted_fields(requested, effective)
        checks += check_adjusted({name: values for name, values in adjusted.items() if name not in known})
        checks += check_worker(request.environment, effective, version)
    return checks
