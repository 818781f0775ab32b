# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of the playbook gpu_reset, from what it registered on each host.  Pure."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

from ansible_collections.inferops.sglang.plugins.plugin_utils.table import table

PLAN_HEADER = ("host", "outcome", "GPUs", "would be stopped", "in the way")
HEADER = ("host", "outcome", "GPUs", "stopped", "restored", "after it")
_STOPS = ("stop_unit", "persistence_off", "unload_module")


def reset_table(hosts: Sequence[str], variables: Mapping[str, Mapping[str, Any]], plan: bool, width: int = 160) -> str:
    """A table with a line for each host, and the commands or the failures below it.

    variables: the variables of each host; plan: what would be done, otherwise what was done; width in columns.
    """
    rows, below = [], []
    for host in hosts:
        own = variables.get(host) or {}
        planned, done = _result(own, "gpu_reset_planned"), _result(own, "gpu_reset_done")
        failure = str(own.get("gpu_reset_failure") or "").strip()
        rows.append(_planned(host, planned, failure) if plan else _done(host, planned, done, failure))
        if plan and planned.get("plan") and not failure:
            below.append("%s:" % host)
            below += ["  %-24s %s" % (step["action"], step["command"] or step["target"]) for step in planned["plan"]]
        if failure:
            below.append("%s: %s" % (host, failure))
    text = table(PLAN_HEADER if plan else HEADER, rows, width)
    return "\n".join([text, *below])


def outcome_of(planned: Mapping[str, Any], done: Mapping[str, Any], failure: str, plan: bool) -> str:
    """What became of a host, in one word or two."""
    if planned.get("reboot_needed") or done.get("reboot_needed"):
        return "reboot needed"
    if planned.get("drain_needed"):
        return "drain needed"
    if failure:
        return "refused" if plan or not done else "failed"
    if not planned:
        return "not reached"
    if not planned.get("command"):
        return "nothing to do"
    if plan:
        return "would reset"
    return "reset" if done.get("changed") else "not done"


def _planned(host: str, planned: Mapping[str, Any], failure: str) -> List[str]:
    steps = [step for step in planned.get("plan") or [] if step["action"] in _STOPS]
    stops = [_named(planned, step["action"] == "persistence_off", step["target"]) for step in steps]
    return [
        host,
        outcome_of(planned, {}, failure, True),
        _gpus(planned, planned.get("resettable") or []),
        "\n".join(stops) or "-",
        "\n".join(str(blocker["code"]) for blocker in planned.get("blockers") or []) or "-",
    ]


def _done(host: str, planned: Mapping[str, Any], done: Mapping[str, Any], failure: str) -> List[str]:
    reset = [uuid for run in done.get("resets") or [] for uuid in run["done"]]
    restored = done.get("restored") or []
    lost = [entry["target"] for entry in restored if not entry["ok"]]
    if reset:
        after = "\n".join(done.get("health") or []) or "well"
        after += "".join(
            "\nallocation %s" % word for word in sorted({a["outcome"] for a in done.get("allocations") or []})
        )
    else:
        after = "-"
    return [
        host,
        outcome_of(planned, done, failure, False),
        _gpus(planned, reset),
        "\n".join(_named(planned, e["kind"] == "persistence_mode", e["target"]) for e in done.get("stopped") or [])
        or "-",
        ("NOT RESTORED: " + ", ".join(lost)) if lost else ("all" if restored else "-"),
        after,
    ]


def _named(planned: Mapping[str, Any], persistence: bool, target: str) -> str:
    """What was stopped, in words."""
    return "persistence mode of GPU %s" % _gpus(planned, [target]) if persistence else target


def _gpus(planned: Mapping[str, Any], uuids: Sequence[str]) -> str:
    """GPUs by index where that is known."""
    index: Dict[str, Any] = {row["uuid"]: row["index"] for row in planned.get("decisions") or []}
    return ", ".join(str(index.get(uuid, uuid)) for uuid in uuids) or "-"


def _result(variables: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """What a task registered, where it ran to an end that says anything."""
    value = variables.get(name)
    return value if isinstance(value, Mapping) and "decisions" in value else {}
