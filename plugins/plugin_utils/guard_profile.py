# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of some profiles a server runs, by what it reports of itself: pure, no I/O.

A name that somebody wrote down says what was wanted.  What runs is only in the running server.
"""

from __future__ import annotations

from typing import Any, List, Mapping

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.proof import algorithm_of, same

# What restart_eagle3 takes where a profile says nothing.
_DEFAULT_ALGORITHM = "EAGLE3"
_NUMBERS = ("num_steps", "eagle_topk", "num_draft_tokens")
_ADAPTIVE = "speculative_adaptive"
_MOST = "max_running_requests"


def fitting(effective: Mapping[str, Any], profiles: Mapping[str, Mapping[str, Any]]) -> List[str]:
    """The names of the profiles that a server may be running, in their order; none where it reports nothing.

    effective: as sglang_info has it.  profiles: by name, with all keys (spec_profile.named_profile).
    """
    if "speculative_algorithm" not in effective:
        return []
    return [name for name, profile in profiles.items() if _fits(effective, profile)]


def _fits(effective: Mapping[str, Any], profile: Mapping[str, Any]) -> bool:
    wanted = profile["speculative"]
    algorithm = algorithm_of({"speculative_algorithm": wanted.get("algorithm") or _DEFAULT_ALGORITHM})
    if algorithm_of(effective) != algorithm:
        return False
    most = profile.get(_MOST)
    if most is not None and _MOST in effective and not same(_MOST, most, effective[_MOST]):
        return False
    if algorithm is None:
        return True
    if _is_on(wanted.get("adaptive")) != (effective.get(_ADAPTIVE) is True):
        return False
    return all(_number_fits(effective, wanted, name) for name in _NUMBERS)


def _number_fits(effective: Mapping[str, Any], wanted: Mapping[str, Any], name: str) -> bool:
    value, field = wanted.get(name), "speculative_" + name
    if value is None or field not in effective:
        return True
    if name == "num_draft_tokens" and same("speculative_eagle_topk", 1, wanted.get("eagle_topk")):
        return True  # SGLang makes it the steps plus one
    return same(field, value, effective[field])


def _is_on(value: Any) -> bool:
    return str(value).strip().lower() == "true"


def in_words(effective: Mapping[str, Any]) -> str:
    """What a server runs, where it has no name."""
    if "speculative_algorithm" not in effective:
        return "what it does not tell"
    algorithm = algorithm_of(effective)
    if algorithm is None:
        return "no speculation"
    numbers = [effective.get("speculative_" + name) for name in _NUMBERS]
    shown = "/".join("-" if number is None else str(number) for number in numbers)
    return "%s %s%s" % (algorithm, shown, " adaptive" if effective.get(_ADAPTIVE) is True else "")
