# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Servers of several hosts: which hosts are the ranks of one, and what each of them is started with: pure, no I/O.

A node group is the hosts of one server.  The first one in the order of the inventory is rank 0, which alone serves.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import parse_extra_args
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.effective import same_value
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.ranks import parse_address
from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_settings import RolloutError, agreed, names

# Variables of a host that are set, by name.
HostVariables = Mapping[str, Any]

VARIABLE = "sglang_node_group"
ADDRESS_VARIABLE = "sglang_dist_init_addr"
# What else is asked of the hosts of a group.  Those of the role win over those of the inventory.
ABOUT_A_RANK = (
    *("ansible_host", ADDRESS_VARIABLE, "sglang_deploy_dist_init_addr"),
    *("sglang_host", "sglang_deploy_host", "sglang_port", "sglang_deploy_port"),
    *("sglang_rank_zero", "sglang_deploy_rank_zero"),
)
_DEFAULT_HOST, _DEFAULT_PORT = "127.0.0.1", 30000
# The ranks meet this far below the server's port, so that each instance of a host has a port of its own for it, and
# above it where there is no room below.
_PORTS_APART, _LOWEST_PORT = 10000, 1024
_EVERY_ADDRESS = ("", "*", "0.0.0.0", "::", "[::]")
# SGLang's options that say what a rank is, with their other spellings.
_OPTIONS = {"--nnodes": (), "--node-rank": (), "--dist-init-addr": ("--nccl-init-addr",)}


@dataclass(frozen=True)
class NodeGroup:
    """The hosts of one server, rank 0 first.

    dist_init_addr: where its ranks meet.  rank_zero: where the others ask whether it serves.  Both are HOST:PORT.
    """

    name: str
    hosts: Tuple[str, ...]
    dist_init_addr: str
    rank_zero: str


def name_of(variables: HostVariables) -> str:
    """The node group that a host names, "" for none."""
    value = variables.get(VARIABLE)
    return "" if value is None else str(value)


def members(known: Mapping[str, HostVariables], inventory: Sequence[str] = ()) -> Dict[str, Tuple[str, ...]]:
    """The hosts of each node group, rank 0 first.

    known: variables of all hosts of the inventory.  inventory: all hosts in its order; that of known where it is empty.
    """
    found: Dict[str, List[str]] = {}
    for host in dict.fromkeys([*inventory, *known]):
        name = name_of(known.get(host, {}))
        if name:
            found.setdefault(name, []).append(host)
    return {name: tuple(hosts) for name, hosts in found.items()}


def describe(name: str, hosts: Sequence[str], known: Mapping[str, HostVariables], present: Sequence[str]) -> NodeGroup:
    """What a node group is.  Raises RolloutError where it cannot be one server.

    hosts: all of it, rank 0 first.  known: their variables.  present: the hosts of the inventory that take part.
    """
    absent = [host for host in hosts if host not in present]
    if absent:
        raise RolloutError(
            "%s %s: %s %s not in this run, or out of reach. The hosts of a node group run one server, and stop and "
            "start together. Give all of them (--limit %s), or none."
            % (VARIABLE, name, names(absent), "is" if len(absent) == 1 else "are", ",".join(hosts))
        )
    first = known[hosts[0]]
    given = {host: _of(known[host], "dist_init_addr") for host in hosts}
    explicit = agreed(ADDRESS_VARIABLE, given, _address, "the node group %s" % name)
    port = _port(_of(first, "port", _DEFAULT_PORT), hosts[0])
    if explicit is None:
        meeting = port - _PORTS_APART if port - _PORTS_APART >= _LOWEST_PORT else port + _PORTS_APART
        explicit = joined(str(first.get("ansible_host") or hosts[0]), meeting)
    asked = rank_zero(str(_of(first, "host", _DEFAULT_HOST)), port, explicit)
    told = [host for host in hosts[1:] if not _of(known[host], "rank_zero")]
    if not asked and told:
        raise RolloutError(
            "sglang_host is %s for %s, which is rank 0 of the node group %s, so the other ranks (%s) cannot ask "
            "whether it serves. Set sglang_host to 0.0.0.0 or to an address that they reach, or say with "
            "sglang_rank_zero (HOST:PORT) where rank 0 answers them."
            % (_of(first, "host", _DEFAULT_HOST), hosts[0], name, names(told))
        )
    return NodeGroup(name, tuple(hosts), explicit, asked)


def rank_zero(host: str, port: Any, dist_init_addr: str) -> str:
    """Where other ranks ask rank 0, as HOST:PORT; "" where it listens to its own host alone.

    host, port: what the server listens on.  dist_init_addr: HOST:PORT of rank 0, which all ranks reach.
    """
    meeting = parse_address(dist_init_addr)[0]
    if host in _EVERY_ADDRESS:
        return joined(meeting, port)
    if _is_loopback(host) and not _is_loopback(meeting):
        return ""
    return joined(host.strip("[]"), port)


def joined(host: str, port: Any) -> str:
    """HOST:PORT, with brackets around an address of version 6."""
    return ("[%s]:%s" if ":" in host else "%s:%s") % (host, port)


def words_of(group: NodeGroup, host: str, extra_args: Sequence[Any]) -> List[str]:
    """The arguments that make a host its rank; those that it has in extra_args already are left out.

    Raises RolloutError where one of those says something else.
    """
    rank = group.hosts.index(host)
    wanted = {"--nnodes": len(group.hosts), "--node-rank": rank, "--dist-init-addr": group.dist_init_addr}
    options = parse_extra_args([str(word) for word in extra_args])[0]
    words: List[str] = []
    for name, value in wanted.items():
        given = [option.value for option in options if option.name.replace("_", "-") in (name, *_OPTIONS[name])]
        if not given:
            words += [name, str(value)]
        elif given[-1] is True or not same_value(given[-1], value):
            raise RolloutError(_disagreement(group, host, name, given[-1], value))
    # One host alone needs to be told nothing.
    return words if len(group.hosts) > 1 else []


def _disagreement(group: NodeGroup, host: str, option: str, given: Any, value: Any) -> str:
    remedy = {
        "--dist-init-addr": "or set %s to it for the whole group" % ADDRESS_VARIABLE,
        "--node-rank": "or change the order of the hosts in the inventory",
    }.get(option, "or correct %s" % VARIABLE)
    return (
        "%s is %s in sglang_extra_args of %s, and %s by the node group %s, whose ranks are the hosts in the order of "
        "the inventory: %s. Leave it out of sglang_extra_args, %s."
        % (option, given, host, value, group.name, names(list(group.hosts)), remedy)
    )


def _of(variables: HostVariables, name: str, default: Any = None) -> Any:
    for prefix in ("sglang_deploy_", "sglang_"):
        value = variables.get(prefix + name)
        if value not in (None, ""):
            return value
    return default


def _address(name: str, value: Any) -> str:
    try:
        parse_address(str(value))
    except ValueError as error:
        raise RolloutError(
            "%s: %s. Give an address of rank 0 that all ranks reach, and a free port there." % (name, error)
        ) from None
    return str(value).strip()


def _port(value: Any, host: str) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not text.isdecimal() or not 0 < int(text[:9]) < 65536:
        raise RolloutError("sglang_port: %r is no port. It is set for %s." % (value, host))
    return int(text)


def _is_loopback(host: str) -> bool:
    name = host.strip("[]")
    address: Optional[Any] = None
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name.lower() == "localhost"
    return bool(address.is_loopback)
