# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turns what the roles registered on a host into one entry of the report: pure, no I/O."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

_ENDED = ("terminated", "killed", "stopped_service")
_WOULD_END = ("would_terminate", "would_stop_service")
_SPARED = ("protected", "skipped", "unresolved")

_LIVE = ("restarted", "restored", "unchanged")
# Nothing of these was touched: what ran at the checks still runs.
_UNTOUCHED = ("unchanged", "refused", "checked", "not done")
# Of a server of several hosts the one that says most counts.
_BY_WEIGHT = ("down", "lost", "restored", "refused", "not done", "restarted", "checked", "unchanged")


def speculation(config: Optional[Mapping[str, Any]]) -> str:
    """Algorithm and steps/top-k/draft tokens of a configuration in one short word."""
    if not config:
        return ""
    algorithm = config.get("speculative_algorithm")
    if not algorithm or str(algorithm).lower() == "none":
        return "no speculation"
    numbers = [
        config.get("speculative_num_steps"),
        config.get("speculative_eagle_topk"),
        config.get("speculative_num_draft_tokens"),
    ]
    if all(number is None for number in numbers):
        return str(algorithm)
    return "%s %s" % (algorithm, "/".join("?" if n is None else str(n) for n in numbers))


def _process(process: Mapping[str, Any], with_action: bool) -> str:
    memory = process.get("memory_mib")
    size = "" if memory is None else ", %d MiB" % memory
    text = "%s %s (%s%s)" % (process.get("name", "?"), process.get("pid", "?"), process.get("user", "?"), size)
    return "%s: %s" % (text, process.get("action")) if with_action else text


def _result(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A registered result, or nothing where the task was skipped or never reached."""
    value = facts.get(name)
    if not isinstance(value, Mapping) or value.get("skipped"):
        return {}
    return value


def _ready(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is known of a server that was proven; nothing where the proof has failed."""
    result = _result(facts, "sglang_deploy_ready")
    return {} if result.get("failed") else result.get("sglang") or {}


def _was_running(facts: Mapping[str, Any]) -> bool:
    checked = _result(facts, "sglang_deploy_checked").get("sglang") or {}
    return bool(checked.get("running"))


def _on_the_gpus(facts: Mapping[str, Any], check_mode: bool) -> List[Mapping[str, Any]]:
    """The processes that were dealt with, or would be; none where it did not come to that."""
    result = _result(facts, "gpu_free_plan" if check_mode else "gpu_free_reclaimed")
    return list(result.get("processes") or [])


def _stopped(facts: Mapping[str, Any], instance: str, check_mode: bool) -> List[str]:
    processes = _on_the_gpus(facts, check_mode)
    reached = bool(_result(facts, "gpu_free_reclaimed")) or check_mode
    found = [instance] if reached and _was_running(facts) else []
    for process in processes:
        # In a plan the server still runs: its own processes go with it.
        own = process.get("unit") == "sglang-%s.service" % instance
        if process.get("action") in _ENDED + _WOULD_END and not own:
            found.append(_process(process, with_action=True))
    return found


def _spared(facts: Mapping[str, Any], check_mode: bool) -> List[str]:
    return [
        _process(process, with_action=False)
        for process in _on_the_gpus(facts, check_mode)
        if process.get("action") in _SPARED
    ]


def _free_after(facts: Mapping[str, Any]) -> Optional[float]:
    """Seconds from the end of the stop until the GPUs were free; reclaiming them takes part of it."""
    waited = _result(facts, "gpu_free_proof").get("free_after")
    if waited is None:
        return None
    return round(float((_result(facts, "gpu_free_reclaimed").get("elapsed") or 0.0) + waited), 3)


def _outcome(facts: Mapping[str, Any], check_mode: bool) -> str:
    if facts.get("sglang_deploy_not_restored"):
        return "down"
    if facts.get("sglang_deploy_failure"):
        return "restored" if facts.get("sglang_deploy_touched") else "refused"
    if not _result(facts, "sglang_deploy_checked"):
        return "not done"
    if facts.get("sglang_deploy_unchanged") is True:
        proven = check_mode or _ready(facts)
        return "unchanged" if proven else "not done"
    if check_mode:
        return "checked"
    if _ready(facts):
        return "restarted"
    return "lost" if facts.get("sglang_deploy_touched") else "not done"


def _release(facts: Mapping[str, Any], outcome: str) -> str:
    """The release that runs, as far as it is known."""
    if outcome in _UNTOUCHED:
        running = (_result(facts, "sglang_deploy_checked").get("sglang") or {}).get("running") or {}
        return str(running.get("release") or "")
    name = {"restarted": "sglang_deploy_release", "restored": "sglang_deploy_restored"}.get(outcome, "")
    return str((_result(facts, name).get("release") or {}).get("id") or "")


def places(plan: Mapping[str, Any]) -> Dict[str, Tuple[str, Optional[int]]]:
    """Group and wave of each host of a plan; no wave where it needs none."""
    return {
        host: (name, unit["wave"] or None)
        for name, group in (plan.get("groups") or {}).items()
        for unit in group["units"]
        for host in unit["hosts"]
    }


def entry(
    host: str,
    facts: Mapping[str, Any],
    check_mode: bool = False,
    place: Tuple[str, Optional[int]] = ("", None),
    refused: str = "",
) -> Dict[str, Any]:
    """One host's entry from its variables (the names the roles register; see the module's documentation).

    place: its replica group and its wave.  refused: why the rollout did not come to it, though it may have been ready.
    """
    checked = _result(facts, "sglang_deploy_checked").get("sglang") or {}
    ready = _ready(facts)
    failure = facts.get("sglang_deploy_failure") or {}
    lost = facts.get("sglang_deploy_not_restored") or {}
    story = [str(part["msg"]) for part in (failure, lost) if part.get("msg")]
    if facts.get("sglang_deploy_not_routed"):
        story.append(str(facts["sglang_deploy_not_routed"]))
    outcome = _outcome(facts, check_mode)
    if refused and outcome in ("not done", "checked"):
        outcome = "refused"
        story.append(refused)
    node = _result(facts, "sglang_deploy_node")
    untouched = outcome in ("unchanged", "refused")
    live = outcome in _LIVE
    return {
        "host": host,
        "node_group": str(node.get("group") or ""),
        "rank": node.get("rank"),
        "group": place[0],
        "wave": place[1],
        "outcome": outcome,
        "changes": [str(line) for line in checked.get("changes") or []],
        "stopped": [] if untouched else _stopped(facts, checked.get("instance") or "server", check_mode),
        "spared": [] if untouched else _spared(facts, check_mode),
        "free_after": None if untouched else _free_after(facts),
        # Of a server that ran before, only that it was ready earlier is known.
        "ready_after": ready.get("ready_after") if live and not untouched else None,
        "requested": speculation(checked.get("requested")),
        "effective": speculation(ready.get("effective")) if live else "",
        "accept_length": ready.get("accept_length") if live else None,
        "version": ready.get("version") or checked.get("version") or "",
        "release": _release(facts, outcome),
        "failure": " | ".join(story),
    }


def cut_off(item: Mapping[str, Any], touched: bool) -> Dict[str, Any]:
    """A host's entry as it must be read if the run ends now, without another word about it."""
    if touched:
        reason = "It is not known what became of its server: run the same again."
        outcome = "lost"
    else:
        reason = "Nothing was stopped."
        outcome = "not done"
    story = "The run ended early: it was cut off, or every host that it worked on was out of reach. " + reason
    nothing_yet: Dict[str, Any] = {"stopped": [], "spared": [], "free_after": None, "ready_after": None}
    nothing_known: Dict[str, Any] = {"effective": "", "accept_length": None, "release": ""}
    return {**item, **nothing_yet, **nothing_known, "outcome": outcome, "failure": story}


def dropped_out(item: Mapping[str, Any]) -> Dict[str, Any]:
    """The entry of a host that left the play without a word of its own."""
    return {**item, "failure": item["failure"] or "It was out of reach: the output has the task and the reason."}


def as_servers(items: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """One entry for each server: the ranks of one that has several hosts are put together, rank 0 first.

    What rank 0 says of the server counts: of the others nobody is asked anything.
    """
    servers: Dict[Tuple[str, str], List[Mapping[str, Any]]] = {}
    for item in items:
        name = item["node_group"]
        servers.setdefault(("group", name) if name else ("host", item["host"]), []).append(item)
    return [_as_one(sorted(ranks, key=lambda item: item["rank"] or 0)) for ranks in servers.values()]


def _as_one(ranks: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
    if len(ranks) == 1:
        return dict(ranks[0])
    outcomes = [item["outcome"] for item in ranks]
    times = [item["free_after"] for item in ranks if item["free_after"] is not None]

    def lines(key: str) -> List[str]:
        return ["%s: %s" % (item["host"], line) for item in ranks for line in item[key]]

    return {
        **ranks[0],
        "host": "\n".join("%s (rank %s)" % (item["host"], item["rank"]) for item in ranks),
        "outcome": min(outcomes, key=_BY_WEIGHT.index),
        "stopped": lines("stopped"),
        "spared": lines("spared"),
        # All of them have to be free before any of them is started.
        "free_after": max(times) if len(times) == len(ranks) else None,
    }


def _seconds(value: Optional[float]) -> str:
    return "" if value is None else "%.1f s" % value


def _runs(item: Mapping[str, Any]) -> str:
    """What runs, in a cell: what the server reports, or that it is the one of before."""
    if item["effective"] or not item["release"]:
        return str(item["effective"])
    return "as before (%s)" % item["release"]


def columns(items: Sequence[Mapping[str, Any]]) -> Tuple[List[str], List[List[str]]]:
    """The header and the rows of a table; without groups and waves where they would say nothing.

    items: those of as_servers.
    """
    by_group = len({item["group"] for item in items}) > 1
    by_wave = any(item["wave"] for item in items)
    header: List[str] = []
    rows: List[List[str]] = [[] for _item in items]

    def add(name: str, cells: List[str]) -> None:
        header.append(name)
        for row, cell in zip(rows, cells):
            row.append(cell)

    add("host", [item["host"] for item in items])
    if by_group:
        add("group", [item["group"] for item in items])
    if by_wave:
        add("wave", [str(item["wave"] or "-") for item in items])
    add("outcome", [item["outcome"] for item in items])
    add("stopped", ["\n".join(item["stopped"]) or "-" for item in items])
    add("spared", ["\n".join(item["spared"]) or "-" for item in items])
    add("free", [_seconds(item["free_after"]) for item in items])
    add("ready", [_seconds(item["ready_after"]) for item in items])
    add("requested", [item["requested"] for item in items])
    add("effective", [_runs(item) for item in items])
    lengths = [item["accept_length"] for item in items]
    add("accepted", ["" if length is None else "%.2f" % length for length in lengths])
    return header, rows


def left(items: Sequence[Mapping[str, Any]]) -> List[str]:
    """The hosts that a later run has to come to."""
    return [item["host"] for item in items if item["outcome"] not in ("restarted", "unchanged", "checked")]


def changes(items: Sequence[Mapping[str, Any]]) -> List[str]:
    """What changes in the configuration, one block of lines for each group of hosts in which the same does."""
    groups: Dict[Tuple[str, ...], List[str]] = {}
    for item in items:
        if item["changes"]:
            groups.setdefault(tuple(item["changes"]), []).append(item["host"])
    return ["%s:\n%s" % (", ".join(hosts), "\n".join("  " + line for line in lines)) for lines, hosts in groups.items()]


def summary(items: Sequence[Mapping[str, Any]]) -> str:
    """How many servers came out how, in one line.  items: those of as_servers."""
    order = ("restarted", "unchanged", "checked", "refused", "restored", "down", "lost", "not done")
    counts = {outcome: sum(1 for item in items if item["outcome"] == outcome) for outcome in order}
    return ", ".join("%d %s" % (count, outcome) for outcome, count in counts.items() if count)
