# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits until GPUs are free and stay free, or until that cannot be expected any more.

One good look proves nothing: a process that is starting shows late, and a supervisor may start the
next one.  So memory *and* holders must stay as they are for a while.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Dict, FrozenSet, List, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import FREE, UNKNOWN, Verdict
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.observer import Look
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.verdict import Limits, holders_of

Key = Tuple[int, Optional[int]]  # PID and start time

WAITING = "waiting"
POINTLESS = "pointless"
TIMEOUT = "timeout"

# So many looks, at least, must agree, however short the wanted time is.
_LEAST_SAMPLES = 3
# Idle figures move by a few MiB, as when a process opens a GPU that it does not use.
_RISE_MIB = 16
_TIMELINE_HALF = 100


@dataclass(frozen=True)
class Sample:
    """One GPU in one look.

    holders: all listed processes; blockers: those of them that are protected and not allowed, with a
    description.
    """

    index: int
    verdict: Verdict
    used_mib: Optional[int]
    holders: FrozenSet[Key] = frozenset()
    blockers: Tuple[Tuple[Key, str], ...] = ()


def samples_of(look: Look, limits: Limits) -> List[Sample]:
    """What one look says about each GPU."""
    samples = []
    for reading, verdict in zip(look.readings, look.verdicts(limits)):
        present = holders_of(reading, look.holders)
        samples.append(
            Sample(
                index=reading.index,
                verdict=verdict,
                used_mib=reading.memory.used_mib if reading.memory else None,
                holders=frozenset(holder.key for holder in present),
                blockers=tuple(
                    (holder.key, "%s, %s" % (holder.label, holder.protected_by))
                    for holder in present
                    if holder.protected_by and not limits.allowance.covers(holder)
                ),
            )
        )
    return samples


@dataclass(frozen=True)
class Progress:
    """Where the wait stands.  free_since: when the GPUs became free and stayed so, else None."""

    state: str
    why: str = ""
    free_since: Optional[float] = None


class FreeWatch:
    """Judges a sequence of looks.  Feed it each look with its time; it knows no clock."""

    def __init__(self, stable_for: float) -> None:
        self._stable_for = stable_for
        self._since: Optional[float] = None
        self._samples = 0
        self._lowest: Dict[int, int] = {}
        self._holders: Dict[int, FrozenSet[Key]] = {}
        self._blocked_since: Dict[Key, float] = {}

    def feed(self, at: float, samples: Sequence[Sample]) -> Progress:
        """Take in one look at all GPUs, made at time `at` (seconds, monotonic)."""
        hopeless = self._hopeless(at, samples)
        if hopeless:
            self._since = None
            return Progress(POINTLESS, hopeless)
        if not samples or any(sample.verdict.state != FREE or sample.used_mib is None for sample in samples):
            self._since = None
            return Progress(WAITING)
        if self._since is None or self._disturbed(samples):
            self._since = at
            self._samples = 0
            self._lowest = {}
        self._samples += 1
        for sample in samples:
            used = sample.used_mib or 0
            self._lowest[sample.index] = min(used, self._lowest.get(sample.index, used))
            self._holders[sample.index] = sample.holders
        done = at - self._since >= self._stable_for and self._samples >= _LEAST_SAMPLES
        return Progress(FREE if done else WAITING, free_since=self._since)

    def _disturbed(self, samples: Sequence[Sample]) -> bool:
        """Whether, within the window, anybody new appeared or memory rose (allowed holders do that)."""
        return any(
            not sample.holders <= self._holders.get(sample.index, frozenset())
            or (sample.used_mib or 0) > self._lowest.get(sample.index, 0) + _RISE_MIB
            for sample in samples
        )

    def _hopeless(self, at: float, samples: Sequence[Sample]) -> str:
        for sample in samples:
            if sample.verdict.state == UNKNOWN and sample.verdict.permanent:
                return "GPU %d cannot be read: %s" % (sample.index, sample.verdict.message)
        blockers = {key: (sample.index, what) for sample in samples for key, what in sample.blockers}
        self._blocked_since = {key: self._blocked_since.get(key, at) for key in blockers}
        for key, since in sorted(self._blocked_since.items(), key=lambda item: item[0][0]):
            if at - since >= self._stable_for and at > since:
                index, what = blockers[key]
                return (
                    "GPU %d is held by %s, which nothing will end; stop its service, or accept it with "
                    "allow_users or allow_executables and allow_mib" % (index, what)
                )
        return ""


@dataclass(frozen=True)
class Change:
    """An entry of the timeline: how a GPU looked from second `at` on (seconds since the start)."""

    at: float
    index: int
    used_mib: Optional[int]
    holders: Tuple[int, ...]
    verdict: str
    reason: str


class Timeline:
    """The changes during a wait: the first and the last ones, where there are many."""

    def __init__(self, half: int = _TIMELINE_HALF) -> None:
        self._half = half
        self._first: List[Change] = []
        self._last: List[Change] = []
        self._current: Dict[int, Change] = {}
        self.dropped = 0

    @property
    def changes(self) -> Tuple[Change, ...]:
        """In order of time; `dropped` says how many are missing in the middle."""
        return tuple(self._first + self._last)

    def add(self, at: float, samples: Sequence[Sample]) -> None:
        """Note what is different from the last entry of each GPU."""
        for sample in samples:
            change = Change(
                at=round(at, 3),
                index=sample.index,
                used_mib=sample.used_mib,
                holders=tuple(sorted(pid for pid, _start in sample.holders)),
                verdict=sample.verdict.state,
                reason=sample.verdict.reason,
            )
            if not _alike(self._current.get(sample.index), change):
                self._current[sample.index] = change
                self._note(change)

    def _note(self, change: Change) -> None:
        if len(self._first) < self._half:
            self._first.append(change)
            return
        self._last.append(change)
        if len(self._last) > self._half:
            del self._last[0]
            self.dropped += 1


def _alike(old: Optional[Change], new: Change) -> bool:
    if old is None or (old.verdict, old.reason, old.holders) != (new.verdict, new.reason, new.holders):
        return False
    if old.used_mib is None or new.used_mib is None:
        return old.used_mib is new.used_mib
    return abs(old.used_mib - new.used_mib) <= _RISE_MIB


@dataclass(frozen=True)
class WaitResult:
    """How a wait ended: free, timeout or pointless.

    elapsed and free_after are seconds since the start; free_after is None unless the GPUs are free.
    """

    outcome: str
    why: str
    elapsed: float
    free_after: Optional[float]
    samples: int
    timeline: Timeline


def wait_until_free(
    look: Callable[[], Sequence[Sample]],
    timeout: float,
    stable_for: float,
    interval: float,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> WaitResult:
    """Look every `interval` seconds until the GPUs were free for `stable_for` seconds, at most `timeout`.

    The last look is made when the time is over, so it may end later by as long as one look takes.
    """
    began = clock()
    watch = FreeWatch(stable_for)
    timeline = Timeline()
    count = 0
    while True:
        due = clock() + interval
        samples = look()
        now = clock()
        count += 1
        timeline.add(now - began, samples)
        progress = watch.feed(now, samples)
        if progress.state != WAITING or now - began >= timeout:
            free = progress.state == FREE
            return WaitResult(
                outcome=TIMEOUT if progress.state == WAITING else progress.state,
                why=progress.why or _almost(progress, now),
                elapsed=now - began,
                free_after=progress.free_since - began if free and progress.free_since is not None else None,
                samples=count,
                timeline=timeline,
            )
        sleep(max(0.0, min(due, began + timeout) - now))


def _almost(progress: Progress, now: float) -> str:
    if progress.state != WAITING or progress.free_since is None:
        return ""
    return "they have been free for only %.1f s" % (now - progress.free_since)
