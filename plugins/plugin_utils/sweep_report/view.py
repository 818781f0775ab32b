# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the page of a report says, in words and numbers that are ready to be shown: pure."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.plugin_utils.restart_report import speculation
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.document import FAILED, MEASURED, PENDING
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.numbers import (
    NONE,
    UNKNOWN,
    milliseconds,
    number,
    percent,
    percent_span,
    seconds,
    signed,
    span,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.plotted import Subject
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.series import FAINT

_SIGNS = {"faster": "\u25b2", "slower": "\u25bc", "no_difference": "=", "unknown": UNKNOWN}
_VERDICTS = {"faster": "faster", "slower": "slower", "no_difference": "no difference", "unknown": "not known"}
_NUMBERS = ("num_steps", "eagle_topk", "num_draft_tokens")
_SOURCES = {
    "requests": "from each request",
    "sample": "from a sample of requests",
    "server": "from the server's own average",
    "mixed": "from several sources",
}
_ACCEPTANCE = {
    "as_expected": "as expected",
    "below": "below",
    "above": "above",
    "nothing_accepted": "nothing is accepted",
    "unknown": "not known",
    "does_not_apply": "no expectation",
}
# Verdicts that somebody should look into.
_ODD = ("below", "above", "nothing_accepted")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(?::\d\d(?:\.\d+)?)?(?:Z|\+00:00)")
_DEPLOY = "ansible-playbook -i hosts.yml inferops.sglang.restart_eagle3"
# What is on the page, so that it can be sent and looked at; results.json has all of it.
_LONGEST_CELL = 300
_LONGEST_MESSAGE = 1500
_LONGEST_COMMAND = 8000
_MOST_LINES = 60
_MOST_WARNINGS = 20
_MOST_SETTINGS = 60


def view(
    of: Subject, document: Mapping[str, Any], problems: Sequence[str], title: str, folder: str = ""
) -> Dict[str, Any]:
    """Everything that the template shows, but for the plots.

    problems: what could not be read.  folder: that of the sweep, for the commands that deploy what it found.
    """
    analysis, sweep = of.analysis, document["sweep"]
    failed = list(_failed(of))
    excluded = [_excluded(item) for item in analysis["excluded"] if item["concurrency"] is not None]
    return {
        "title": title or sweep["name"] or "Sweep",
        "about": _about(document),
        "headline": _headline(analysis["decision"]),
        "notes": list(_notes(of)),
        "decision": [_range(of, part) for part in analysis["decision"]["ranges"]],
        "best": _best(of, analysis["decision"]["best"]),
        "deploy": _deploy(folder, "NAME"),
        "crossovers": [_crossover(of, item) for item in analysis["crossovers"]],
        "warnings": list(_warnings(of, document, problems)),
        "key": [_named(of, label) for label in of.rows if of.styles[label] != FAINT and _has_points(of, label)],
        "faint": sum(of.styles[label] == FAINT and _has_points(of, label) for label in of.rows),
        "levels": [number(level) for level in of.levels],
        "speedups": list(_speedups(of)),
        "acceptance": [_acceptance(of, item) for item in analysis["acceptance"]["configurations"] if item["num_steps"]],
        "drafts": [_draft(item) for item in analysis["acceptance"]["drafts"]],
        "marginal": [_marginal(group) for group in analysis["marginal"]],
        "adaptive": _adaptive(of, folder),
        "points": list(_points(of)),
        "failed": failed[:_MOST_LINES],
        "more_failed": max(0, len(failed) - _MOST_LINES),
        "excluded": excluded[:_MOST_LINES],
        "more_excluded": max(0, len(excluded) - _MOST_LINES),
        "method": _method(of, document),
        "configurations": [_configuration(of, label, row) for label, row in of.rows.items()],
    }


# ---- the top ---------------------------------------------------------------------------------------------------------


def _headline(decision: Mapping[str, Any]) -> str:
    """The answer in one sentence."""
    ranges = decision["ranges"]
    if not ranges:
        return decision["reason"] or "Nothing was measured yet."
    parts = ["%s for %s" % (part["configuration"], _from_to(part)) for part in ranges]
    parts[0] += " request at a time" if _from_to(ranges[0]) == "1" else " requests at a time"
    return "Use %s." % (parts[0] if len(parts) == 1 else "%s, and %s" % (", ".join(parts[:-1]), parts[-1]))


def _from_to(part: Mapping[str, Any]) -> str:
    if part["to"] is None:
        return "%s and more" % number(part["from"])
    return number(part["from"]) if part["to"] == part["from"] else span(part["from"], part["to"])


def _notes(of: Subject) -> Iterator[Dict[str, str]]:
    """What else matters, each with what it is about."""
    chosen = {part["configuration"] for part in of.analysis["decision"]["ranges"]}
    for item in of.analysis["crossovers"]:
        if item["configuration"] in chosen:
            yield {"about": item["configuration"], "text": item["reason"]}
    for item in of.analysis["acceptance"]["configurations"]:
        if item["verdict"] in _ODD:
            yield {"about": "Acceptance of %s" % item["configuration"], "text": _bounded(item["reason"])}
    failed = [label for label, row in of.rows.items() if row["state"] == FAILED]
    if failed:
        yield {"about": "Not measured, because they failed", "text": _bounded(", ".join(failed)) + "."}
    if of.analysis["adaptive"]["config"]:
        yield {"about": "Switched by SGLang itself", "text": of.analysis["adaptive"]["reason"]}
    if of.levels:
        yield {"about": "How sure it is", "text": of.analysis["method"]["message"]}


def _when(sweep: Mapping[str, Any]) -> str:
    """From when to when, as people write it where it is a time in UTC."""
    begin, end = (_TIME.fullmatch(sweep[name]) for name in ("started", "ended"))
    if not begin or not end:
        return " to ".join(text for text in (sweep["started"], sweep["ended"]) if text)
    until = end.group(2) if end.group(1) == begin.group(1) else "%s %s" % end.groups()
    return "%s %s to %s UTC" % (*begin.groups(), until)


def _about(document: Mapping[str, Any]) -> List[str]:
    """Model, hardware, version and time, as far as they are known."""
    sweep, rows = document["sweep"], document["configurations"]
    versions = _several("SGLang", [row["version"] for row in rows])
    return [text for text in (sweep["model"], _several("", map(_hardware, rows)), versions, _when(sweep)) if text]


def _several(before: str, values: Any) -> str:
    found = [value for value in dict.fromkeys(values) if value]
    return " ".join(text for text in (before, ", ".join(found)) if text) if found else ""


def _hardware(row: Mapping[str, Any]) -> str:
    hardware = row["hardware"]
    if not hardware["gpu"]:
        return ""
    return "%d x %s" % (hardware["count"], hardware["gpu"]) if hardware["count"] else hardware["gpu"]


def _range(of: Subject, part: Mapping[str, Any]) -> Dict[str, Any]:
    return {
        **_named(of, part["configuration"]),
        "from_to": _from_to(part),
        "ratio": percent(part["ratio"]) if part["ratio"] is not None else NONE,
        "confirmed": part["confirmed"],
        "reason": part["reason"],
    }


def _best(of: Subject, best: Optional[Mapping[str, Any]]) -> Optional[Dict[str, Any]]:
    if best is None or best["configuration"] is None:
        return None
    # The range that it is of has said it.
    told = any(best["reason"] == part["reason"] for part in of.analysis["decision"]["ranges"])
    return {
        **_named(of, best["configuration"]),
        "concurrency": number(best["concurrency"]),
        "reason": "" if told else best["reason"],
    }


def _crossover(of: Subject, item: Mapping[str, Any]) -> Dict[str, Any]:
    return {
        **_named(of, item["configuration"]),
        "crosses": item["state"] == "crosses",
        "estimate": number(item["estimate"], 2) if item["estimate"] is not None else NONE,
        "interval": span(item["interval"][0], item["interval"][1], 2) if item["interval"] else NONE,
        "between": _between(item["between"]),
        "reason": item["reason"],
    }


def _between(ends: Sequence[Optional[float]]) -> str:
    low, high = ends
    if low is None and high is None:
        return NONE
    if high is None:
        return "above %s, if anywhere" % number(low)
    if low is None:
        return "below %s, if anywhere" % number(high)
    return "%s and %s" % (number(low), number(high))


def _warnings(of: Subject, document: Mapping[str, Any], problems: Sequence[str]) -> Iterator[str]:
    """What a reader has to know before they believe a figure."""
    for condition in of.analysis["conditions"]:
        yield _bounded(condition["message"], _LONGEST_MESSAGE)
    if of.analysis["hosts"]["alike"] is False:
        yield of.analysis["hosts"]["message"]
    for problem in problems[:_MOST_LINES]:
        yield _bounded(problem)
    pending = [label for label, row in of.rows.items() if row["state"] == PENDING and not row["points"]]
    if pending:
        yield "The sweep is not at its end. Not measured yet: %s." % ", ".join(pending)
    warned = sorted(
        {
            "%s at %d: %s" % (label, point["concurrency"], warning)
            for label, row in of.rows.items()
            for point in row["points"]
            for warning in point["warnings"]
        }
    )
    for text in warned[:_MOST_WARNINGS]:
        yield _bounded(text)
    if len(warned) > _MOST_WARNINGS:
        more = len(warned) - _MOST_WARNINGS
        yield "%d more warnings of points are in results.json." % more


# ---- tables ----------------------------------------------------------------------------------------------------------


def _named(of: Subject, label: str) -> Dict[str, Any]:
    """A configuration by its label, with how it looks in the plots."""
    short = of.shorts.get(label, label)
    return {
        "label": label,
        "style": of.styles.get(label, FAINT),
        "short": "" if short == label else short,
        "settings": _short_settings(of.rows[label]) if label in of.rows else "",
    }


def _short_settings(row: Mapping[str, Any]) -> str:
    settings = row["settings"]
    if row["baseline"] or str(settings.get("algorithm") or "none").lower() == "none":
        return "no speculation"
    return speculation({"speculative_" + name: settings.get(name) for name in ("algorithm", *_NUMBERS)})


def _has_points(of: Subject, label: str) -> bool:
    return any(point["configuration"] == label for point in of.analysis["points"])


def _speedups(of: Subject) -> Iterator[Dict[str, Any]]:
    """A row for each configuration that was compared, with a cell for each concurrency."""
    for label in of.rows:
        mine = [item for item in of.analysis["speedups"] if item["configuration"] == label]
        if not any(item["ratio"] is not None for item in mine):
            continue
        by_level = {float(item["concurrency"]): item for item in mine}
        cells = [_speedup(by_level.get(level)) for level in of.levels]
        yield {**_named(of, label), "cells": cells}


def _speedup(item: Optional[Mapping[str, Any]]) -> Dict[str, str]:
    if item is None or item["ratio"] is None:
        return {"text": NONE, "verdict": "", "sign": "", "told": "" if item is None else item["reason"], "interval": ""}
    return {
        "text": percent(item["ratio"]),
        "verdict": item["verdict"],
        "sign": _SIGNS.get(item["verdict"], UNKNOWN),
        "told": _VERDICTS.get(item["verdict"], UNKNOWN),
        "interval": percent_span(*item["interval"]) if item["interval"] else "",
    }


def _acceptance(of: Subject, item: Mapping[str, Any]) -> Dict[str, Any]:
    return {
        **_named(of, item["configuration"]),
        "steps": number(item["num_steps"]),
        "measured": number(item["measured"]) if item["measured"] is not None else UNKNOWN,
        "interval": span(*item["interval"]) if item["interval"] else "",
        "expected": number(item["expected"]) if item["expected"] is not None else NONE,
        "difference": signed(item["difference"]),
        "positions": ", ".join("%d %%" % round(100 * chance) for chance in item["by_position"]),
        "source": _SOURCES.get(item["source"], UNKNOWN),
        "verdict": _ACCEPTANCE.get(item["verdict"], UNKNOWN),
        "odd": item["verdict"] in _ODD,
        # Of one that is as expected, it would say the figures again.
        "reason": "" if item["verdict"] == "as_expected" else _bounded(item["reason"]),
    }


def _draft(item: Mapping[str, Any]) -> Dict[str, str]:
    return {"draft": item["draft"] or "The draft", "reason": item["reason"]}


def _marginal(group: Mapping[str, Any]) -> Dict[str, Any]:
    return {
        "group": group["group"],
        "gains": [
            {
                "concurrency": number(gain["concurrency"]),
                "change": "%d to %d" % (gain["from_steps"], gain["to_steps"]),
                "gain": percent(gain["gain"]),
                "per_step": percent(gain["per_step"]),
                "interval": percent_span(*gain["interval"]) if gain["interval"] else "",
                "verdict": gain["verdict"],
                "sign": _SIGNS.get(gain["verdict"], UNKNOWN),
                "told": _VERDICTS.get(gain["verdict"], UNKNOWN),
            }
            for gain in group["gains"]
            if gain["gain"] is not None
        ],
        "pays": [
            {
                "concurrency": number(item["concurrency"]),
                "steps": UNKNOWN if item["steps"] is None else number(item["steps"]),
                "reason": item["reason"],
            }
            for item in group["pays"]
        ],
    }


def _points(of: Subject) -> Iterator[Dict[str, Any]]:
    counted = {(point["configuration"], point["concurrency"]): point for point in of.analysis["points"]}
    for label, row in of.rows.items():
        for point in row["points"]:
            counts = counted.get((label, point["concurrency"]))
            median, spread = point["median"], point["spread"]
            yield {
                **_named(of, label),
                "concurrency": number(point["concurrency"]),
                "reached": number(median["concurrency"], 2) if median["concurrency"] is not None else NONE,
                "failed": point["state"] != MEASURED or counts is None,
                "why": _bounded("%s: %s" % (point["reason"], point["message"])) if point["state"] == FAILED else "",
                "throughput": number(median["output_throughput"]),
                "spread": _spread(spread["output_throughput"]),
                "ttft": _pair(median, "ttft"),
                "tpot": _pair(median, "tpot"),
                "e2e": _pair(median, "e2e_latency"),
                "accept": number(median["accept_length"]) if median["accept_length"] is not None else NONE,
                "repeats": number(len(point["repeats"])),
                "completed": number(median["completed"]),
            }


def _pair(median: Mapping[str, Any], kind: str) -> str:
    """Median and 99th percentile."""
    middle, tail = median["median_%s_ms" % kind], median["p99_%s_ms" % kind]
    return NONE if middle is None and tail is None else "%s / %s" % (milliseconds(middle), milliseconds(tail))


def _spread(ends: Mapping[str, Any]) -> str:
    return "" if ends["min"] is None or ends["min"] == ends["max"] else span(ends["min"], ends["max"])


def _failed(of: Subject) -> Iterator[Dict[str, Any]]:
    """Configurations that did not start, and points that could not be measured."""
    for label, row in of.rows.items():
        if row["state"] == FAILED:
            message = _bounded(row["message"], _LONGEST_MESSAGE)
            yield {**_named(of, label), "where": "start", "reason": row["reason"], "message": message}
        for point in row["points"]:
            if point["state"] == FAILED:
                where = "concurrency %s" % number(point["concurrency"])
                message = _bounded(point["message"], _LONGEST_MESSAGE)
                yield {**_named(of, label), "where": where, "reason": point["reason"], "message": message}


def _excluded(item: Mapping[str, Any]) -> Dict[str, str]:
    place = "concurrency %s" % number(item["concurrency"])
    if item["repeat"] is not None:
        place += ", repeat %s" % number(item["repeat"])
    return {"label": item["configuration"], "where": place, "message": _bounded(item["message"] or item["reason"])}


# ---- what to do, and how it was done ---------------------------------------------------------------------------------


def _deploy(folder: str, profile: str) -> str:
    words = ["-e", "sglang_sweep_dir=%s" % (folder or "FOLDER"), "-e", "sglang_spec_profile=%s" % profile]
    return "%s %s" % (_DEPLOY, " ".join(shlex.quote(word) for word in words))


def _adaptive(of: Subject, folder: str) -> Dict[str, Any]:
    found = of.analysis["adaptive"]
    config = found["config"]
    sizes = sorted(config, key=int) if config else []
    lines = ['  "%s": %s' % (size, json.dumps(config[size])) for size in sizes] if config else []
    return {
        "config": "{\n%s\n}" % ",\n".join(lines) if lines else "",
        "arguments": [
            "%s = %s" % (name, number(found[name]))
            for name in ("num_steps", "eagle_topk", "num_draft_tokens", "max_running_requests")
            if found[name] is not None
        ],
        "tiers": [
            {"size": size, "steps": ", ".join(str(step) for step in config[size].get("candidate_steps", []))}
            for size in sizes
        ]
        if config
        else [],
        "reason": found["reason"],
        "from": ", ".join(found["configurations"]),
        "command": _deploy(folder, "adaptive"),
    }


def _method(of: Subject, document: Mapping[str, Any]) -> List[Tuple[str, str]]:
    """How it was measured: names and values."""
    sweep = document["sweep"]
    prompts = sweep["prompts"]
    told = [
        ("Model", sweep["model"]),
        ("Prompts", ", ".join(_prompts(prompts))),
        ("Prompts, SHA-256", prompts["sha256"]),
        ("Lengths", _lengths(of)),
        ("Concurrencies", ", ".join(map(number, sweep["concurrencies"]))),
        ("Repeats", number(sweep["repeats"]) if sweep["repeats"] is not None else ""),
        ("Hosts", ", ".join(sweep["hosts"])),
        ("Hosts alike", of.analysis["hosts"]["message"]),
        ("Statistics", of.analysis["method"]["message"]),
        ("Time", _when(sweep)),
    ]
    return [(name, value) for name, value in told if value]


def _prompts(prompts: Mapping[str, Any]) -> Iterator[str]:
    if prompts["name"]:
        yield prompts["name"]
    if prompts["count"] is not None:
        yield "%s prompts" % number(prompts["count"])


def _lengths(of: Subject) -> str:
    """Tokens of a request, on average over the repeats: what was asked of the servers."""
    found = [
        (repeat["total_input_tokens"] / repeat["completed"], repeat["total_output_tokens"] / repeat["completed"])
        for row in of.rows.values()
        for point in row["points"]
        for repeat in point["repeats"]
        if repeat["completed"]
        and repeat["total_input_tokens"] is not None
        and repeat["total_output_tokens"] is not None
    ]
    if not found:
        return ""
    read, written = zip(*found)
    return "%s tokens of input and %s of output for each request" % (_about_span(read), _about_span(written))


def _about_span(values: Sequence[float]) -> str:
    low, high = number(float(round(min(values)))), number(float(round(max(values))))
    return low if low == high else "%s to %s" % (low, high)


def _configuration(of: Subject, label: str, row: Mapping[str, Any]) -> Dict[str, Any]:
    hardware = row["hardware"]
    told = [
        ("State", row["state"]),
        ("Host", row["host"]),
        ("Hardware", _hardware(row)),
        ("GPU memory", "%s MiB" % number(hardware["memory_total_mib"]) if hardware["memory_total_mib"] else ""),
        ("Driver", hardware["driver"]),
        ("SGLang", row["version"]),
        ("Ready after", seconds(row["ready_after"]) if row["ready_after"] is not None else ""),
        ("max_running_requests", number(row["max_running_requests"]) if row["max_running_requests"] else ""),
    ]
    return {
        **_named(of, label),
        "adaptive": row["adaptive"],
        "told": [(name, value) for name, value in told if value],
        "options": _pairs(row["settings"]),
        "environment": _pairs(row["environment"]),
        "effective": _pairs({name: value for name, value in row["effective"].items() if "speculative" in name}),
        "command": _bounded(" ".join(shlex.quote(word) for word in row["command"]), _LONGEST_COMMAND),
    }


def _pairs(values: Mapping[str, Any]) -> List[str]:
    given = [(name, value) for name, value in sorted(values.items()) if value is not None]
    return ["%s = %s" % (name, _bounded(_setting(value))) for name, value in given[:_MOST_SETTINGS]]


def _setting(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)


def _bounded(text: str, longest: int = _LONGEST_CELL) -> str:
    return text if len(text) <= longest else text[: longest - 3] + "..."
