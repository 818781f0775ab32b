# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes replica groups out of variables of hosts: pure, no I/O."""

from __future__ import annotations

from typing import AbstractSet, Any, Dict, List, Mapping, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.plugin_utils.node_groups import VARIABLE, members, name_of
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
    names,
    number,
    ramp,
    seconds,
    share,
)

# Variables of a host that are set, by name.
HostVariables = Mapping[str, Any]

# The variables of the inventory that say how a rollout goes.
SETTINGS = (
    VARIABLE,
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
    hosts: Sequence[str],
    candidates: Sequence[str],
    known: Mapping[str, HostVariables],
    inventory: Sequence[str] = (),
) -> Tuple[List[Group], Dict[str, Dict[str, str]]]:
    """The replica groups of a run, and what the first host of each unit is asked about.

    hosts: those of the run, in its order.  candidates: all that its pattern stands for, those that --limit leaves out
    too.  known: variables of these and of all other hosts of the inventory, which belong to a group that they name.
    inventory: all hosts in its order, which is that of the ranks of a server; that of known where it is empty.
    Raises RolloutError.

    A host is a unit, or all hosts of a node group are one.  This is the only place that says so: all that follows takes
    units of several hosts, of which the first is asked.
    """
    run, servers = set(hosts), {*hosts, *candidates}
    nodes = members(known, inventory)
    replicas: Dict[str, List[str]] = {}
    for host in dict.fromkeys([*hosts, *candidates, *known]):
        named = known[host].get("sglang_replica_group")
        if named is not None or host in servers:
            replicas.setdefault(DEFAULT_GROUP if named is None else str(named), []).append(host)
    groups = []
    asked = {}
    for name, its_hosts in replicas.items():
        if run.isdisjoint(its_hosts):
            continue
        where = "the replica group %s" % name

        def values(variable: str, of: Sequence[str] = tuple(its_hosts)) -> Dict[str, Any]:
            return {host: known[host].get(variable) for host in of}

        units = tuple(_unit(together, run, known) for together in _servers(its_hosts, nodes, known, where))
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


def _servers(
    hosts: Sequence[str],
    nodes: Mapping[str, Tuple[str, ...]],
    known: Mapping[str, HostVariables],
    where: str,
) -> List[Tuple[str, ...]]:
    """The hosts of each server of a replica group, rank 0 first.  Raises RolloutError where a rank is elsewhere."""
    found: Dict[Tuple[str, ...], None] = {}
    here = set(hosts)
    for host in hosts:
        name = name_of(known[host])
        together = nodes[name] if name else (host,)
        elsewhere = [other for other in together if other not in here]
        if elsewhere:
            raise RolloutError(
                "%s %s has hosts in %s (%s) and outside of it (%s). All hosts of a server belong to the same replica "
                "group, and to the same run: set sglang_replica_group for all of them, and give all of them to "
                "sglang_hosts and --limit. Nothing was stopped."
                % (VARIABLE, name, where, names([other for other in together if other in here]), names(elsewhere))
            )
        found[together] = None
    return list(found)


def _unit(hosts: Tuple[str, ...], run: AbstractSet[str], known: Mapping[str, HostVariables]) -> Unit:
    """One server, with what becomes of it.  Raises RolloutError where a part of it is in the run."""
    here = [host for host in hosts if host in run]
    if not here:
        return Unit(hosts, OUTSIDE)
    if len(here) < len(hosts):
        raise RolloutError(
            "%s %s: only %s of its hosts %s in this run. They run one server together: give all of them (--limit %s), "
            "or none. Nothing was stopped."
            % (VARIABLE, name_of(known[here[0]]), names(here), "is" if len(here) == 1 else "are", ",".join(hosts))
        )
    fates = [_fate(known[host], host) for host in hosts]
    if all(fate == KEEP for fate in fates):
        return Unit(hosts, KEEP)
    # A rank that runs may be a server of its own, which serves somebody.
    return Unit(hosts, VACANT if all(fate == VACANT for fate in fates) else REPLACE)


def _fate(variables: HostVariables, host: str) -> str:
    """What becomes of a host of the run, by what its checks have found.  Raises RolloutError where there are none."""
    if variables.get("sglang_deploy_unchanged") is True:
        return KEEP
    checked = variables.get("sglang_deploy_checked")
    found = checked.get("sglang") if isinstance(checked, Mapping) else None
    if not isinstance(found, Mapping):
        raise RolloutError("%s was not checked in this run, so nothing is planned. Run the whole playbook." % host)
    return REPLACE if found.get("running") or found.get("unmanaged") else VACANT
