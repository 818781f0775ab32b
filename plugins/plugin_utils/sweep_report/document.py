# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings the results of a sweep into their shape, whatever wrote them: pure, no I/O.

Files on a disk may be torn or edited, and what is in them came from servers.  Here every value gets the type that it
is to have, or none; text is bounded and shows; secrets are taken out once more; names are unique.  What follows need
not doubt any of it.
"""

from __future__ import annotations

import math
import statistics
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import (
    REDACTED,
    is_secret_argument,
    redact_argv,
    shown_command,
    shown_variable,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import (
    NAME,
    PATH,
    SENTENCE,
    visible,
    visible_lines,
)

FORMAT = 1

PROVEN, FAILED, PENDING = "proven", "failed", "pending"
MEASURED = "measured"

# Of one run of the client, in the words of SGLang's benchmark: what is a number, and its unit.
TIMES = tuple(
    "%s_%s_ms" % (kind, what) for what in ("ttft", "tpot", "e2e_latency") for kind in ("mean", "median", "p99")
)
NUMBERS = (
    "duration",
    "completed",
    "failed",
    "output_throughput",
    "request_throughput",
    "total_input_tokens",
    "total_output_tokens",
    *TIMES,
    "concurrency",
    "accept_length",
    "verify_steps",
    "server_accept_length",
)
_OF_A_ROW = (
    *(
        "name",
        "key",
        "baseline",
        "adaptive",
        "settings",
        "environment",
        "host",
        "state",
        "reason",
        "message",
        "version",
    ),
    *("effective", "max_running_requests", "command", "hardware", "ready_after", "points"),
)
_OF_A_POINT = (
    *("concurrency", "num_prompts", "state", "reason", "message", "repeats", "median", "spread", "warnings"),
)
_SOURCES = ("requests", "sample", "server")
_HARDWARE_TEXT = ("gpu", "driver")
_HARDWARE_NUMBERS = ("count", "memory_total_mib")

# Far beyond any sweep; a page of more is of no use to anybody.
MOST_CONFIGURATIONS = 200
MOST_POINTS = 64
MOST_REPEATS = 50
_MOST_ITEMS = 1000
_MOST_DEPTH = 12
_LARGEST = 1e15


class DocumentError(ValueError):
    """What was given is no result of a sweep; the message says why."""


def shaped(raw: Any) -> Tuple[Dict[str, Any], List[str]]:
    """The document in its shape, and a sentence for each thing that had to be left out.  Raises DocumentError."""
    if not isinstance(raw, Mapping):
        raise DocumentError("it is no object")
    version = raw.get("format")
    if isinstance(version, bool) or not isinstance(version, int):
        raise DocumentError("it does not say its format, which is %d here" % FORMAT)
    if version != FORMAT:
        raise DocumentError(
            "its format is %d, and this version of the collection knows %d only" % (version, FORMAT)
            if abs(version) < 1000
            else "its format is unknown"
        )
    rows = raw.get("configurations")
    if not isinstance(rows, list):
        raise DocumentError("it has no list of configurations")
    problems: List[str] = []
    if len(rows) > MOST_CONFIGURATIONS:
        problems.append("Of %d configurations only the first %d are here." % (len(rows), MOST_CONFIGURATIONS))
    configurations: List[Dict[str, Any]] = []
    taken: Set[Tuple[str, str]] = set()
    for position, row in enumerate(rows[:MOST_CONFIGURATIONS]):
        if not isinstance(row, Mapping):
            problems.append("Configuration %d is no object, and was left out." % (position + 1))
            continue
        configurations.append(_row(row, position, taken, problems))
    return {"format": FORMAT, "sweep": _sweep(raw.get("sweep")), "configurations": configurations}, problems


# ---- the parts -------------------------------------------------------------------------------------------------------


def _sweep(raw: Any) -> Dict[str, Any]:
    sweep = _mapping(plain(raw))
    prompts = _mapping(sweep.get("prompts"))
    levels = {level for level in map(_positive, _list(sweep.get("concurrencies"))) if level is not None}
    return {
        **sweep,
        "name": text(sweep.get("name"), NAME),
        "model": text(sweep.get("model"), PATH),
        "prompts": {
            **prompts,
            "name": text(prompts.get("name"), PATH),
            "sha256": text(prompts.get("sha256"), NAME),
            "count": whole(prompts.get("count")),
        },
        "concurrencies": sorted(levels),
        "repeats": whole(sweep.get("repeats")),
        "started": text(sweep.get("started"), NAME),
        "ended": text(sweep.get("ended"), NAME),
        "hosts": [text(host, NAME) for host in _list(sweep.get("hosts"))],
    }


def _row(raw: Mapping[str, Any], position: int, taken: Set[Tuple[str, str]], problems: List[str]) -> Dict[str, Any]:
    key, host = text(raw.get("key"), NAME), text(raw.get("host"), NAME)
    name = text(raw.get("name"), NAME).strip() or key or "configuration %d" % (position + 1)
    name = _unique(name, host, taken, problems)
    state = raw.get("state")
    hardware = _mapping(raw.get("hardware"))
    return {
        # Such as the profile that it was made of: for who deploys it again.
        **_other(raw, _OF_A_ROW),
        "name": name,
        "key": key,
        "baseline": raw.get("baseline") is True,
        "adaptive": raw.get("adaptive") is True,
        "settings": _mapping(plain(raw.get("settings"))),
        "environment": _environment(raw.get("environment")),
        "host": host,
        "state": state if state in (PROVEN, FAILED) else PENDING,
        "reason": text(raw.get("reason"), NAME),
        "message": text(raw.get("message"), SENTENCE),
        "version": text(raw.get("version"), NAME),
        "effective": _mapping(plain(raw.get("effective"))),
        "max_running_requests": whole(raw.get("max_running_requests")),
        "command": shown_command([str(word) for word in _list(raw.get("command"))]),
        "hardware": {
            **{name: text(hardware.get(name), NAME) for name in _HARDWARE_TEXT},
            **{name: whole(hardware.get(name)) for name in _HARDWARE_NUMBERS},
        },
        "ready_after": number(raw.get("ready_after")),
        "points": _points(raw.get("points"), name, problems),
    }


def _environment(raw: Any) -> Dict[str, str]:
    return {
        visible(str(name)): text(shown_variable(str(name), value), SENTENCE)
        for name, value in list(_mapping(raw).items())[:_MOST_ITEMS]
    }


def _unique(name: str, host: str, taken: Set[Tuple[str, str]], problems: List[str]) -> str:
    """A name that no other configuration of this host has."""
    unique, count = name, 1
    while (unique, host) in taken:
        count += 1
        unique = "%s (%d)" % (name[: NAME - 8], count)
    if unique != name:
        problems.append("Two configurations are called %s; the later one is called %s here." % (name, unique))
    taken.add((unique, host))
    return unique


def _points(raw: Any, name: str, problems: List[str]) -> List[Dict[str, Any]]:
    found: Dict[int, Dict[str, Any]] = {}
    for point in _list(raw)[:MOST_POINTS]:
        level = _positive(point.get("concurrency")) if isinstance(point, Mapping) else None
        if level is None:
            problems.append("A point of %s does not say its concurrency, and was left out." % name)
        elif level in found:
            problems.append("Concurrency %d of %s is there twice; the first one counts." % (level, name))
        else:
            found[level] = _point(point, level)
    return [found[level] for level in sorted(found)]


def _point(raw: Mapping[str, Any], level: int) -> Dict[str, Any]:
    repeats = [_repeat(repeat) for repeat in _list(raw.get("repeats"))[:MOST_REPEATS] if isinstance(repeat, Mapping)]
    measured = raw.get("state") == MEASURED and bool(repeats)
    message = text(raw.get("message"), SENTENCE)
    if raw.get("state") == MEASURED and not repeats:
        message = message or "It has no repeat."
    return {
        **_other(raw, _OF_A_POINT),
        "concurrency": level,
        "num_prompts": whole(raw.get("num_prompts")),
        "state": MEASURED if measured else FAILED,
        "reason": text(raw.get("reason"), NAME),
        "message": message,
        "repeats": repeats,
        # They follow from the repeats, so they are those of the repeats whatever the file says.
        "median": {name: _median([repeat[name] for repeat in repeats]) for name in NUMBERS},
        "spread": {name: _spread([repeat[name] for repeat in repeats]) for name in NUMBERS},
        "warnings": [text(warning, SENTENCE) for warning in _list(raw.get("warnings"))],
    }


def _repeat(raw: Mapping[str, Any]) -> Dict[str, Any]:
    source = raw.get("accept_length_source")
    histogram = raw.get("correct_drafts_histogram")
    return {
        **_other(raw, ()),
        **{name: number(raw.get(name)) for name in NUMBERS},
        "accept_length_source": source if source in _SOURCES else "",
        "correct_drafts_histogram": [number(item) for item in histogram[:_MOST_ITEMS]]
        if isinstance(histogram, list)
        else None,
    }


def _other(raw: Mapping[str, Any], known: Sequence[str]) -> Mapping[str, Any]:
    return _mapping(plain({name: value for name, value in raw.items() if name not in known}))


def _median(values: Sequence[Optional[float]]) -> Optional[float]:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _spread(values: Sequence[Optional[float]]) -> Dict[str, Optional[float]]:
    known = [value for value in values if value is not None]
    return {"min": min(known, default=None), "max": max(known, default=None)}


# ---- single values ---------------------------------------------------------------------------------------------------


def number(value: Any) -> Any:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if abs(value) <= _LARGEST and math.isfinite(value) else None


def whole(value: Any) -> Optional[int]:
    """A whole number that is not negative, or None."""
    found = number(value)
    return int(found) if found is not None and found >= 0 and int(found) == found else None


def text(value: Any, longest: int) -> str:
    """Bounded text in which everything shows; nothing for null."""
    if value is None:
        return ""
    if isinstance(value, str):
        return visible_lines(value, longest)
    return visible(str(plain(value)), longest)


def _positive(value: Any) -> Optional[int]:
    found = whole(value)
    return found if found else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Sequence[Any]:
    return value[:_MOST_ITEMS] if isinstance(value, (list, tuple)) else ()


def plain(value: Any, depth: int = _MOST_DEPTH) -> Any:
    """Any value as JSON has it: text bounded and visible, no number that JSON lacks, no secret by its name."""
    if isinstance(value, Mapping):
        if depth <= 0:
            return {}
        items = list(value.items())[:_MOST_ITEMS]
        return {visible(str(name)): _unless_secret(str(name), item, depth) for name, item in items}
    if isinstance(value, (list, tuple)):
        return [] if depth <= 0 else [plain(item, depth - 1) for item in _without_values(value[:_MOST_ITEMS])]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return number(value)
    return visible_lines(str(value), SENTENCE)


def _unless_secret(name: str, value: Any, depth: int) -> Any:
    # That a key is not set is worth knowing.
    if (is_secret_argument(name) or name == "launch_command") and value not in (None, "", [], {}):
        return REDACTED
    return plain(value, depth - 1)


def _without_values(values: Sequence[Any]) -> Sequence[Any]:
    """A list without the values of secret options, where it is a list of words."""
    return redact_argv(values) if all(isinstance(value, str) for value in values) else values
