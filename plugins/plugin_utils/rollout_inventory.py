# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes replica groups out of variables of hosts: pure, no I/O."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_plan import (
    KEEP,
    OUTSIDE,
    REPLACE,
    VACANT,
    Group,
    Unit,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_settings import (
    DEFAULT_RAMP,
    RolloutError,
    agreed,
    number,
    ramp,
    seconds,
    share,
)

# Variables of a host that are set, by name.
HostVariables = Mapping[str, Any]

# The variables of the inventory that say how a rollout goes.
SETTINGS = (
    "sglang_replica_group",
    "sglang_min_serving",
    "sglang_ramp",
    "sglang_max_failed",
    "sglang_groups_at_a_time",
    "sglang_floor_timeout",
)
# The group of hosts that name none: all servers of the run are taken for replicas of each other.
DEFAULT_GROUP = "all"
_DEFAULT_FLOOR_TIMEOUT = 60.0


def refuse_old_names(known: Mapping[str, HostVariables]) -> None:
    """Raise RolloutError where a host has a variable that another one has replaced."""
    for host, variables in known.items():
        if "sglang_serial" in variables:
            raise RolloutError(
                "sglang_serial (set for %s) is not read any more: sglang_ramp says how many servers are restarted at a "
                "time, and sglang_min_serving how many of a replica group always serve. Nothing was stopped." % host
            )


def run_settings(known: Mapping[str, HostVariables]) -> Dict[str, Any]:
    """What counts for the whole run.  known: of its hosts.  Raises RolloutError."""

    def one(name: str, parse: Any, default: Any) -> Any:
        found = agreed(name, {host: variables.get(name) for host, variables in known.items()}, parse, "the run")
        return default if found is None else found

    return {
        "max_failed": one("sglang_max_failed", lambda name, value: number(name, value, 0), 0),
        "groups_at_a_time": one("sglang_groups_at_a_time", lambda name, value: number(name, value, 1), 1),
        "floor_timeout": one("sglang_floor_timeout", seconds, _DEFAULT_FLOOR_TIMEOUT),
    }


def in_groups(
    hosts: Sequence[str], candidates: Sequence[str], known: Mapping[str, HostVariables]
) -> Tuple[List[Group], Dict[str, Dict[str, str]]]:
    """The replica groups of a run, and what the first host of each unit is asked about.

    hosts: those of the run, in its order.  candidates: all that its pattern stands for, those that --limit leaves out
    too.  known: variables of these and of all other hosts of the inventory, which belong to a group that they name.
    Raises RolloutError.

    Each host is a unit.  This is the only place that says so: all that follows takes units of several hosts, of which
    the first is asked.
    """
    run, servers = set(hosts), {*hosts, *candidates}
    members: Dict[str, List[str]] = {}
    for host in dict.fromkeys([*hosts, *candidates, *known]):
        named = known[host].get("sglang_replica_group")
        if named is not None or host in servers:
            members.setdefault(DEFAULT_GROUP if named is None else str(named), []).append(host)
    groups = []
    asked = {}
    for name, its_hosts in members.items():
        if run.isdisjoint(its_hosts):
            continue
        where = "the replica group %s" % name

        def values(variable: str, of: Sequence[str] = tuple(its_hosts)) -> Dict[str, Any]:
            return {host: known[host].get(variable) for host in of}

        units = tuple(Unit((host,), _fate(known[host], host) if host in run else OUTSIDE) for host in its_hosts)
        floor = agreed(
            "sglang_min_serving", values("sglang_min_serving"), lambda key, value: share(key, value, 0), where
        )
        steps = agreed("sglang_ramp", values("sglang_ramp"), ramp, where)
        groups.append(Group(name, units, floor, DEFAULT_RAMP if steps is None else steps))
        for host in its_hosts:
            asked[host] = {
                key: str(known[host].get("sglang_deploy_" + key) or known[host].get("sglang_" + key) or default)
                for key, default in (("instance", "main"), ("state_dir", "/var/lib/sglang"))
            }
    return groups, asked


def _fate(variables: HostVariables, host: str) -> str:
    """What becomes of a host of the run, by what its checks have found.  Raises RolloutError where there are none."""
    if variables.get("sglang_deploy_unchanged") is True:
        return KEEP
    checked = variables.get("sglang_deploy_checked")
    found = checked.get("sglang") if isinstance(checked, Mapping) else None
    if not isinstance(found, Mapping):
        raise RolloutError("%s was not checked in this run, so nothing is planned. Run the whole playbook." % host)
    return REPLACE if found.get("running") or found.get("unmanaged") else VACANT
