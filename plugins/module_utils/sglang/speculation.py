# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of speculative decoding that SGLang's own parser does not enforce, or explains badly.

Without them such a server dies minutes after its start, or serves without speculating.
"""

from __future__ import annotations

from typing import List, Optional

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.arguments import (
    KNOWN_ALGORITHMS,
    SPECULATIVE_NUMBERS,
    Settings,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import Check, failed, ok, warning

_NAME = "speculation"
# These cannot do without a draft model of their own.
_NEEDS_DRAFT = frozenset(["EAGLE3", "STANDALONE", "DFLASH"])
# These choose some of the three numbers themselves.
_OWN_NUMBERS = frozenset(["NGRAM", "DFLASH", "DSPARK", "UNO"])
# SGLang's limit on running requests while it speculates, where none is given.
DEFAULT_MAX_RUNNING_REQUESTS = 48


def implied_draft_tokens(settings: Settings) -> Optional[int]:
    """The number of draft tokens that SGLang will use, where a top-k of 1 leaves no choice."""
    if settings.speculative_algorithm in _OWN_NUMBERS or settings.speculative_eagle_topk != 1:
        return None
    return None if settings.speculative_num_steps is None else settings.speculative_num_steps + 1


def check_speculation(settings: Settings) -> List[Check]:
    """All rules that need nothing but the settings."""
    algorithm = settings.speculative_algorithm
    found = _check_numbers(settings)
    if algorithm is None:
        found += _check_without_algorithm(settings)
    else:
        found += _check_algorithm(settings, algorithm)
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
    if settings.max_running_requests is None:
        found.append(
            ok(
                _NAME,
                f"{algorithm} without max_running_requests runs at most {DEFAULT_MAX_RUNNING_REQUESTS} requests at a "
                "time; set it when you compare with a server that does not speculate.",
            )
        )
    return found
