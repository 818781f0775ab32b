# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many short generations, several at a time: some servers answer a few requests well and then hang.

The requests run in threads of their own; who starts them collects the outcomes in turn and may stop at
any time.  Every prompt is another one from its first word on, so that nothing of it is in a cache.
"""

from __future__ import annotations

import queue
import threading
from dataclasses import asdict, dataclass
from typing import Any, Callable, Dict, Mapping, Optional

# Of a hundred requests so many may fail before the server counts as failed; one may always.
TOLERATED_PERCENT = 5

# Different kinds of text: prose, code, lists, dialogue.
_TEXTS = (
    "Explain in plain words how a refrigerator keeps food cold.",
    "Write a Python function that tells whether a word is a palindrome.",
    "List the steps that are needed to bake a loaf of bread.",
    "Tell a short story about a lighthouse keeper and a lost ship.",
    "Summarize why the seasons change during the year.",
    "Write a polite letter that asks a neighbour to return a ladder.",
    "Describe the water cycle for a school book.",
    "Write an SQL query that counts the orders of each customer.",
)


@dataclass(frozen=True)
class SoakPlan:
    """How many requests, how many of them at a time, and the tokens that each generates."""

    requests: int
    concurrency: int
    tokens: int

    @property
    def tolerated(self) -> int:
        """How many of them may fail."""
        return max(1, self.requests * TOLERATED_PERCENT // 100)


@dataclass(frozen=True)
class SoakOutcome:
    """What became of one request: tokens and verifications, or a problem in words (timed_out: no answer came)."""

    tokens: int = 0
    verified: int = 0
    problem: str = ""
    timed_out: bool = False


@dataclass
class SoakCount:
    """What became of all requests so far; requests counts those that have ended, failed ones included."""

    requests: int = 0
    failed: int = 0
    timed_out: int = 0
    seconds: float = 0.0
    tokens: int = 0
    verified: int = 0
    last_problem: str = ""

    def add(self, outcome: SoakOutcome) -> None:
        """Count one more."""
        self.requests += 1
        self.tokens += outcome.tokens
        self.verified += outcome.verified
        if outcome.problem:
            self.failed += 1
            self.timed_out += outcome.timed_out
            self.last_problem = outcome.problem

    @property
    def answered(self) -> int:
        """Requests that were answered well."""
        return self.requests - self.failed

    def result(self) -> Dict[str, Any]:
        """As it is returned by the module."""
        length = round(self.tokens / self.verified, 4) if self.verified else None
        return {
            "requests": self.requests,
            "failed": self.failed,
            "seconds": round(self.seconds, 3),
            "accept_length": length,
        }

    def to_dict(self) -> Dict[str, Any]:
        """For the next part of the same wait."""
        return asdict(self)


def count_from(data: Mapping[str, Any]) -> SoakCount:
    """The reverse of SoakCount.to_dict.  Raises ValueError, TypeError or KeyError where it is no such data."""
    whole = {name: int(data[name]) for name in ("requests", "failed", "timed_out", "tokens", "verified")}
    return SoakCount(seconds=float(data["seconds"]), last_problem=str(data["last_problem"]), **whole)


def soak_prompt(number: int, nonce: str) -> str:
    """The prompt of one request; nonce is another word for each wait."""
    return "%s-%d. %s" % (nonce, number, _TEXTS[number % len(_TEXTS)])


class Load:
    """Keeps requests under way, from number `first` on, until all are done or it is stopped.

    ask runs in several threads at a time and must not raise.
    """

    def __init__(self, first: int, plan: SoakPlan, ask: Callable[[int], SoakOutcome]) -> None:
        self._next = first
        self._end = plan.requests
        self._ask = ask
        self._lock = threading.Lock()
        self._outcomes: queue.Queue[SoakOutcome] = queue.Queue()
        # Daemons: a request that hangs must not keep the program from ending.
        self._threads = [
            threading.Thread(target=self._work, daemon=True)
            for _number in range(min(plan.concurrency, self._end - first))
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Begin no more requests; those under way go on."""
        with self._lock:
            self._end = self._next

    def outcome(self, patience: float) -> Optional[SoakOutcome]:
        """The next outcome, None where none comes within so many seconds."""
        try:
            return self._outcomes.get(timeout=patience)
        except queue.Empty:
            return None

    @property
    def finished(self) -> bool:
        """Whether nothing is under way and every outcome was fetched."""
        # In this order: a thread puts its outcome before it ends.
        return not any(thread.is_alive() for thread in self._threads) and self._outcomes.empty()

    def _work(self) -> None:
        while True:
            with self._lock:
                if self._next >= self._end:
                    return
                number = self._next
                self._next += 1
            self._outcomes.put(self._ask(number))
