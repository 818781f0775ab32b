# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turns what gpu_info and sglang_info returned for a host into its entry of the fleet's status: pure, no I/O.

What is not known is null, and `problems` says why.  Unknown is never free, never serving, never the same.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.plugin_utils.restart_report import speculation
from ansible_collections.inferops.sglang.plugins.plugin_utils.status_holders import group_holders, read_holders
from ansible_collections.inferops.sglang.plugins.plugin_utils.status_values import (
    mapping,
    mappings,
    message,
    one_of,
    real,
    settings,
    text,
    texts,
    whole,
)

VERDICTS = ("free", "busy", "unknown")
STATES = ("serving", "starting", "draining", "failed", "stopped", "unknown")

_BEFORE = "Task failed: "
_UNINSPECTED = "%d processes could not be looked into, so it is not known whether they have a GPU open."
_MOST_GPUS = 128
_MOST_SERVERS = 100
_MOST_PROBLEMS = 20


def host_entry(host: str, group: str, gpus: Any, servers: Any) -> Dict[str, Any]:
    """One host's entry from the registered results of its two tasks (None where a task was not reached)."""
    gpu_result, gpu_problem = _result(gpus, "gpus", "The GPUs")
    server_result, server_problem = _result(servers, "servers", "The servers")
    unreachable = any(mapping(result).get("unreachable") is True for result in (gpus, servers))
    problems = [problem for problem in (gpu_problem, server_problem) if problem]
    if unreachable:
        # The second task was not even tried.
        lost = next(result for result in (gpus, servers) if mapping(result).get("unreachable") is True)
        problems = ["Unreachable: %s" % (_told(lost) or "no reason was given")]
    entry: Dict[str, Any] = {
        "host": text(host),
        "group": text(group),
        "unreachable": unreachable,
        "problems": problems[:_MOST_PROBLEMS],
        "driver": None,
        "gpu_model": None,
        "gpus": None,
        "holders": None,
        "servers": None,
    }
    if gpu_result is not None:
        read = [_gpu(item) for item in mappings(gpu_result.get("gpus"), _MOST_GPUS)]
        held = read_holders(gpu_result.get("holders"))
        for gpu in read:
            gpu["holders"] = group_holders(held, gpu["uuid"])
        entry.update(
            driver=text(gpu_result.get("driver_version")) or None,
            gpu_model=_models(read),
            gpus=read,
            holders=group_holders(held),
        )
        uninspected = whole(gpu_result.get("uninspected"))
        if uninspected:
            entry["problems"].append(_UNINSPECTED % uninspected)
    if server_result is not None:
        entry["servers"] = [_server(item) for item in mappings(server_result.get("servers"), _MOST_SERVERS)]
    return entry


def _result(result: Any, key: str, what: str) -> Tuple[Optional[Mapping[str, Any]], str]:
    """A result that has what was asked for, or None and why not."""
    if result is None:
        return None, "%s were not looked at: the play did not get there." % what
    found = mapping(result)
    if isinstance(found.get(key), (list, tuple)):
        return found, ""
    if found.get("skipped") is True:
        return None, "%s were not looked at: the task was skipped." % what
    told = _told(found)
    more = [message(found.get(name)) for name in ("module_stderr", "module_stdout")]
    reason = " ".join([told, *[part for part in more if part and part not in told]]).strip()
    return None, message("%s could not be read: %s" % (what, reason or "the task gave no reason"))


def _told(result: Mapping[str, Any]) -> str:
    """The message of a failed result, without the words that newer versions of Ansible put before each."""
    told = message(result.get("msg"))
    return told[len(_BEFORE) :] if told.startswith(_BEFORE) else told


# -- GPUs


def _gpu(item: Mapping[str, Any]) -> Dict[str, Any]:
    return {
        "index": whole(item.get("index")),
        "uuid": text(item.get("uuid")),
        "name": text(item.get("name")),
        "memory_used_mib": whole(item.get("memory_used_mib")),
        "memory_total_mib": whole(item.get("memory_total_mib")),
        "verdict": one_of(item.get("verdict"), VERDICTS, "unknown"),
        "reason": text(item.get("reason")),
        "message": message(item.get("message")),
        "recovery_action": text(item.get("recovery_action")),
    }


def _models(gpus: Sequence[Mapping[str, Any]]) -> Optional[str]:
    """How many of which model, such as "8 x NVIDIA H200"; None where that is not known of one of them."""
    counts: Dict[str, int] = {}
    for gpu in gpus:
        counts[gpu["name"]] = counts.get(gpu["name"], 0) + 1
    if "" in counts:
        return None
    return ", ".join("%d x %s" % (count, name) for name, count in sorted(counts.items())) or "none"


# -- servers


def _server(item: Mapping[str, Any]) -> Dict[str, Any]:
    effective = settings(item.get("effective"))
    tier = _tier(item.get("tier"))
    load = mapping(item.get("load"))
    names = {key: text(item.get(key)) for key in ("instance", "reason", "user", "unit", "container", "manager")}
    return {
        **names,
        "state": one_of(item.get("state"), STATES, "unknown"),
        "message": message(item.get("message")),
        "pid": whole(item.get("pid")),
        "started": text(item.get("started")),
        "port": whole(item.get("port")),
        "version": text(item.get("version")) or None,
        "release": text(item.get("release")),
        "current": text(item.get("current")),
        "last_good": text(item.get("last_good")),
        "release_state": _release_state(item),
        "effective": effective,
        "speculation": speculation_of(effective, tier),
        "tier": tier,
        "accept_length": real(item.get("accept_length")),
        "load": {"running": whole(load.get("running")), "waiting": whole(load.get("waiting"))},
        "problems": [message(problem) for problem in texts(item.get("problems"), _MOST_PROBLEMS, 10**4)],
    }


def _release_state(item: Mapping[str, Any]) -> Optional[str]:
    """How the running release stands, which can be compared between hosts: their IDs are never the same.

    None where nothing runs, or it is not known what.
    """
    if not isinstance(item.get("stale"), bool):
        return None
    if item["stale"]:
        return "not the current one"
    return "proven" if text(item.get("current")) == text(item.get("last_good")) else "not proven"


def _tier(value: Any) -> Optional[Dict[str, Any]]:
    """With how many steps a server that adapts speculates at the moment; None where it does not tell."""
    found = mapping(value)
    steps = whole(found.get("num_steps"))
    return None if steps is None else {"num_steps": steps, "num_draft_tokens": whole(found.get("num_draft_tokens"))}


def speculation_of(effective: Mapping[str, Any], tier: Optional[Mapping[str, Any]] = None) -> Optional[str]:
    """The speculation of a configuration in a few words, None where the configuration is not known.

    tier: of a server that adapts, its number of steps at the moment.
    """
    if not effective:
        return None
    if effective.get("speculative_adaptive") is not True:
        return speculation(effective)
    now = " (now %d)" % tier["num_steps"] if tier is not None else ""
    return "%s adaptive%s" % (speculation(effective), now)
