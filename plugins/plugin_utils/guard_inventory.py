# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes guarded groups out of variables of hosts: what is read of a folder of a sweep aside, pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.plugin_utils.guard_decision import Settings
from ansible_collections.inferops.sglang.plugins.plugin_utils.guard_look import AVERAGE, STATISTICS
from ansible_collections.inferops.sglang.plugins.plugin_utils.guard_rules import (
    GuardError,
    Rule,
    margin,
    read_rules,
    rules_of,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_inventory import DEFAULT_GROUP
from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_settings import agreed, number, seconds
from ansible_collections.inferops.sglang.plugins.plugin_utils.spec_profile import ProfileError, named_profile
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_profiles_file import SweepError, SweepProfiles

# The variables of the inventory that say how a group is guarded.
SETTINGS = (
    "sglang_guard_rules",
    "sglang_guard_margin",
    "sglang_guard_samples",
    "sglang_guard_min_interval",
    "sglang_guard_statistic",
)
# What else is read of a host.
ALSO_READ = (
    "sglang_replica_group",
    "sglang_sweep_dir",
    "sglang_spec_profiles",
    "sglang_instance",
    "sglang_deploy_instance",
)
_MARGIN, _SAMPLES, _INTERVAL = 0.25, 3, 1800.0
# Runs that lie further apart (seconds) do not count together.
_FORGET = 7200.0

Reader = Callable[[str], SweepProfiles]


@dataclass(frozen=True)
class Guarded:
    """A group.  hosts: in the order of the run; profiles: of each host, by name, those of the rules with all keys."""

    name: str
    hosts: Tuple[str, ...]
    settings: Settings
    statistic: str
    profiles: Mapping[str, Mapping[str, Mapping[str, Any]]]
    instances: Mapping[str, str]


def group_of(variables: Mapping[str, Any]) -> str:
    """The replica group of a host."""
    named = variables.get("sglang_replica_group")
    return DEFAULT_GROUP if named is None else str(named)


def guarded_groups(hosts: Sequence[str], known: Mapping[str, Mapping[str, Any]], sweep: Reader) -> List[Guarded]:
    """The groups of a run.  known: the variables of its hosts.  Raises RolloutError (GuardError)."""
    members: Dict[str, List[str]] = {}
    for host in hosts:
        members.setdefault(group_of(known[host]), []).append(host)
    return [_guarded(name, its_hosts, known, sweep) for name, its_hosts in members.items()]


def _guarded(name: str, hosts: Sequence[str], known: Mapping[str, Mapping[str, Any]], sweep: Reader) -> Guarded:
    where = "the replica group %s" % name

    def one(variable: str, parse: Any, default: Any) -> Any:
        found = agreed(variable, {host: known[host].get(variable) for host in hosts}, parse, where)
        return default if found is None else found

    part = one("sglang_guard_margin", margin, _MARGIN)
    folder = one("sglang_sweep_dir", lambda _name, value: str(value), "")
    rules = one("sglang_guard_rules", lambda _name, value: read_rules(value, part), None)
    if rules is None:
        rules = _rules_of_sweep(folder, part, sweep, where)
    settings = Settings(
        rules,
        one("sglang_guard_samples", lambda key, value: number(key, value, 1), _SAMPLES),
        one("sglang_guard_min_interval", seconds, _INTERVAL),
        _FORGET,
    )
    return Guarded(
        name,
        tuple(hosts),
        settings,
        one("sglang_guard_statistic", _statistic, AVERAGE),
        {host: _profiles(host, rules, known[host], folder, sweep) for host in hosts},
        {
            host: str(known[host].get("sglang_deploy_instance") or known[host].get("sglang_instance") or "main")
            for host in hosts
        },
    )


def _rules_of_sweep(folder: str, part: float, sweep: Reader, where: str) -> Tuple[Rule, ...]:
    if not folder:
        raise GuardError(
            "sglang_guard_rules: it is not set for %s, and neither is sglang_sweep_dir. Give rules such as "
            "[{from: 0, profile: eagle3}, {from: 16, profile: baseline}], or the folder of a sweep." % where
        )
    try:
        found = sweep(folder)
    except SweepError as error:
        raise GuardError(str(error)) from None
    return rules_of(found.measured.get("decision") or (), part, found.folder)


def _profiles(
    host: str, rules: Sequence[Rule], variables: Mapping[str, Any], folder: str, sweep: Reader
) -> Dict[str, Mapping[str, Any]]:
    read: Optional[Callable[[], SweepProfiles]] = (lambda: sweep(folder)) if folder else None
    found: Dict[str, Mapping[str, Any]] = {}
    for name in dict.fromkeys(rule.profile for rule in rules):
        try:
            found[name] = named_profile(name, variables.get("sglang_spec_profiles"), read)[0]
        except ProfileError as error:
            raise GuardError("sglang_guard_rules, for %s: %s" % (host, error)) from None
    return found


def _statistic(name: str, value: Any) -> str:
    if str(value) not in STATISTICS:
        raise GuardError("%s: %.60r is neither %s." % (name, value, " nor ".join(STATISTICS)))
    return str(value)


def pattern_of(pattern: Any, hosts: Sequence[str], left_out: Sequence[str]) -> str:
    """A pattern of hosts without some of them; one that stands for nobody where there are no `hosts`."""
    if not hosts:
        return "all:!all"
    parts = [str(part) for part in pattern] if isinstance(pattern, (list, tuple)) else [str(pattern)]
    # Ansible divides at commas where there is one.
    between = "," if len(parts) > 1 or "," in parts[0] else ":"
    return between.join([*parts, *("!" + host for host in left_out)])
