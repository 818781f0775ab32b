# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far the start of a server is, read from its log.

For minutes a server that loads answers nothing, and its log is all there is.  The lines are those that
SGLang 0.5.7 to 0.5.23 write; a line that is not known changes nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Callable, List, Optional, Pattern, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.log_tail import shorten, without_probes
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.phases import (
    ALLOCATING_CACHE,
    CAPTURING_GRAPHS,
    COMPILING_KERNELS,
    CONNECTING,
    LOADING_DRAFT,
    LOADING_WEIGHTS,
    STARTING,
    WARMING_UP,
)

# Seconds between two looks at the log: reading the journal takes two processes.
LOG_INTERVAL = 5.0
# What is shown of a line (characters).
_LINE = 200
# What is read of the end of a long line, where the newest bar stands (characters).
_READ = 2000


@dataclass(frozen=True)
class StartProgress:
    """One look at a log.

    percent is how much of the phase is done, None where the log does not say; line is the last one that
    the server wrote, "" where there is none.
    """

    phase: str = STARTING
    percent: Optional[int] = None
    line: str = ""

    @property
    def where(self) -> str:
        """Phase and percentage as a part of a sentence."""
        return self.phase if self.percent is None else "%s (%d %%)" % (self.phase, self.percent)


# "[2026-01-02 03:04:05 DP0 TP3] text": which of several schedulers wrote it.
_RANK = re.compile(r"^\[[\d-]{10} [\d:.,]{8,}((?: [A-Z]+\d+)+)\]")
# Of an earlier start in the same file nothing counts, nor does what a server writes when it goes down.
_ANEW = re.compile(r"\bserver_args=|ready to roll|Gracefully exiting|SIGTERM received")
_WEIGHTS_BEGIN = re.compile(r"Load weight begin")
# tqdm's bars; those that were written over each other may stand on one line, so the last one counts.
_WEIGHTS_BAR = re.compile(r"(?:shards|checkpoint|Loading)[^:|]*:\s*(\d{1,3})% Completed \|")
_GRAPHS_BAR = re.compile(r"Capturing [^|%]*?:\s*(\d{1,3})%\|")
_KERNELS_BAR = re.compile(r"DeepGEMM warmup[^|%]*?:\s*(\d{1,3})%\|")
_COMPILES = (
    r"DeepGEMM JIT (?:Pre-)?Compil|\[aiter\] (?:start )?build|waiting for baton release|Building extension module"
)
_EVENTS: Tuple[Tuple[Pattern[str], str], ...] = (
    (re.compile(r"Load weight end|KV Cache is allocated|Memory pool end"), ALLOCATING_CACHE),
    (re.compile(r"Capture .*graphs? begin", re.IGNORECASE), CAPTURING_GRAPHS),
    (re.compile(_COMPILES), COMPILING_KERNELS),
    (re.compile(r"Uvicorn running on|Application startup complete"), WARMING_UP),
)


def progress_of(lines: Sequence[str]) -> StartProgress:
    """The progress that the cleaned lines of a log show."""
    leader = _leader(lines)
    phase, percent, loads = STARTING, None, 0  # type: str, Optional[int], int
    for line in (line[-_READ:] for line in lines):
        rank = _RANK.match(line)
        if rank and leader and rank.group(1) != leader:
            continue  # the ranks go side by side: one of them tells the whole story
        if _ANEW.search(line):
            phase, percent, loads = STARTING, None, 0
            continue
        if "Init torch distributed begin" in line and not loads:
            phase, percent = CONNECTING, None
            continue
        if _WEIGHTS_BEGIN.search(line):
            loads += 1
            phase, percent = LOADING_WEIGHTS if loads == 1 else LOADING_DRAFT, None
            continue
        if phase in (LOADING_WEIGHTS, LOADING_DRAFT):
            bars = _WEIGHTS_BAR.findall(line)
            if bars:
                percent = _percent(bars)
                continue
        for drawn, meant in ((_GRAPHS_BAR, CAPTURING_GRAPHS), (_KERNELS_BAR, COMPILING_KERNELS)):
            bars = drawn.findall(line)
            if bars:
                phase, percent = meant, _percent(bars)
        for pattern, meant in _EVENTS:
            if pattern.search(line):
                phase, percent = meant, None
    told = without_probes(lines)
    return StartProgress(phase, percent, shorten(told[-1].strip(), _LINE) if told else "")


def _percent(bars: Sequence[str]) -> int:
    return min(100, int(bars[-1]))


def _leader(lines: Sequence[str]) -> str:
    """The first rank that loads weights, "" where ranks are not told apart."""
    labels = [found.group(1) for found in map(_RANK.match, lines) if found]
    return min(labels, key=lambda label: [int(number) for number in re.findall(r"\d+", label)]) if labels else ""


@dataclass(frozen=True)
class Seen:
    """What must be remembered of a log to tell whether it moves: its end, and when that was new (seconds)."""

    end: str
    at: float


class LogWatch:
    """Looks at the log of one server, not more often than it must; read says whether it has been read at all."""

    def __init__(
        self,
        read: Callable[[], List[str]],
        clock: Callable[[], float],
        interval: float = LOG_INTERVAL,
        seen: Optional[Seen] = None,
    ) -> None:
        self._read_lines = read
        self._clock = clock
        self._interval = interval
        self._due = clock() + interval
        self.seen = seen or Seen("", clock())
        self.progress = StartProgress(line=seen.end if seen else "")
        self.read = False

    @property
    def silent(self) -> float:
        """Seconds since the log was last seen to have moved."""
        return self._clock() - self.seen.at

    def look(self, now: bool = False) -> StartProgress:
        """The progress as of the last look; with `now` it is looked anew in any case."""
        if now or self._clock() >= self._due:
            lines = self._read_lines()
            self.read = True
            self._due = self._clock() + self._interval
            self.progress = progress_of(lines)
            end = shorten(self.progress.line, _LINE)
            if end != self.seen.end:
                self.seen = Seen(end, self._clock())
        return self.progress
