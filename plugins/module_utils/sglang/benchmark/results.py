# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is kept of SGLang's benchmark results, by the client's own names; all pure.

A result of the client has the server's arguments in it, keys included: what is not listed here is not kept.
"""

from __future__ import annotations

import math
import statistics
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import SENTENCE, visible

MEASURED = "measured"
FAILED = "failed"

# Where the acceptance comes from.
REQUESTS = "requests"  # the meta_info of the requests that were measured
SAMPLE = "sample"  # of the same prompts, sent once more at the same concurrency
SERVER = "server"  # the server's own average over all its requests since the last flush

_COUNTS = ("completed", "total_input_tokens", "total_output_tokens")
_LATENCIES = tuple(
    "%s_%s_ms" % (kind, what) for what in ("ttft", "tpot", "e2e_latency") for kind in ("mean", "median", "p99")
)
_FIGURES = ("duration", "output_throughput", "request_throughput", *_LATENCIES, "concurrency")
# Without these there is nothing to compare.
_REQUIRED = ("completed", "duration", "output_throughput", "request_throughput")
# Of which a median is made.
NUMBERS = (
    "duration",
    "completed",
    "failed",
    "output_throughput",
    "request_throughput",
    "total_input_tokens",
    "total_output_tokens",
    *_LATENCIES,
    "concurrency",
    "accept_length",
    "verify_steps",
    "server_accept_length",
)
_DIGITS = 4
_MOST_HISTOGRAM = 64
_MOST = 1e15


class ResultError(ValueError):
    """A result of the client that cannot be used: a sentence, and a code."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def number(value: Any) -> Optional[float]:
    """A number that can be one of a measurement, else None: no infinity, no NaN, nothing below 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not math.isfinite(value) or not 0 <= value <= _MOST:
        return None
    return value


def whole(value: Any) -> int:
    """A count, 0 where it is none."""
    found = number(value)
    return int(found) if found is not None else 0


def repeat_of(event: Mapping[str, Any], requests: int, speculates: bool) -> Dict[str, Any]:
    """One repeat of a point, from what the client script says of it (see client_script).

    requests: how many were to be sent; speculates: whether the server says so.  Raises ResultError.
    """
    result, heard = event.get("result"), event.get("requests")
    heard = heard if isinstance(heard, Mapping) else {}
    if not isinstance(result, Mapping):
        raise ResultError("no_result", "the client left no result")
    missing = [name for name in _REQUIRED if number(result.get(name)) is None]
    if missing:
        raise ResultError("no_result", "the client's result has no number for %s" % ", ".join(missing))
    _check_completed(whole(result["completed"]), heard, requests)
    found: Dict[str, Any] = {name: whole(result.get(name)) for name in _COUNTS}
    found["failed"] = 0
    for name in _FIGURES:
        value = number(result.get(name))
        found[name] = round(value, _DIGITS) if value is not None else None
    found.update(_acceptance(result, heard, requests, speculates))
    return found


def _check_completed(completed: int, heard: Mapping[str, Any], requests: int) -> None:
    """A request that fails is no error for the client, and it sends fewer where prompts are too short for it."""
    errors = "; ".join(visible(str(line), SENTENCE) for line in heard.get("errors") or ())
    sent = whole(heard.get("requests")) if heard.get("listened") else None
    if sent is not None and sent < requests:
        raise ResultError(
            "prompts_dropped", "the client sent %d of %d requests: some prompts are too short for it" % (sent, requests)
        )
    if completed != requests:
        raise ResultError(
            "requests_failed",
            "%d of %d requests were not completed%s"
            % (requests - completed, requests, ": " + errors if errors else ""),
        )


def _acceptance(result: Mapping[str, Any], heard: Mapping[str, Any], requests: int, speculates: bool) -> Dict[str, Any]:
    found: Dict[str, Any] = {
        "accept_length": None,
        "accept_length_source": "",
        "verify_steps": None,
        "server_accept_length": None,
        "correct_drafts_histogram": None,
    }
    average = number(result.get("accept_length"))
    if average:
        found["server_accept_length"] = round(average, _DIGITS)
    steps, tokens = whole(heard.get("verify_steps")), whole(heard.get("verified_tokens"))
    if not speculates and not steps:
        return found
    if heard.get("listened") and whole(heard.get("heard")) >= requests:
        found["accept_length_source"] = REQUESTS
        found["verify_steps"] = steps
        # As SGLang counts it: the token of the prefill is one of the tokens, and no verification.
        found["accept_length"] = round(tokens / steps, _DIGITS) if steps else None
        found["correct_drafts_histogram"] = _histogram(heard.get("histogram"))
    elif average:
        found["accept_length_source"] = SERVER
        found["accept_length"] = found["server_accept_length"]
    return found


def _histogram(value: Any) -> Optional[List[int]]:
    if not isinstance(value, list) or not value:
        return None
    counts = [whole(count) for count in value[:_MOST_HISTOGRAM]]
    return counts if any(counts) else None


def medians(repeats: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
    """The median of each number; null where a repeat does not have it."""
    found: Dict[str, Any] = {}
    for name in NUMBERS:
        values = _values(repeats, name)
        found[name] = _tidy(statistics.median(values)) if values else None
    return found


def spreads(repeats: Sequence[Mapping[str, Any]]) -> Dict[str, Dict[str, Any]]:
    """The least and the largest of each number that every repeat has."""
    found = {}
    for name in NUMBERS:
        values = _values(repeats, name)
        if values:
            found[name] = {"min": min(values), "max": max(values)}
    return found


def _values(repeats: Sequence[Mapping[str, Any]], name: str) -> List[float]:
    values = [repeat.get(name) for repeat in repeats]
    return [] if any(value is None for value in values) else [value for value in values if value is not None]


def _tidy(value: float) -> float:
    value = round(value, _DIGITS)
    return int(value) if value == int(value) else value


def measured_point(
    concurrency: int, num_prompts: int, repeats: Sequence[Dict[str, Any]], warnings: Sequence[str]
) -> Dict[str, Any]:
    """A point whose repeats are all there."""
    return {
        "concurrency": concurrency,
        "num_prompts": num_prompts,
        "state": MEASURED,
        "reason": "",
        "message": "",
        "repeats": list(repeats),
        "median": medians(repeats),
        "spread": spreads(repeats),
        "warnings": list(warnings),
        "log_tail": [],
    }


def failed_point(
    concurrency: int,
    num_prompts: int,
    reason: str,
    message: str,
    repeats: Sequence[Dict[str, Any]] = (),
    warnings: Sequence[str] = (),
    log_tail: Sequence[str] = (),
) -> Dict[str, Any]:
    """A point that was not measured.  The repeats that were come along, for people; no median is made of them."""
    return {
        "concurrency": concurrency,
        "num_prompts": num_prompts,
        "state": FAILED,
        "reason": reason,
        "message": message,
        "repeats": list(repeats),
        "median": {},
        "spread": {},
        "warnings": list(warnings),
        "log_tail": list(log_tail),
    }
