# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which profile a server is to run at which load, and how far the load must come back before that is undone: pure.

A load is a number of requests that a server has at a time, those that wait included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Mapping, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_settings import RolloutError

_RULES, _MARGIN = "sglang_guard_rules", "sglang_guard_margin"
_KEYS = ("from", "back", "profile")
_MOST_RULES = 50
_MOST_REQUESTS = 10**6


class GuardError(RolloutError):
    """A setting of the guard that cannot be; the message names it, its value and the remedy."""


@dataclass(frozen=True)
class Rule:
    """From a load of `start` on the profile is wanted; once it runs, it stays until the load is below `back`."""

    start: float
    back: float
    profile: str


@dataclass(frozen=True)
class Load:
    """A load.  complete: False where it is the least that it can be, because not everybody has told."""

    value: float
    complete: bool = True


def read_rules(value: Any, margin: float) -> Tuple[Rule, ...]:
    """The rules as somebody wrote them.  Raises GuardError.

    margin: the part of `from` by which the load must have come back where a rule has no `back`.
    """
    if not isinstance(value, (list, tuple)) or not 1 <= len(value) <= _MOST_RULES:
        raise GuardError(
            "%s: %.80r is no list of 1 to %d rules: give one such as [{from: 0, profile: eagle3}, "
            "{from: 16, profile: baseline}]." % (_RULES, value, _MOST_RULES)
        )
    rules: List[Rule] = []
    for number, given in enumerate(value, 1):
        where = "%s: rule %d" % (_RULES, number)
        if not isinstance(given, Mapping) or not given.get("profile"):
            raise GuardError("%s has no profile: give {from: REQUESTS, profile: NAME}." % where)
        unknown = sorted(str(key) for key in given if key not in _KEYS)
        if unknown:
            raise GuardError("%s has %s, which nobody reads: known are %s." % (where, ", ".join(unknown), _known()))
        start = _requests(where, "from", given.get("from"))
        back = start * (1 - margin) if given.get("back") is None else _requests(where, "back", given["back"])
        rules.append(Rule(start, back, str(given["profile"])))
    _check(rules, _RULES)
    return tuple(rules)


def rules_of(decision: Sequence[Mapping[str, Any]], margin: float, where: str) -> Tuple[Rule, ...]:
    """The rules that the decision of a sweep makes (sweep_profiles.decision_of).  Raises GuardError."""
    rules: List[Rule] = []
    for part in decision:
        profile, start = str(part["configuration"]), float(part["from"])
        if not rules:
            rules.append(Rule(0.0, 0.0, profile))
        elif profile != rules[-1].profile:
            rules.append(Rule(start, start * (1 - margin), profile))
    if not rules:
        raise GuardError(
            "sglang_sweep_dir: the sweep in %s does not say which configuration is the best one at which load. Give "
            "rules in %s, or measure more." % (where, _RULES)
        )
    return tuple(rules)


def margin(name: str, value: Any) -> float:
    """A part, more than 0 and less than 1.  Raises GuardError."""
    try:
        found = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        found = float("nan")
    if not 0.01 <= found <= 0.9:
        raise GuardError("%s: %r is no number from 0.01 to 0.9: without a margin it would flap." % (name, value))
    return found


def wanted_profile(rules: Sequence[Rule], present: str, load: Load) -> str:
    """What is to run at a load, where `present` runs; "" is none of the rules'.

    The present one stays as long as the load is where it is wanted, or has not come back far enough.  A load of which
    only the least is known can want what comes at larger loads, never what comes at smaller ones.
    """
    for number, rule in enumerate(rules):
        if rule.profile != present:
            continue
        upper = rules[number + 1].start if number + 1 < len(rules) else float("inf")
        if load.value < upper and (load.value >= rule.back or not load.complete):
            return present
    return [rule for rule in rules if rule.start <= load.value][-1].profile


def _check(rules: Sequence[Rule], name: str) -> None:
    if rules[0].start != 0:
        raise GuardError(
            "%s: the first rule is from %g on, and nothing is said of less: let it be from 0." % (name, rules[0].start)
        )
    for number in range(1, len(rules)):
        before, rule = rules[number - 1], rules[number]
        where = "%s: rule %d" % (name, number + 1)
        if rule.start <= before.start:
            raise GuardError(
                "%s is from %g on, and the one before from %g: order them by from." % (where, rule.start, before.start)
            )
        if rule.profile == before.profile:
            raise GuardError("%s has the profile %s, like the one before: make one of both." % (where, rule.profile))
        if not rule.back < rule.start:
            raise GuardError(
                "%s has back %g, which is not below its from, %g: without a distance between the two it would flap."
                % (where, rule.back, rule.start)
            )


def _requests(where: str, key: str, value: Any) -> float:
    try:
        found = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        found = float("nan")
    if not 0 <= found <= _MOST_REQUESTS:
        raise GuardError("%s: %s is %.60r: give a number of requests, 0 or more." % (where, key, value))
    return found


def _known() -> str:
    return ", ".join(_KEYS)
