# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many requests a server runs, how many wait, and how many tokens its drafts get accepted.

Sources, in the order in which they are asked: /v1/loads (0.5.8 and newer), /get_load (until 0.5.20),
/metrics (with --enable-metrics).  What a server answers is believed only as far as it makes sense.
"""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Protocol, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import Answer, HttpError, Refused

# More than any server can have: a number beyond it is no number of requests or of tokens.
_MOST = 10**9


class Client(Protocol):
    """What is needed of a client (see http_client.HttpClient)."""

    def get(self, path: str, timeout: float) -> Answer:
        """Raises HttpError."""


@dataclass(frozen=True)
class Load:
    """Requests over all ranks.

    running and waiting are None where they are not known; accept_length is in tokens per verification, None
    where the source does not tell it; source is the path that told, "" where none did, and then problem says why.
    """

    running: Optional[int] = None
    waiting: Optional[int] = None
    accept_length: Optional[float] = None
    source: str = ""
    problem: str = ""

    def to_dict(self) -> Dict[str, Any]:
        """As it is returned by the module."""
        return {"running": self.running, "waiting": self.waiting, "source": self.source}


def read_load(client: Client, timeout: float, clock: Callable[[], float] = time.monotonic) -> Load:
    """Ask one source after the other, for at most `timeout` seconds together."""
    deadline = clock() + timeout
    problems: List[str] = []
    for path, read in _SOURCES:
        left = deadline - clock()
        if left <= 0:
            problems.append("no time was left for %s" % path)
            break
        try:
            answer = client.get(path, left)
            load = read(answer) if answer.status == 200 else None
        except Refused as error:
            return Load(problem=str(error))
        except HttpError as error:
            problems.append(str(error))
            continue
        if load is not None:
            return load
        what = "does not tell it" if answer.status == 200 else "answers %d" % answer.status
        problems.append("%s %s" % (path, what))
    return Load(problem="; ".join(problems))


# -- one source each: None where the answer does not tell


def from_loads(body: Any) -> Optional[Load]:
    """Read /v1/loads."""
    rows = body.get("loads") if isinstance(body, Mapping) else None
    counts = _counts(rows, "num_running_reqs", "num_waiting_reqs")
    if counts is None or not isinstance(rows, list):
        return None
    spoken = [row.get("speculative") for row in rows]
    lengths = [part.get("accept_length") for part in spoken if isinstance(part, Mapping)]
    return Load(counts[0], counts[1], mean_accept_length(lengths), "/v1/loads")


def from_get_load(body: Any) -> Optional[Load]:
    """Read /get_load: num_reqs has the waiting ones in it."""
    counts = _counts(body if isinstance(body, list) else [body], "num_reqs", "num_waiting_reqs")
    if counts is None:
        return None
    return Load(max(0, counts[0] - counts[1]), counts[1], None, "/get_load")


def _counts(rows: Any, first: str, second: str) -> Optional[Tuple[int, int]]:
    if not isinstance(rows, list) or not rows:
        return None
    totals = [0, 0]
    for row in rows:
        numbers = [_count(row.get(name)) for name in (first, second)] if isinstance(row, Mapping) else [None]
        for place, number in enumerate(numbers):
            if number is None:
                return None
            totals[place] += number
    return totals[0], totals[1]


def _count(value: Any) -> Optional[int]:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _MOST:
        return None
    return int(value)


_SAMPLE = re.compile(
    r"^sglang:(?P<name>num_running_reqs|num_queue_reqs|spec_accept_length)(?:\{(?P<labels>[^}]*)\})?"
    r"[ \t]+(?P<value>[0-9.eE+-]{1,32})",
    re.MULTILINE,
)
_DP_RANK = re.compile(r'\bdp_rank="([^"]*)"')


def from_metrics(text: str) -> Optional[Load]:
    """Read /metrics; ranks that work on the same requests (tensor parallel) count once."""
    largest: Dict[str, Dict[str, float]] = {}
    for match in _SAMPLE.finditer(text):
        rank = _DP_RANK.search(match.group("labels") or "")
        try:
            value = float(match.group("value"))
        except ValueError:
            return None
        if not 0 <= value <= _MOST:
            return None
        ranks = largest.setdefault(match.group("name"), {})
        key = rank.group(1) if rank is not None else ""
        ranks[key] = max(value, ranks.get(key, 0.0))
    running, waiting = largest.get("num_running_reqs"), largest.get("num_queue_reqs")
    if running is None:
        return None
    return Load(
        int(sum(running.values())),
        int(sum(waiting.values())) if waiting is not None else None,
        mean_accept_length(list(largest.get("spec_accept_length", {}).values())),
        "/metrics",
    )


_SOURCES: Tuple[Tuple[str, Callable[[Answer], Optional[Load]]], ...] = (
    ("/v1/loads", lambda answer: from_loads(answer.json())),
    ("/get_load", lambda answer: from_get_load(answer.json())),
    ("/metrics", lambda answer: from_metrics(answer.body.decode("utf-8", "replace"))),
)


# -- acceptance


def mean_accept_length(values: List[Any]) -> Optional[float]:
    """The mean over the ranks that have verified something; None where none has.

    0 means that nothing was counted since the start or the last flush, and 1.0 that no draft was accepted.
    """
    counted = [
        float(value)
        for value in values
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= _MOST
    ]
    counted = [value for value in counted if math.isfinite(value)]
    return round(sum(counted) / len(counted), 3) if counted else None
