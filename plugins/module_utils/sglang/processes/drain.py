# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits until a server has no requests left, before it is told to stop.

After SIGTERM SGLang itself waits for its requests without a limit, and answers /health with 503 at once.
Waiting here first keeps the time bounded, and shows how many requests there still are.

Sources, in the order in which they are asked: /v1/loads (0.5.8 and newer), /get_load (until 0.5.20),
/metrics (with --enable-metrics).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Protocol, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import Answer, HttpError, Refused

# Requests may be between two queues at the moment of one look.
_LOOKS = 2
_INTERVAL = 0.25
_REQUEST_TIMEOUT = 5.0
# So many looks in a row may fail after one has succeeded: a busy server answers late.
_TOLERATED = 3
_MOST_REQUESTS = 1e9


class Client(Protocol):
    """What is needed of a client (see http_client.HttpClient)."""

    def get(self, path: str, timeout: float) -> Answer:
        """Raises HttpError."""


@dataclass(frozen=True)
class Drained:
    """How the waiting went.

    asked: whether the server was asked at all; seconds it took; in_flight: running and queued requests at
    the last look, None where that is not known; source: the path that told, "" where none did; message says
    in a sentence why the waiting ended before they were zero, or was not begun; notable: whether somebody
    should read that.
    """

    asked: bool = False
    seconds: float = 0.0
    in_flight: Optional[int] = None
    source: str = ""
    message: str = ""
    notable: bool = False

    def to_dict(self) -> Dict[str, Any]:
        """As it is returned by the module."""
        return {
            "asked": self.asked,
            "seconds": round(self.seconds, 3),
            "in_flight": self.in_flight,
            "source": self.source,
            "message": self.message,
        }


# -- what the sources say


def count_loads(body: Any) -> Optional[int]:
    """Requests in /v1/loads, over all ranks; None where it does not tell."""
    rows = body.get("loads") if isinstance(body, Mapping) else None
    return _sum_rows(rows, _running_and_waiting)


def count_get_load(body: Any) -> Optional[int]:
    """Requests in /get_load: one entry for each rank, whose num_reqs has the waiting ones in it."""
    rows = body if isinstance(body, list) else [body]
    return _sum_rows(rows, lambda row: _number(row.get("num_reqs")))


def _sum_rows(rows: Any, count: Callable[[Mapping[str, Any]], Optional[int]]) -> Optional[int]:
    if not isinstance(rows, list) or not rows:
        return None
    total = 0
    for row in rows:
        number = count(row) if isinstance(row, Mapping) else None
        if number is None:
            return None
        total += number
    return total


def _running_and_waiting(row: Mapping[str, Any]) -> Optional[int]:
    running, waiting = _number(row.get("num_running_reqs")), _number(row.get("num_waiting_reqs"))
    return None if running is None or waiting is None else running + waiting


def _number(value: Any) -> Optional[int]:
    # Not "value < 0": NaN is neither, and infinity is no number of requests.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _MOST_REQUESTS:
        return None
    return int(value)


_SAMPLE = re.compile(
    r"^sglang:(?P<name>num_running_reqs|num_queue_reqs)(?:\{(?P<labels>[^}\n]*)\})?[ \t]+(?P<value>[0-9.eE+-]+)",
    re.MULTILINE,
)
_DP_RANK = re.compile(r'\bdp_rank="([^"]*)"')


def count_metrics(text: str) -> Optional[int]:
    """Requests in /metrics; ranks that work on the same requests (tensor parallel) count once."""
    largest: Dict[Tuple[str, str], float] = {}
    for match in _SAMPLE.finditer(text):
        rank = _DP_RANK.search(match.group("labels") or "")
        key = (match.group("name"), rank.group(1) if rank is not None else "")
        try:
            value = float(match.group("value"))
        except ValueError:
            return None
        if not 0 <= value <= _MOST_REQUESTS:
            return None
        largest[key] = max(value, largest.get(key, 0.0))
    if not any(name == "num_running_reqs" for name, _rank in largest):
        return None
    return int(sum(largest.values()))


# -- one look


class LoadReader:
    """Asks a server how many requests it has, and goes on with the source that answered first."""

    def __init__(self, client: Client, timeout: float = _REQUEST_TIMEOUT) -> None:
        self._client = client
        self._timeout = timeout
        self.source = ""

    def read(self) -> Tuple[Optional[int], str]:
        """The number of requests, None where it is not known, and then why.  Raises Refused."""
        sources = [item for item in _SOURCES if item[0] == self.source] if self.source else list(_SOURCES)
        problems: List[str] = []
        for path, count in sources:
            try:
                answer = self._client.get(path, self._timeout)
                number = count(answer) if answer.status == 200 else None
            except Refused:
                raise
            except HttpError as error:
                problems.append(str(error))
                continue
            if number is not None:
                self.source = path
                return number, ""
            what = "does not tell it" if answer.status == 200 else "answers %d" % answer.status
            problems.append("%s %s" % (path, what))
        return None, "; ".join(problems)


_SOURCES: Tuple[Tuple[str, Callable[[Answer], Optional[int]]], ...] = (
    ("/v1/loads", lambda answer: count_loads(answer.json())),
    ("/get_load", lambda answer: count_get_load(answer.json())),
    ("/metrics", lambda answer: count_metrics(answer.body.decode("utf-8", "replace"))),
)


# -- the waiting


def drain(
    client: Client,
    budget: float,
    alive: Callable[[], bool],
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> Drained:
    """Wait until a server has no requests, for at most `budget` seconds; 0 does not ask it."""
    if budget <= 0:
        return Drained(message="drain_timeout is 0")
    began = clock()
    reader = LoadReader(client, min(_REQUEST_TIMEOUT, budget))
    in_flight: Optional[int] = None
    zeros = failures = 0

    def done(message: str = "", notable: bool = True) -> Drained:
        return Drained(True, clock() - began, in_flight, reader.source, message, bool(message) and notable)

    while True:
        if not alive():
            in_flight = None
            return done("the server ended meanwhile")
        try:
            count, problem = reader.read()
        except Refused as error:
            in_flight = None
            return done("it is not waited for: %s" % error, notable=bool(reader.source))
        if count is None:
            failures += 1
            zeros = 0
            if not reader.source or failures > _TOLERATED:
                in_flight = None
                return done("it is not waited for, because its requests cannot be counted: %s" % problem)
        else:
            failures, in_flight = 0, count
            zeros = zeros + 1 if count == 0 else 0
            if zeros >= _LOOKS:
                return done()
        left = began + budget - clock()
        if left <= 0:
            what = "its requests were not all done" if in_flight is None else "%d requests were left" % in_flight
            return done("%s when drain_timeout (%g s) was over" % (what, budget))
        sleep(min(_INTERVAL, left))
