# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of adaptive speculation, which SGLang switches off with nothing but a line in its log.

A configuration maps batch sizes to candidate numbers of steps, 0 for no speculation; the entry of the
largest batch size that is not above the running batch counts.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import Check, failed, warning
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import Settings
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.gpu_assignment import attention_dp
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.launch_environment import (
    version_tuple,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.speculation import (
    DEFAULT_MAX_RUNNING_REQUESTS,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.speculative_options import (
    ADAPTIVE,
    ADAPTIVE_CONFIG,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system import bounded_json, regular_file

_NAME = "adaptive"
_OPTION = "speculative_options.adaptive_config"
_FIRST_VERSION = (0, 5, 11)
# Before it there was one list of steps for all batch sizes.
_BATCH_SIZES_SINCE = (0, 5, 13)
# Before it speculation could not be switched off for large batches.
_NO_STEPS_SINCE = (0, 5, 14)
# The largest batch size of SGLang's own configuration: no speculation from there on.
_DEFAULT_LARGEST = 64

_ALGORITHMS = frozenset(["EAGLE", "EAGLE3", "NEXTN"])
_STEPS = "candidate_steps"
# May stand beside candidate_steps, or at the top as a default for all.
_NUMBERS = ("ceiling_coeff", "down_hysteresis", "ema_alpha", "up_hysteresis", "update_interval", "warmup_batches")
_WHOLE_NUMBERS = frozenset(["update_interval", "warmup_batches"])
_FREE_KEYS = frozenset(["strategy"])
# Flags with which SGLang drops adaptive speculation, or refuses the two together.
_CONFLICTS = (
    ("--enable-multi-layer-eagle", "multi-layer EAGLE"),
    ("--enable-two-batch-overlap", "two-batch overlap"),
    ("--enable-pdmux", "multiplexing of prefill and decode"),
    ("--enable-lora", "LoRA"),
    ("--lora-paths", "LoRA"),
    ("--enable-hisparse", "HiSparse"),
)


def check_adaptive(settings: Settings, version: str, on_host: bool = True) -> List[Check]:
    """Everything about adaptive speculation but its effect; version is "" where it is not known.

    on_host: whether the files that the options name are those of this host.
    """
    options = settings.speculative_options
    on = ADAPTIVE in options or settings.extra_value("--speculative-adaptive") is not None
    given = options.get(ADAPTIVE_CONFIG)
    if not on:
        if given is None:
            return []
        return [failed(_NAME, f"{_OPTION} without speculative_options.adaptive: SGLang would not read it.")]
    found = _check_settings(settings, version)
    config = settings.adaptive_config
    if config is None and given is not None and on_host:
        config, problems = _read(str(given))
        found += problems
    if config is not None:
        found += _check_config(config, settings, version_tuple(version))
    return found


def _check_settings(settings: Settings, version: str) -> List[Check]:
    off = "SGLang would switch adaptive speculation off with nothing but a line in its log"
    found = []
    numbers = version_tuple(version)
    if numbers and numbers < _FIRST_VERSION:
        found.append(
            failed(_NAME, f"SGLang {version} has no adaptive speculation: it came with 0.5.11. Remove the option.")
        )
    algorithm = settings.speculative_algorithm
    if algorithm not in _ALGORITHMS:
        found.append(failed(_NAME, f"Adaptive speculation with speculative_algorithm {algorithm}: {off}. Use EAGLE3."))
    topk = settings.speculative_eagle_topk
    if topk not in (None, 1):
        found.append(failed(_NAME, f"Adaptive speculation with speculative_eagle_topk {topk}: {off}. Set it to 1."))
    for option, what in _conflicts(settings):
        found.append(failed(_NAME, f"Adaptive speculation with {what} ({option}): {off}, or die. Remove one of them."))
    return found


def _conflicts(settings: Settings) -> List[Tuple[str, str]]:
    found = [(option, what) for option, what in _CONFLICTS if settings.extra_value(option) is not None]
    if attention_dp(settings):
        found.append(("--enable-dp-attention, --attn-dp-size", "attention-DP"))
    if settings.pp_size > 1:
        found.append((f"pp_size {settings.pp_size}", "pipeline parallelism"))
    return found


def _read(path: str) -> Tuple[Optional[Mapping[str, Any]], List[Check]]:
    if not path.startswith("/"):
        return None, [failed(_NAME, f"{_OPTION}: {path} is no absolute path: give one, or the configuration itself.")]
    try:
        config = bounded_json.loads(regular_file.read_text(path))
    except OSError as error:
        return None, [failed(_NAME, f"{_OPTION}: {path} cannot be read: {error.strerror}.")]
    except ValueError as error:
        return None, [failed(_NAME, f"{_OPTION}: {path} is not valid JSON: {error}.")]
    if not isinstance(config, dict):
        return None, [failed(_NAME, f"{_OPTION}: {path} is not a JSON object.")]
    return config, []


def _check_config(config: Mapping[str, Any], settings: Settings, version: Tuple[int, ...]) -> List[Check]:
    sizes, problems = _by_batch_size(config)
    found = [failed(_NAME, f"{_OPTION}: {problem}") for problem in problems]
    flat = config.get(_STEPS)
    old = bool(version) and version < _BATCH_SIZES_SINCE
    if old and sizes:
        found.append(
            failed(
                _NAME,
                f"{_OPTION} has batch sizes, which SGLang knows from 0.5.13 on: before it takes {_STEPS} at the top.",
            )
        )
    elif not sizes and not problems and not (old and flat is not None):
        found.append(failed(_NAME, f'{_OPTION} has no batch size: write for example {{"1": {{"{_STEPS}": [1, 3]}}}}.'))
    steps: Set[int] = set().union(*sizes.values()) if sizes else set(_steps_of(flat) or ())
    if 0 in steps and version and version < _NO_STEPS_SINCE:
        found.append(failed(_NAME, f"{_OPTION}: 0 in {_STEPS}, for no speculation, needs SGLang 0.5.14 or newer."))
    start = settings.speculative_num_steps
    if steps and start is not None and start not in steps:
        found.append(
            failed(
                _NAME,
                f"speculative_num_steps {start} is in no {_STEPS} of {_OPTION} "
                f"({', '.join(map(str, sorted(steps)))}): take one of these.",
            )
        )
    return found


def _by_batch_size(config: Mapping[str, Any]) -> Tuple[Dict[int, List[int]], List[str]]:
    """The candidate steps of each batch size, and what is wrong with the rest."""
    sizes: Dict[int, List[int]] = {}
    problems: List[str] = []
    for name, entry in config.items():
        text = str(name)
        if not (text.isdigit() and text.isascii()):
            problems += _check_top(text, entry)
        elif int(text) < 1:
            problems.append(f"batch size {text} must be at least 1.")
        elif not isinstance(entry, Mapping):
            problems.append(f"batch size {text} must be a dictionary with {_STEPS}.")
        else:
            steps = _steps_of(entry.get(_STEPS))
            if steps is None:
                problems.append(f"batch size {text} needs {_STEPS}, a list of whole numbers from 0 up.")
            else:
                sizes[int(text)] = steps
            for key, value in entry.items():
                if key != _STEPS:
                    problems += _check_number(f"batch size {text}: ", str(key), value)
    return sizes, problems


def _check_top(name: str, value: Any) -> List[str]:
    if name in _FREE_KEYS:
        return []
    if name == _STEPS:
        return [] if _steps_of(value) is not None else [f"{_STEPS} must be a list of whole numbers from 0 up."]
    return _check_number("", name, value)


def _check_number(where: str, name: str, value: Any) -> List[str]:
    if name not in _NUMBERS:
        return [f"{where}{name!r} is neither a batch size nor one of {', '.join((_STEPS, *_NUMBERS))}."]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return [f"{where}{name} is {value!r}: give a number."]
    if name in _WHOLE_NUMBERS and (not isinstance(value, int) or value < (1 if name == "update_interval" else 0)):
        return [f"{where}{name} is {value!r}: give a whole number, a positive one for update_interval."]
    if name == "ema_alpha" and not 0 < value <= 1:
        return [f"{where}{name} is {value!r}: it must be above 0 and at most 1."]
    return []


def _steps_of(value: Any) -> Optional[List[int]]:
    whole = isinstance(value, list) and all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in value)
    return list(value) if whole and value else None


def check_reach(settings: Settings, effective: Mapping[str, Any], on_host: bool = True) -> List[Check]:
    """Batch sizes that never occur, because fewer requests run at a time."""
    if effective.get("speculative_adaptive") is not True:
        return []
    limit = effective.get("max_running_requests") or DEFAULT_MAX_RUNNING_REQUESTS
    config = settings.adaptive_config
    given = settings.speculative_options.get(ADAPTIVE_CONFIG)
    if config is None and given is not None and on_host:
        config = _read(str(given))[0]
    sizes = sorted(_by_batch_size(config)[0]) if config is not None else [] if given is not None else [_DEFAULT_LARGEST]
    unreached = [str(size) for size in sizes if size > limit]
    if not unreached:
        return []
    whose = "adaptive_config" if given is not None else "SGLang's own adaptive configuration"
    return [
        warning(
            _NAME,
            f"At most {limit} requests run at a time, so the batch size {' and '.join(unreached)} of {whose} is never "
            "reached: raise max_running_requests, or remove it.",
        )
    ]


def check_kept(requested: Mapping[str, Any], effective: Mapping[str, Any], parsed: bool) -> List[Check]:
    """Whether adaptive speculation is left after SGLang has looked at everything; parsed: whether it has."""
    if requested.get("speculative_adaptive") is not True or parsed or "speculative_eagle_topk" in requested:
        return []
    return [
        warning(
            _NAME,
            "speculative_options.adaptive without speculative_eagle_topk: some versions choose a top-k with which they "
            "switch it off. Set speculative_num_steps, speculative_eagle_topk to 1, and speculative_num_draft_tokens.",
        )
    ]
