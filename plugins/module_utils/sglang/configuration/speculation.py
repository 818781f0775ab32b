# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of speculative decoding that SGLang's own parser does not enforce, or explains badly.

Without them such a server dies minutes after its start, or serves without speculating.
"""

from __future__ import annotations

from typing import Any, List, Mapping, Optional

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import Check, failed, ok, warning
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import (
    KNOWN_ALGORITHMS,
    SPECULATIVE_NUMBERS,
    Settings,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.launch_environment import (
    SPEC_V2,
    is_off,
    version_tuple,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.worker_files import used_workers

_NAME = "speculation"
# These cannot do without a draft model of their own.
_NEEDS_DRAFT = frozenset(["EAGLE3", "STANDALONE", "DFLASH"])
# These choose some of the three numbers themselves.
_OWN_NUMBERS = frozenset(["NGRAM", "DFLASH", "DSPARK", "UNO"])
# SGLang's own speculative_ngram_max_bfs_breadth.
_NGRAM_BREADTH = 10
# SGLang's limit on running requests while it speculates, where none is given.
DEFAULT_MAX_RUNNING_REQUESTS = 48


def implied_draft_tokens(settings: Settings) -> Optional[int]:
    """The number of draft tokens that SGLang will use, where a top-k of 1 leaves no choice."""
    if settings.speculative_algorithm in _OWN_NUMBERS or settings.speculative_eagle_topk != 1:
        return None
    return None if settings.speculative_num_steps is None else settings.speculative_num_steps + 1


def _check_tree(settings: Settings, algorithm: str) -> List[Check]:
    """More draft tokens than a tree has: SGLang cannot choose so many, and dies when it captures its graphs."""
    steps, topk, tokens = (getattr(settings, name) for name in SPECULATIVE_NUMBERS)
    if algorithm in _OWN_NUMBERS or None in (steps, topk, tokens) or steps < 1 or topk < 2:
        return []
    # The first step has topk candidates, each later one as many for each of topk; the token before them counts too.
    most = int(topk + (steps - 1) * topk * topk + 1)
    if tokens <= most:
        return []
    return [
        failed(
            _NAME,
            f"speculative_num_draft_tokens is {tokens}, and speculative_num_steps {steps} with speculative_eagle_topk "
            f"{topk} make a tree of {most}: the server would die after it has loaded the model. Give at most {most}.",
        )
    ]


def check_speculation(settings: Settings) -> List[Check]:
    """All rules that need nothing but the settings."""
    algorithm = settings.speculative_algorithm
    found = _check_numbers(settings)
    if algorithm is None:
        found += _check_without_algorithm(settings)
    else:
        found += _check_algorithm(settings, algorithm)
        found += _check_weight_cache(settings)
    return found or [ok(_NAME, f"Speculation: {algorithm or 'none'}.")]


def _check_numbers(settings: Settings) -> List[Check]:
    numbers = {name: getattr(settings, name) for name in SPECULATIVE_NUMBERS}
    found = [
        failed(_NAME, f"{name} is {value}: it must be at least 1.")
        for name, value in numbers.items()
        if value is not None and value < 1
    ]
    missing = [name for name, value in numbers.items() if value is None]
    present = [name for name, value in numbers.items() if value is not None]
    if missing and present and settings.speculative_algorithm not in _OWN_NUMBERS:
        found.append(
            failed(
                _NAME,
                f"{' and '.join(present)} given without {' and '.join(missing)}: "
                "give all three numbers or none of them.",
            )
        )
    return found


def _check_without_algorithm(settings: Settings) -> List[Check]:
    given = [n for n in ("speculative_draft_model_path", *SPECULATIVE_NUMBERS) if getattr(settings, n) is not None]
    given += ["speculative_" + name for name in settings.speculative_options]
    given += [option.name for option in settings.extra_options if option.name.startswith("--speculative-")]
    if not given:
        return []
    return [
        failed(
            _NAME,
            f"{' and '.join(given)} given without speculative_algorithm: SGLang would serve without speculation "
            "and say nothing. Set speculative_algorithm (to none for no speculation).",
        )
    ]


def _check_algorithm(settings: Settings, algorithm: str) -> List[Check]:
    found = []
    if algorithm not in KNOWN_ALGORITHMS:
        found.append(warning(_NAME, f"speculative_algorithm {algorithm!r} is none of {', '.join(KNOWN_ALGORITHMS)}."))
    if algorithm in _NEEDS_DRAFT and settings.speculative_draft_model_path is None:
        found.append(
            failed(
                _NAME,
                f"speculative_algorithm {algorithm} needs speculative_draft_model_path: without it the server "
                "dies after it has loaded the model.",
            )
        )
    tokens = implied_draft_tokens(settings)
    asked = settings.speculative_num_draft_tokens
    if tokens is not None and asked is not None and asked != tokens:
        found.append(
            warning(
                _NAME,
                f"speculative_num_draft_tokens {asked} becomes {tokens}: "
                "with speculative_eagle_topk 1 it is the number of steps plus one.",
            )
        )
    found += _check_tree(settings, algorithm)
    breadth = _ngram_breadth(settings)
    if algorithm == "NGRAM" and asked is not None and asked < breadth:
        found.append(
            warning(
                _NAME,
                f"speculative_num_draft_tokens {asked} is less than the breadth of NGRAM's search ({breadth}): newer "
                "versions then draft 0 steps. Lower speculative_ngram_max_bfs_breadth, or raise it.",
            )
        )
    if settings.max_running_requests is None:
        found.append(
            ok(
                _NAME,
                f"{algorithm} without max_running_requests runs at most {DEFAULT_MAX_RUNNING_REQUESTS} requests at a "
                "time; set it when you compare with a server that does not speculate.",
            )
        )
    return found


def _ngram_breadth(settings: Settings) -> int:
    value = settings.speculative_options.get("ngram_max_bfs_breadth", _NGRAM_BREADTH)
    return int(value) if str(value).isdigit() else _NGRAM_BREADTH


def _check_weight_cache(settings: Settings) -> List[Check]:
    mode = settings.extra_value("--weight-cache-mode")
    if mode in (None, "off"):
        return []
    return [
        failed(
            _NAME,
            f"--weight-cache-mode {mode} in extra_args: SGLang refuses it with any speculative_algorithm. Remove it, "
            "or set speculative_algorithm to none.",
        )
    ]


# The newer of two implementations is the default from here on.
_NEWER_BY_DEFAULT = (0, 5, 11)
# The older one is gone from here on.
_ONLY_NEWER = (0, 5, 13)
_NEWER = "_v2.py"
_WITH_TWO_WORKERS = frozenset(["EAGLE", "EAGLE3", "NEXTN", "STANDALONE"])


def check_worker(environment: Mapping[str, str], effective: Mapping[str, Any], version: str) -> List[Check]:
    """Which of its two implementations SGLang will use, judged by what its parser made of the arguments."""
    name = "worker"
    numbers = version_tuple(version)
    used = used_workers(version, effective)
    if not used or numbers >= _ONLY_NEWER or effective.get("speculative_algorithm") not in _WITH_TWO_WORKERS:
        return []
    newer = used[0].endswith(_NEWER)
    asked = None if SPEC_V2 not in environment else not is_off(environment[SPEC_V2])
    if asked is not None and asked != newer:
        return [
            failed(
                name,
                f"{SPEC_V2}={environment[SPEC_V2]} in environment asks for the {'newer' if asked else 'older'} worker, "
                f"and SGLang {version} would use {used[0]}: set speculative_eagle_topk to 1 for the newer one, or "
                f"remove {SPEC_V2}.",
            )
        ]
    if asked is None and not newer and numbers >= _NEWER_BY_DEFAULT and effective.get("disable_overlap_schedule"):
        return [
            warning(
                name,
                f"SGLang {version} would use {used[0]}, although it has a newer one that is its default: that one "
                "needs speculative_eagle_topk 1 and the overlap schedule.",
            )
        ]
    return [ok(name, f"SGLang {version} uses {used[0]}.")]
