# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines that a sweep prints while it runs: pure, no I/O."""

from __future__ import annotations

from typing import Any, List, Mapping, Optional, Sequence

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_store import FAILED, MEASURED

_SPECULATION = ("num_steps", "eagle_topk", "num_draft_tokens")


def speculation(row: Mapping[str, Any]) -> str:
    """Algorithm and steps/top-k/draft tokens in a word or two."""
    settings = row.get("settings") or {}
    algorithm = str(settings.get("algorithm") or "none")
    if algorithm.lower() == "none":
        return "no speculation"
    numbers = [settings.get(name) for name in _SPECULATION]
    if all(number is None for number in numbers):
        return algorithm
    return "%s %s" % (algorithm, "/".join("?" if number is None else str(number) for number in numbers))


def plan_lines(
    sweep: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    pending: Mapping[str, Sequence[int]],
    refused: Mapping[str, str],
    estimate: str,
    adaptive: bool,
) -> List[str]:
    """What will be measured, by configuration.  pending: the concurrencies left, by key.  refused: why, by key."""
    numbers = ", ".join(str(number) for number in sweep["concurrencies"])
    lines = [
        "Sweep %s: %s, %s of %s, requests at a time %s, %s each"
        % (
            sweep["name"],
            _count(len(rows) + bool(adaptive), "configuration"),
            _count(sum(map(len, pending.values())), "point"),
            len(rows) * len(sweep["concurrencies"]),
            numbers,
            _count(sweep["repeats"], "repeat"),
        )
    ]
    width = max([len(row["name"]) for row in rows] + [len("adaptive")])
    for row in rows:
        left = pending.get(row["key"], ())
        what = speculation(row)
        if row.get("environment_name"):
            what += ", environment %s" % row["environment_name"]
        if row.get("host"):
            what += ", on %s" % row["host"]
        if row["key"] in refused:
            state = "refused: %s" % refused[row["key"]]
        elif row.get("state") == FAILED:
            state = "failed before: %s" % row.get("message")
        elif not left:
            state = "measured"
        elif len(left) < len(sweep["concurrencies"]):
            state = "%s left" % _count(len(left), "point")
        else:
            state = "to be measured"
        lines.append("  %-*s  %s: %s" % (width, row["name"], what, state))
    if adaptive:
        lines.append("  %-*s  computed from the points of the others" % (width, "adaptive"))
    lines.extend("Before: %s" % line for line in originals(sweep))
    if estimate:
        lines.append(estimate)
    return lines


def originals(sweep: Mapping[str, Any]) -> List[str]:
    """What ran on each host before, and so what comes back."""
    lines = []
    for host, original in (sweep.get("original") or {}).items():
        kind = original.get("kind")
        if kind == "release":
            text = "release %s on %s" % (original["release"], host)
            if original.get("instead_of"):
                text = "release %s on %s, which was proven last; %s, which runs there, never was" % (
                    original["release"],
                    host,
                    original["instead_of"],
                )
        elif kind == "unmanaged":
            text = "a server on %s that somebody started by hand" % host
        else:
            text = "nothing on %s" % host
        lines.append(text)
    return lines


def point_line(row: Mapping[str, Any], point: Mapping[str, Any], ratio: Optional[float], left: str) -> str:
    """One point that was measured, or was not."""
    where = "%s on %s, %d at a time" % (row["name"], row.get("host") or "?", point["concurrency"])
    if point.get("state") != MEASURED:
        return "%s: failed (%s): %s; %s" % (where, point.get("reason") or "unknown", point.get("message"), left)
    median = point.get("median") or {}
    told = ["%.1f tok/s" % median["output_throughput"]] if median.get("output_throughput") is not None else []
    if told and ratio is not None:
        told[-1] += " (%.2f of the baseline)" % ratio
    for key, name in (("median_tpot_ms", "TPOT"), ("median_ttft_ms", "TTFT"), ("median_e2e_latency_ms", "whole")):
        if median.get(key) is not None:
            told.append("%s %s" % (name, _milliseconds(median[key])))
    if median.get("accept_length") is not None:
        told.append("%.2f accepted" % median["accept_length"])
    if point.get("warnings"):
        told.append("! %s" % point["warnings"][0])
    return "%s: %s; %s" % (where, ", ".join(told) or "no numbers", left)


def row_line(row: Mapping[str, Any]) -> str:
    """A configuration that serves, or did not start."""
    if row.get("state") == FAILED:
        return "%s on %s: failed (%s): %s" % (row["name"], row["host"], row.get("reason"), row.get("message"))
    after = row.get("ready_after")
    ready = "" if after is None else ", ready after %.0f s" % after
    return "%s on %s: proven%s (%s)" % (row["name"], row["host"], ready, speculation(row))


def left_text(points: int, configurations: int, seconds: Optional[float]) -> str:
    """What is left, in a few words."""
    if not points:
        return "nothing left"
    text = "%s of %s left" % (_count(points, "point"), _count(configurations, "configuration"))
    return text if seconds is None else "%s, about %s" % (text, duration(seconds))


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 90:
        return "%.0f s" % seconds
    minutes = round(seconds / 60)
    return "%d min" % minutes if minutes < 90 else "%d h %02d min" % divmod(minutes, 60)


def _milliseconds(value: float) -> str:
    return "%.2f s" % (value / 1000) if value >= 1000 else "%.1f ms" % value


def _count(number: int, what: str) -> str:
    return "%d %s%s" % (number, what, "" if number == 1 else "s")
