# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Takes out of what sglang_info returned what the guard goes by: pure, no I/O.  Unknown is never no load."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.inferops.sglang.plugins.plugin_utils.guard_rules import Load
from ansible_collections.inferops.sglang.plugins.plugin_utils.status_values import (
    mapping,
    mappings,
    message,
    one_of,
    real,
    settings,
    text,
    whole,
)

AVERAGE, PEAK = "average", "peak"
STATISTICS = (AVERAGE, PEAK)
SERVING, STOPPED, UNKNOWN = "serving", "stopped", "unknown"
# A node of a higher rank of a server on several hosts, of which only rank 0 can tell anything.
FOLLOWS = "follows"
_RANK = "rank_unprovable"
_STATES = (SERVING, "starting", "draining", "failed", STOPPED, UNKNOWN)
_MOST_SERVERS = 100


@dataclass(frozen=True)
class Look:
    """One server.

    state: as sglang_info has it, or FOLLOWS; why: in words, where it does not serve; load: in requests, None where it
    is not known; complete: whether that is all of it, else the least that it can be; uptime: in seconds; node_rank:
    above 0 it serves nobody by itself.
    """

    host: str
    state: str
    why: str = ""
    load: Optional[float] = None
    complete: bool = False
    uptime: Optional[float] = None
    node_rank: int = 0
    effective: Dict[str, Any] = field(default_factory=dict)


def read_look(host: str, result: Any, instance: str, statistic: str) -> Look:
    """What the registered result of one host says of an instance; None where the play did not get there."""
    found = mapping(result)
    if found.get("unreachable") is True:
        return Look(host, UNKNOWN, "it cannot be reached: %s" % (message(found.get("msg")) or "no reason was given"))
    if found.get("failed") is True or not isinstance(found.get("servers"), (list, tuple)):
        return Look(host, UNKNOWN, "it could not be asked: %s" % (message(found.get("msg")) or "no reason was given"))
    for server in mappings(found["servers"], _MOST_SERVERS):
        if text(server.get("instance")) == instance:
            return _read_server(host, server, statistic)
    return Look(host, UNKNOWN, "its host knows no instance %s" % instance)


def _read_server(host: str, server: Mapping[str, Any], statistic: str) -> Look:
    state = one_of(server.get("state"), _STATES, UNKNOWN)
    why = message(server.get("message")) or text(server.get("reason")) or state
    rank = whole(server.get("node_rank")) or 0
    if rank and state == UNKNOWN and text(server.get("reason")) == _RANK:
        state = FOLLOWS
    window, now = mapping(server.get("load_window")), mapping(server.get("load"))
    if window:
        load: Optional[float] = real(window.get(statistic))
        complete = window.get("complete") is True
        if load is not None and statistic == AVERAGE and not complete:
            # Of what was not told nothing counts, so that it is the least that it can be.
            told, silent = whole(window.get("samples")) or 0, whole(window.get("unanswered")) or 0
            load *= told / max(1, told + silent)
    else:
        running, waiting = whole(now.get("running")), whole(now.get("waiting"))
        load = None if running is None else float(running + (waiting or 0))
        complete = waiting is not None
    if load is not None and load < 0:
        load = None
    return Look(
        host,
        state,
        "" if state in (SERVING, FOLLOWS) else why,
        load,
        complete and load is not None,
        real(server.get("uptime")),
        rank,
        settings(server.get("effective")),
    )


def load_of(looks: Sequence[Look], statistic: str) -> Optional[Load]:
    """The load of a server of a group: the mean over its servers, or the largest; None where one is not known."""
    loads: List[float] = [look.load for look in looks if look.load is not None]
    if not loads or len(loads) < len(looks):
        return None
    value = max(loads) if statistic == PEAK else sum(loads) / len(loads)
    return Load(value, all(look.complete for look in looks))
