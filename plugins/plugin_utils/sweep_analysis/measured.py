# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rows of a sweep's results, read with care: anything may be missing."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.shapes import Excluded

# A closed loop that holds less of the concurrency that was asked for counts at what it held.
REACHED = 0.9
_NO_ALGORITHM = frozenset(["", "none", "null"])


@dataclass(frozen=True)
class Repeat:
    """One repeat that counts."""

    number: int
    throughput: float
    reached: Optional[float]
    accept_length: Optional[float]
    source: str
    verify_steps: Optional[float]
    histogram: Tuple[float, ...]


@dataclass(frozen=True)
class Point:
    """A point that counts: it has at least one repeat."""

    concurrency: int
    repeats: Tuple[Repeat, ...]
    output_tokens: Optional[float]  # of a request, on average
    num_prompts: Optional[int]
    warnings: Tuple[str, ...] = ()

    @property
    def throughput(self) -> float:
        return statistics.median(repeat.throughput for repeat in self.repeats)

    @property
    def reached(self) -> Optional[float]:
        known = [repeat.reached for repeat in self.repeats if repeat.reached is not None]
        return statistics.median(known) if known else None

    @property
    def counts_as(self) -> float:
        reached = self.reached
        return reached if reached is not None and reached < REACHED * self.concurrency else float(self.concurrency)


@dataclass(frozen=True)
class Configuration:
    """A row."""

    index: int
    label: str
    name: str
    key: str
    host: str
    baseline: bool
    adaptive: bool
    state: str
    reason: str
    settings: Mapping[str, Any]
    effective: Mapping[str, Any]
    environment: Mapping[str, Any]
    extra_args: Tuple[str, ...]
    hardware: Mapping[str, Any]
    version: str
    max_running_requests: Optional[int]
    prompts: str  # which prompts, where a row says so: their sha256, else their name
    points: Mapping[int, Point] = field(default_factory=dict)

    def value(self, name: str) -> Any:
        """A setting as the server has it, else as it was asked for; name is without speculative_."""
        for source in (self.effective, self.settings):
            for key in ("speculative_" + name, name):
                if source.get(key) is not None:
                    return source[key]
        return None

    def has(self, name: str) -> bool:
        """Whether a switch is on, as the server says or as it was asked for."""
        if self.value(name) not in (None, False, 0, ""):
            return True
        option = "--" + name.replace("_", "-")
        return any(word.split("=")[0] == option for word in self.extra_args)

    @property
    def algorithm(self) -> str:
        """The algorithm of speculation, "" without."""
        text = str(self.value("algorithm") or "")
        return "" if text.lower() in _NO_ALGORITHM else text.upper()

    @property
    def num_steps(self) -> Optional[int]:
        return whole(self.value("num_steps")) if self.algorithm else 0

    @property
    def topk(self) -> Optional[int]:
        return whole(self.value("eagle_topk")) if self.algorithm else None

    @property
    def draft(self) -> str:
        return str(self.value("draft_model_path") or "")

    @property
    def complexity(self) -> Tuple[int, ...]:
        """What is simpler sorts first: the baseline, then fewer steps, a narrower tree; adaptive comes last."""
        if not self.algorithm:
            return (0, 0, 0, 0, self.index)
        unknown = 1_000_000
        numbers = (self.num_steps, self.topk, whole(self.value("num_draft_tokens")))
        return (int(self.adaptive), *(unknown if one is None else max(one, 1) for one in numbers), self.index)


def number(value: Any) -> Optional[float]:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def whole(value: Any) -> Optional[int]:
    """A whole number, or None."""
    found = number(value)
    return int(found) if found is not None and found == int(found) else None


def read(results: Mapping[str, Any]) -> Tuple[List[Configuration], List[Excluded]]:
    """The configurations in their order, and everything that does not count."""
    rows = results.get("configurations")
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise ValueError('The results of a sweep need "configurations", a list of dictionaries.')
    labels = _labels(rows)
    excluded: List[Excluded] = []
    configurations = [_configuration(index, row, labels[index], excluded) for index, row in enumerate(rows)]
    return configurations, excluded


def _labels(rows: List[Mapping[str, Any]]) -> List[str]:
    """A name for each row that no other has."""
    labels = [str(row.get("name") or "configuration %d" % (index + 1)) for index, row in enumerate(rows)]
    for more in ("host", "key"):
        labels = [
            "%s (%s)" % (label, rows[index].get(more)) if labels.count(label) > 1 and rows[index].get(more) else label
            for index, label in enumerate(labels)
        ]
    return [
        "%s (%d)" % (label, labels[: index + 1].count(label)) if labels.count(label) > 1 else label
        for index, label in enumerate(labels)
    ]


def _configuration(index: int, row: Mapping[str, Any], label: str, excluded: List[Excluded]) -> Configuration:
    host = str(row.get("host") or "")
    points: Dict[int, Point] = {}
    for given in _list(row.get("points")):
        if not isinstance(given, Mapping):
            continue
        concurrency = whole(given.get("concurrency"))
        if concurrency is None or concurrency < 1:
            continue
        point = _point(given, concurrency, label, host, excluded)
        if point is not None:
            points[concurrency] = point
    state = str(row.get("state") or "pending")
    reason = _sentence(row)
    prompts = _mapping(row.get("prompts"))
    if state == "failed":
        excluded.append(_excluded(label, host, None, None, str(row.get("reason") or "failed"), reason))
    return Configuration(
        index=index,
        label=label,
        name=str(row.get("name") or label),
        key=str(row.get("key") or ""),
        host=host,
        baseline=bool(row.get("baseline")),
        adaptive=bool(row.get("adaptive")),
        state=_state(state, points, excluded, label),
        reason=reason,
        settings=_mapping(row.get("settings")),
        effective=_mapping(row.get("effective")),
        environment=_mapping(row.get("environment")),
        extra_args=tuple(str(word) for word in _list(row.get("extra_args"))),
        hardware=_mapping(row.get("hardware")),
        version=str(row.get("version") or ""),
        max_running_requests=whole(row.get("max_running_requests")),
        prompts=str(prompts.get("sha256") or prompts.get("name") or ""),
        points=points,
    )


def _state(state: str, points: Mapping[int, Point], excluded: List[Excluded], label: str) -> str:
    if not points:
        failed = state == "failed" or any(one["configuration"] == label for one in excluded)
        return "failed" if failed else "pending"
    lost = any(one["configuration"] == label and one["repeat"] is None for one in excluded)
    return "partly" if lost else "measured"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> List[Any]:
    return value if isinstance(value, list) else []


def _sentence(given: Mapping[str, Any]) -> str:
    return str(given.get("message") or given.get("reason") or "")


def _excluded(
    label: str, host: str, concurrency: Optional[int], repeat: Optional[int], reason: str, message: str
) -> Excluded:
    return {
        "configuration": label,
        "host": host,
        "concurrency": concurrency,
        "repeat": repeat,
        "reason": reason,
        "message": message,
    }


def _point(
    given: Mapping[str, Any], concurrency: int, label: str, host: str, excluded: List[Excluded]
) -> Optional[Point]:
    if given.get("state") != "measured":
        reason = str(given.get("reason") or "not_measured")
        excluded.append(_excluded(label, host, concurrency, None, reason, _sentence(given) or "It was not measured."))
        return None
    repeats: List[Repeat] = []
    tokens: List[float] = []
    asked = number(given.get("num_prompts"))
    for index, one in enumerate(_list(given.get("repeats")), 1):
        values = _mapping(one)
        reason, message = _fault(values, asked)
        if reason:
            excluded.append(_excluded(label, host, concurrency, index, reason, message))
            continue
        repeats.append(_repeat(index, values))
        completed, total = number(values.get("completed")), number(values.get("total_output_tokens"))
        if completed and total:
            tokens.append(total / completed)
    if not repeats:
        message = "None of its repeats counts."
        excluded.append(_excluded(label, host, concurrency, None, "no_repeat", message))
        return None
    warnings = tuple(str(text) for text in _list(given.get("warnings")))
    return Point(concurrency, tuple(repeats), statistics.median(tokens) if tokens else None, whole(asked), warnings)


def _fault(values: Mapping[str, Any], asked: Optional[float]) -> Tuple[str, str]:
    """Why a repeat does not count: a code and a sentence, or two empty texts."""
    failed, completed = number(values.get("failed")), number(values.get("completed"))
    if failed:
        return "requests_failed", "%d of its requests failed, so its throughput is that of other work." % failed
    if completed is not None and asked is not None and completed < asked:
        return "requests_missing", "It completed %d of %d requests." % (completed, asked)
    throughput = number(values.get("output_throughput"))
    if throughput is None or throughput <= 0:
        return "no_throughput", "It has no output throughput."
    return "", ""


def _repeat(index: int, values: Mapping[str, Any]) -> Repeat:
    histogram = values.get("correct_drafts_histogram")
    counts = [number(one) for one in histogram] if isinstance(histogram, list) else []
    reached = number(values.get("concurrency"))
    accepted = number(values.get("accept_length"))
    return Repeat(
        number=index,
        throughput=float(values["output_throughput"]),
        reached=reached if reached and reached > 0 else None,
        # Less than the one token of the target model itself is no measurement.
        accept_length=accepted if accepted is not None and accepted >= 1 else None,
        source=str(values.get("accept_length_source") or ""),
        verify_steps=number(values.get("verify_steps")),
        histogram=tuple(one for one in counts if one is not None) if None not in counts else (),
    )
