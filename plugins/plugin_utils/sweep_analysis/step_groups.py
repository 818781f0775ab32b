# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configurations that differ in their number of draft steps alone."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis import words
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.measured import Configuration
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.sweep import Sweep

_STEPS = ("num_steps", "num_draft_tokens")
# These draft with a model, one token after another.
_DRAFTING = frozenset(["EAGLE", "EAGLE3", "NEXTN", "STANDALONE"])


def step_groups(sweep: Sweep) -> List[List[Configuration]]:
    """Such configurations, from the fewest steps on; each number of steps once.  A group may have a single one."""
    groups: Dict[Tuple[Any, ...], Dict[int, Configuration]] = {}
    for one in sweep.configurations:
        if one.points and not one.adaptive and one.algorithm in _DRAFTING and one.num_steps:
            groups.setdefault(_common(one), {}).setdefault(one.num_steps, one)
    return [[group[steps] for steps in sorted(group)] for group in groups.values()]


def without_steps(sweep: Sweep, group: Sequence[Configuration]) -> Optional[Configuration]:
    """What a group has with 0 steps: a server without speculation and with its environment, else its baseline."""
    reference = sweep.reference(group[0])
    plain = [one for one in sweep.configurations if one.points and not one.algorithm and one.host == group[0].host]
    same = [one for one in plain if one.environment == group[0].environment]
    if reference is None or reference.environment == group[0].environment or not same:
        return reference
    return same[0]


def title(group: Sequence[Configuration]) -> str:
    """What the configurations of a group have in common."""
    one = group[0]
    parts = [one.algorithm, "top-k %s" % ("unknown" if one.topk is None else one.topk)]
    if one.draft:
        parts.append("draft %s" % one.draft)
    parts += ["%s=%s" % (name, one.environment[name]) for name in sorted(one.environment)]
    return words.names(parts, ",").replace(" , ", ", ")


def _common(one: Configuration) -> Tuple[Any, ...]:
    free = set(_STEPS if one.topk == 1 else _STEPS[:1])
    settings = {name: value for name, value in one.settings.items() if name.replace("speculative_", "") not in free}
    rest = json.dumps([settings, one.environment, one.extra_args], sort_keys=True, default=str)
    return (one.algorithm, one.topk, one.draft, rest)
