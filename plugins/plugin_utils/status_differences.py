# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts differ from the rest of their group, and what is wrong with the fleet: pure, no I/O.

In each column the value that most hosts of a group have is the usual one, and who has another one differs.  Where
two values are equally frequent there is no usual one, and that is said.  A host of which a value is not known is
neither the same nor different: it is listed as not known.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

UNREACHABLE = "unreachable"
UNKNOWN = "unknown"
DIFFERENT = "different"
NOT_SERVING = "not_serving"
CONDITIONS = (UNKNOWN, UNREACHABLE, DIFFERENT, NOT_SERVING)

NOT_DEPLOYED = "not deployed"
_UNSET = "unset"
# More settings than a server reports of those that are compared.
_MOST_COLUMNS = 200

# A column's value on a host: a text, or None where it is not known.
Values = Dict[str, Optional[str]]


def differences(hosts: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """One entry for each column of a group in which not all hosts are known to be the same.

    kind is "different" (usual is the value of most hosts) or "tie" (usual is null); values are the values with their
    hosts, the most frequent first; not_known are the hosts of which the value is not known.
    """
    groups: Dict[str, List[Mapping[str, Any]]] = {}
    for entry in hosts:
        groups.setdefault(entry["group"], []).append(entry)
    found = []
    for group, members in groups.items():
        for column, values in _columns(members).items():
            difference = _compare(values)
            if difference is not None:
                found.append({"group": group, "column": column, **difference})
    return found


def _columns(members: Sequence[Mapping[str, Any]]) -> Dict[str, Values]:
    """Each column with its values by host, in the order in which they are shown."""
    columns: Dict[str, Values] = {
        "driver": {entry["host"]: entry["driver"] for entry in members},
        "GPUs": {entry["host"]: entry["gpu_model"] for entry in members},
    }
    # Of many servers each instance is compared with its namesakes.
    names = sorted({server["instance"] for entry in members for server in entry["servers"] or ()})
    for name in names:
        servers = {entry["host"]: _server_named(entry, name) for entry in members}
        columns["%s: state" % name] = {host: _state(server) for host, server in servers.items()}
        columns["%s: SGLang" % name] = {host: _of_server(server, "version") for host, server in servers.items()}
        columns["%s: release" % name] = {host: _of_server(server, "release_state") for host, server in servers.items()}
        fields = sorted({field for server in servers.values() if server for field in server["effective"]})
        for field in fields:
            columns["%s: %s" % (name, field)] = {host: _setting(server, field) for host, server in servers.items()}
    return dict(list(columns.items())[:_MOST_COLUMNS])


def _server_named(entry: Mapping[str, Any], name: str) -> Optional[Mapping[str, Any]]:
    """The instance of a host; {} where it has none of this name, None where that is not known."""
    if entry["servers"] is None:
        return None
    return next((server for server in entry["servers"] if server["instance"] == name), {})


def _state(server: Optional[Mapping[str, Any]]) -> Optional[str]:
    if server is None:
        return None
    state = str(server["state"]) if server else NOT_DEPLOYED
    return None if state == UNKNOWN else state


def _of_server(server: Optional[Mapping[str, Any]], key: str) -> Optional[str]:
    """A value of a server.  One that is not deployed has none: its state says so once for all columns."""
    return str(server[key]) if server and server[key] is not None else None


def _setting(server: Optional[Mapping[str, Any]], field: str) -> Optional[str]:
    if not server or not server["effective"]:
        return None
    value = server["effective"].get(field)
    # What a version does not know is off in it.
    return _UNSET if value is None or value is False else str(value)


def _compare(values: Values) -> Optional[Dict[str, Any]]:
    """What differs in one column, None where nothing is known to."""
    by_value: Dict[str, List[str]] = {}
    for host, value in values.items():
        if value is not None:
            by_value.setdefault(value, []).append(host)
    if len(by_value) < 2:
        return None
    ordered = sorted(by_value.items(), key=lambda item: (-len(item[1]), item[0]))
    tie = len(ordered[0][1]) == len(ordered[1][1])
    return {
        "kind": "tie" if tie else DIFFERENT,
        "usual": None if tie else ordered[0][0],
        "values": [{"value": value, "hosts": hosts} for value, hosts in ordered],
        "not_known": [host for host, value in values.items() if value is None],
    }


def differing_columns(found: Sequence[Mapping[str, Any]]) -> Dict[str, List[str]]:
    """The columns in which each host differs from the usual value, by host; in a tie nobody does."""
    columns: Dict[str, List[str]] = {}
    for difference in found:
        if difference["kind"] == DIFFERENT:
            for other in difference["values"][1:]:
                for host in other["hosts"]:
                    columns.setdefault(host, []).append(difference["column"])
    return columns


# -- what is wrong


def conditions(hosts: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]) -> Dict[str, List[str]]:
    """The hosts for which each condition of fail_on holds."""
    different = {host for item in found for value in _odd_values(item) for host in value["hosts"]}
    return {
        UNKNOWN: [entry["host"] for entry in hosts if is_unknown(entry)],
        UNREACHABLE: [entry["host"] for entry in hosts if entry["unreachable"]],
        DIFFERENT: [entry["host"] for entry in hosts if entry["host"] in different],
        NOT_SERVING: [entry["host"] for entry in hosts if not serves(entry)],
    }


def _odd_values(difference: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The values that make a difference: in a tie all of them."""
    values: Sequence[Mapping[str, Any]] = difference["values"]
    return values[1:] if difference["kind"] == DIFFERENT else values


def is_unknown(entry: Mapping[str, Any]) -> bool:
    """Whether something of a host is not known: all of it, a GPU, or a server's state."""
    if entry["gpus"] is None or entry["servers"] is None:
        return True
    gpus = any(gpu["verdict"] == UNKNOWN for gpu in entry["gpus"])
    return gpus or any(server["state"] == UNKNOWN for server in entry["servers"])


def serves(entry: Mapping[str, Any]) -> bool:
    """Whether a host has a server, and all of its servers are known to serve."""
    return bool(entry["servers"]) and all(server["state"] == "serving" for server in entry["servers"])


def summary(hosts: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
    """Counts over the whole fleet."""
    held = conditions(hosts, found)
    verdicts, states = (_count(hosts, *keys) for keys in (("gpus", "verdict"), ("servers", "state")))
    return {
        "hosts": len(hosts),
        "hosts_by_condition": {name: len(names) for name, names in held.items()},
        "gpus": sum(verdicts.values()),
        "gpus_by_verdict": verdicts,
        "servers": sum(states.values()),
        "servers_by_state": states,
    }


def _count(hosts: Sequence[Mapping[str, Any]], what: str, key: str) -> Dict[str, int]:
    counts: Dict[str, int] = {}
    for entry in hosts:
        for item in entry[what] or ():
            counts[item[key]] = counts.get(item[key], 0) + 1
    return dict(sorted(counts.items()))
