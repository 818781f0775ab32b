# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said on the controller about a server that is waited for: lines of text, no I/O."""

from __future__ import annotations

from typing import Any, Mapping, Optional

# Hosts print by turns: all of them together about one line in so many seconds.
_BETWEEN_LINES = 1.0
# A log that is quiet for so long is worth a word (seconds).
_SILENT = 120.0

_WORDS = {
    "starting": "starting",
    "connecting": "connecting its ranks",
    "loading_weights": "loading weights",
    "loading_draft": "loading the draft model",
    "allocating_cache": "allocating the KV cache",
    "compiling_kernels": "compiling kernels",
    "capturing_graphs": "capturing CUDA graphs",
    "warming_up": "warming up",
    "ready": "answering",
    "generating": "generating",
    "proving": "checking its configuration",
    "soaking": "serving under load",
}


def interval_for(asked: float, hosts: int) -> float:
    """Seconds between two lines of one host, where so many are waited for at the same time."""
    return max(asked, hosts * _BETWEEN_LINES)


def label(host: str, instance: str, delegated_to: Optional[str]) -> str:
    """Whom a line is about."""
    where = "%s -> %s" % (host, delegated_to) if delegated_to and delegated_to != host else host
    return "%s %s" % (where, instance)


def progress_line(who: str, progress: Mapping[str, Any]) -> str:
    """How far a server is, as one line; progress is the result of the module."""
    phase = str(progress.get("phase") or "")
    words = _WORDS.get(phase, phase or "waiting")
    if progress.get("percent") is not None:
        words += " %d %%" % progress["percent"]
    if progress.get("of"):
        words += ", %d of %d requests" % (progress.get("requests") or 0, progress["of"])
    parts = ["%s: %s" % (who, words), duration(progress.get("elapsed") or 0.0)]
    estimate = _estimate(progress.get("left"), progress.get("last_start"))
    if estimate:
        parts.append(estimate)
    silent = progress.get("silent")
    if silent is not None and silent >= _SILENT:
        parts.append("its log has not moved for %s" % duration(silent))
    return ", ".join(parts)


def _estimate(left: Optional[float], last_start: Optional[float]) -> str:
    if left is None or last_start is None:
        return ""
    if left <= 0:
        return "longer than the last start (%s)" % duration(last_start)
    return "about %s left (last start %s)" % (rough(left), duration(last_start))


def duration(seconds: float) -> str:
    """A time for people: 7 s, 2 min 10 s, 1 h 05 min."""
    whole = max(0, round(seconds))
    if whole < 60:
        return "%d s" % whole
    if whole < 3600:
        return "%d min %02d s" % divmod(whole, 60)
    return "%d h %02d min" % divmod(whole // 60, 60)


def rough(seconds: float) -> str:
    """A time that is not known to the second."""
    if seconds < 90:
        return "%d s" % max(10, round(seconds, -1))
    minutes = round(seconds / 60)
    return "%d min" % minutes if minutes < 60 else "%d h %02d min" % divmod(minutes, 60)


def lost_line(who: str, reason: str, attempt: int, attempts: int, pause: float) -> str:
    """That the connection broke and is tried again."""
    return "%s: the connection is lost (%s); trying again in %s (%d of %d)" % (
        who,
        " ".join(reason.split())[:200],
        duration(pause),
        attempt,
        attempts,
    )
