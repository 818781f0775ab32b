# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status of a fleet as text for a terminal or a log: pure, no I/O."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Sequence

from ansible_collections.inferops.sglang.plugins.plugin_utils.status_holders import labels
from ansible_collections.inferops.sglang.plugins.plugin_utils.status_host import VERDICTS
from ansible_collections.inferops.sglang.plugins.plugin_utils.status_values import short
from ansible_collections.inferops.sglang.plugins.plugin_utils.table import table

HOSTS, GPUS, AUTO = "hosts", "gpus", "auto"
DETAILS = (HOSTS, GPUS, AUTO)

# Up to so many GPUs are shown one by one where nobody says what to show.
_FEW_GPUS = 16
# How many hosts a line names, how many groups of holders a cell, and how many lines a block of problems has.
_NAMED = 8
_HOLDERS = 2
_MOST_LINES = 60
_NOT_KNOWN = "?"
# How the sum calls hosts for which a condition holds.
_TOLD = {
    "unreachable": "unreachable",
    "unknown": "not fully known",
    "different": "differing",
    "not_serving": "not serving",
}


def render(
    hosts: Sequence[Mapping[str, Any]],
    found: Sequence[Mapping[str, Any]],
    summary: Mapping[str, Any],
    detail: str = AUTO,
    width: int = 120,
) -> List[str]:
    """The blocks of text: hosts, GPUs where they are wanted, what is wrong, what differs, the sum."""
    blocks = [hosts_table(hosts, width)] if hosts else []
    if shows_gpus(hosts, detail):
        rows = [row for entry in hosts for row in _gpu_rows(entry)]
        if rows:
            blocks.append(table(("host", "GPU", "model", "memory", "verdict", "holders"), rows, width, ruled=False))
    for lines in (problem_lines(hosts), difference_lines(hosts, found)):
        if lines:
            blocks.append("\n".join(_bounded(lines)))
    blocks.append(summary_line(summary))
    return blocks


def shows_gpus(hosts: Sequence[Mapping[str, Any]], detail: str) -> bool:
    """Whether each GPU is shown."""
    if detail != AUTO:
        return detail == GPUS
    return sum(len(entry["gpus"] or ()) for entry in hosts) <= _FEW_GPUS


def _bounded(lines: List[str]) -> List[str]:
    left = len(lines) - _MOST_LINES
    return lines if left <= 0 else [*lines[:_MOST_LINES], "... and %d more lines: see the JSON." % left]


# -- hosts


def hosts_table(hosts: Sequence[Mapping[str, Any]], width: int) -> str:
    """One row for each host; a host with several servers has a line for each."""
    columns: Dict[str, List[str]] = {
        "host": [entry["host"] for entry in hosts],
        "group": [entry["group"] for entry in hosts],
        "GPUs": [gpu_counts(entry) for entry in hosts],
        "memory": [memory_of(entry) for entry in hosts],
        "holders": [holders_of(entry, _HOLDERS) for entry in hosts],
        "server": [_lines(entry, server_state) for entry in hosts],
        "SGLang": [_lines(entry, lambda server: _reported(server, "version")) for entry in hosts],
        "speculation": [_lines(entry, lambda server: _reported(server, "speculation")) for entry in hosts],
        "accept": [_lines(entry, acceptance) for entry in hosts],
        "load": [_lines(entry, load) for entry in hosts],
    }
    if len(set(columns["group"])) == 1:
        del columns["group"]
    return table(list(columns), list(zip(*columns.values())), width, ruled=False)


def gpu_counts(entry: Mapping[str, Any]) -> str:
    """How many GPUs are free, busy and unknown, such as "7 busy, 1 unknown"."""
    if entry["gpus"] is None:
        return "unreachable" if entry["unreachable"] else _NOT_KNOWN
    counts = {verdict: sum(1 for gpu in entry["gpus"] if gpu["verdict"] == verdict) for verdict in VERDICTS}
    return ", ".join("%d %s" % (count, verdict) for verdict, count in counts.items() if count) or "none"


def memory_of(entry: Mapping[str, Any]) -> str:
    """Used and total memory of all GPUs in GiB; what could not be read makes the sum not known."""
    gpus = entry["gpus"]
    if not gpus:
        return "" if gpus is not None else _NOT_KNOWN
    used, total = (_sum(gpus, key) for key in ("memory_used_mib", "memory_total_mib"))
    return "%s/%s GiB" % (used, total)


def _sum(gpus: Sequence[Mapping[str, Any]], key: str) -> str:
    numbers = [gpu[key] for gpu in gpus]
    known = sum(number for number in numbers if number is not None)
    shown = "%.0f" % (known / 1024)
    return shown if None not in numbers else _NOT_KNOWN if not any(numbers) else ">=" + shown


def holders_of(entry: Mapping[str, Any], most: int) -> str:
    """Who uses the GPUs of a host."""
    if entry["holders"] is None:
        return _NOT_KNOWN
    return labels(entry["holders"], most) or "-"


def _lines(entry: Mapping[str, Any], cell: Callable[[Mapping[str, Any]], str]) -> str:
    if entry["servers"] is None:
        return _NOT_KNOWN
    return "\n".join(cell(server) for server in entry["servers"]) or "-"


def _reported(server: Mapping[str, Any], key: str) -> str:
    """What a server says of itself; one that does not run says nothing."""
    return short(server[key] or ("-" if server["pid"] is None else _NOT_KNOWN))


def server_state(server: Mapping[str, Any]) -> str:
    """Instance and state, with the reason where there is one, and a release that is not the proven one."""
    reason = " (%s)" % short(server["reason"]) if server["reason"] else ""
    release = ", release %s" % server["release_state"] if server["release_state"] not in (None, "proven") else ""
    return "%s: %s%s%s" % (short(server["instance"]), server["state"], reason, release)


def acceptance(server: Mapping[str, Any]) -> str:
    """Tokens for each verification."""
    if server["accept_length"] is None:
        return _NOT_KNOWN if server["pid"] is not None and not server["effective"] else ""
    return "%.2f" % server["accept_length"]


def load(server: Mapping[str, Any]) -> str:
    """Running and waiting requests, such as "12 + 3"."""
    running, waiting = server["load"]["running"], server["load"]["waiting"]
    if running is None:
        return "" if server["state"] in ("stopped", "failed", "starting") else _NOT_KNOWN
    return "%d + %s" % (running, _NOT_KNOWN if waiting is None else waiting)


# -- GPUs


def _gpu_rows(entry: Mapping[str, Any]) -> List[List[str]]:
    rows = []
    for gpu in entry["gpus"] or ():
        reason = " (%s)" % short(gpu["reason"]) if gpu["reason"] and gpu["verdict"] != "busy" else ""
        rows.append(
            [
                entry["host"],
                _NOT_KNOWN if gpu["index"] is None else str(gpu["index"]),
                short(gpu["name"] or _NOT_KNOWN),
                gpu_memory(gpu),
                gpu["verdict"] + reason,
                labels(gpu["holders"], _HOLDERS) or "-",
            ]
        )
    return rows


def gpu_memory(gpu: Mapping[str, Any]) -> str:
    """Used and total memory of one GPU in MiB."""
    used, total = (_NOT_KNOWN if gpu[key] is None else str(gpu[key]) for key in ("memory_used_mib", "memory_total_mib"))
    return "%s/%s MiB" % (used, total)


# -- what is wrong


def problem_lines(hosts: Sequence[Mapping[str, Any]]) -> List[str]:
    """What is not as it should be: a line for each sentence, with the hosts for which it holds."""
    told: Dict[str, List[str]] = {}
    for entry in hosts:
        for sentence in dict.fromkeys(_sentences(entry)):
            told.setdefault(sentence, []).append(entry["host"])
    return ["%s: %s" % (named(names), sentence) for sentence, names in told.items()]


def _sentences(entry: Mapping[str, Any]) -> List[str]:
    found = list(entry["problems"])
    for gpu in entry["gpus"] or ():
        if gpu["verdict"] == "unknown":
            index = _NOT_KNOWN if gpu["index"] is None else gpu["index"]
            found.append("GPU %s is unknown (%s): %s" % (index, gpu["reason"] or _NOT_KNOWN, gpu["message"]))
    for server in entry["servers"] or ():
        if server["message"] and server["state"] not in ("serving", "stopped"):
            found.append("%s is %s: %s" % (server["instance"], server["state"], server["message"]))
        if server["state"] == "serving":
            found.extend("%s: %s" % (server["instance"], problem) for problem in server["problems"])
    return found


def difference_lines(hosts: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]) -> List[str]:
    """What differs within each group, a line for each column."""
    groups = list(dict.fromkeys(entry["group"] for entry in hosts))
    several = len(groups) > 1
    lines = []
    for group in groups:
        of_group = [item for item in found if item["group"] == group]
        members = [entry for entry in hosts if entry["group"] == group]
        if len(members) < 2:
            continue
        where = " in %s" % group if several else ""
        seen = [entry for entry in members if entry["gpus"] is not None or entry["servers"] is not None]
        if not of_group and len(seen) > 1:
            lines.append("No difference%s between %d hosts." % (where, len(seen)))
        if of_group:
            lines.append("Differences%s:" % where)
            lines.extend("  %s: %s" % (item["column"], difference_line(item)) for item in of_group)
        left_out = [entry["host"] for entry in members if entry not in seen]
        if left_out:
            lines.append("Not compared%s, because nothing is known of them: %s." % (where, named(left_out)))
    return lines


def difference_line(item: Mapping[str, Any]) -> str:
    """Who has which value, the usual one first."""
    parts = []
    for place, value in enumerate(item["values"]):
        count = len(value["hosts"])
        if place == 0 and item["kind"] != "tie":
            parts.append("%s on %d host%s" % (value["value"], count, "" if count == 1 else "s"))
        else:
            parts.append("%s on %s" % (value["value"], named(value["hosts"])))
    tie = ["as many hosts have one as the other"] if item["kind"] == "tie" else []
    unknown = ["not known of %s" % named(item["not_known"])] if item["not_known"] else []
    return "; ".join([*parts, *tie, *unknown])


def named(hosts: Sequence[str], most: int = _NAMED) -> str:
    """The names of hosts, or of the first ones and how many more there are."""
    left = len(hosts) - most
    if left <= 1:
        return ", ".join(hosts)
    return "%s and %d more" % (", ".join(hosts[:most]), left)


def summary_line(summary: Mapping[str, Any]) -> str:
    """How many of what, in one line."""
    held = summary["hosts_by_condition"]
    parts = ["%d host%s" % (summary["hosts"], "" if summary["hosts"] == 1 else "s")]
    for condition, words in _TOLD.items():
        # Where nobody serves anything, nobody has to.
        if held[condition] and (condition != "not_serving" or summary["servers"]):
            parts.append("%d %s" % (held[condition], words))
    for what, counts in (("GPU", summary["gpus_by_verdict"]), ("server", summary["servers_by_state"])):
        shown = ", ".join("%d %s" % (count, name) for name, count in counts.items())
        total = sum(counts.values())
        parts.append("%d %s%s%s" % (total, what, "" if total == 1 else "s", " (%s)" % shown if shown else ""))
    return "; ".join(parts)
