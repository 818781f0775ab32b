# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who has devices of the NVIDIA driver open or mapped, among all processes.

A look into a process that is stuck in the driver may never return (its memory is locked), so the
looking is done in disposable children.  One that makes no progress is given up, the process that it
was looking at is left out, and another goes on behind it.
"""

from __future__ import annotations

import mmap
import os
import pickle
import select
import struct
import time
from dataclasses import dataclass, field
from typing import Callable, Dict, Iterable, List, Sequence, Set, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.device_inspector import DeviceInspector, OpenDevices
from ansible_collections.inferops.sglang.plugins.module_utils.system import disposable
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity

Row = Tuple[int, int, OpenDevices]  # PID, start time, what it has open

_WORTH_A_CHILD = 500  # so many processes, at least, for each child
_MOST_CHILDREN = 8
_PATIENCE = 2.0  # seconds that a look into one process may take
_PATIENCE_LATER = 0.5  # the same when one has already been found stuck
_TICK = 0.1  # seconds between two looks whether the children get on
_POSITION = struct.Struct("q")


@dataclass(frozen=True)
class Scan:
    """Who has a device of the driver open.

    uninspected: how many processes may not be looked into; stuck: the PIDs of those that a look into
    never returned from.
    """

    found: Dict[ProcessIdentity, OpenDevices] = field(default_factory=dict)
    uninspected: int = 0
    stuck: Tuple[int, ...] = ()


def scan(inspector: DeviceInspector, pids: Iterable[int], patience: float = _PATIENCE) -> Scan:
    """Look into these processes; at most `patience` seconds without progress, then past the one that is stuck."""
    parts = _shares(list(pids))
    rows: List[Row] = []
    blind: Set[int] = set()
    stuck: Set[int] = set()
    running = [_Part(inspector, part) for part in parts if part]
    while running:
        _await(running)
        unfinished = []
        for part in running:
            if part.finished:
                rows.extend(part.rows)
                blind.update(part.blind)
                part.end()
                if part.rest:  # its child died or was given up: once more without the process it was looking at
                    stuck.add(part.rest[0])
                    patience = min(patience, _PATIENCE_LATER)
                    unfinished.append(_Part(inspector, part.rest[1:]))
            elif part.idle_for(patience):
                part.give_up()
                unfinished.append(part)
            else:
                unfinished.append(part)
        running = [part for part in unfinished if part.finished or part.pids]
    found = {ProcessIdentity(pid, start_time): devices for pid, start_time, devices in rows}
    return Scan(found, len(blind), tuple(sorted(stuck)))


def _shares(pids: List[int]) -> List[List[int]]:
    """The processes dealt out to the children."""
    count = max(1, min(_MOST_CHILDREN, len(os.sched_getaffinity(0)), len(pids) // _WORTH_A_CHILD))
    return [pids[number::count] for number in range(count)]


class _Part:
    """Some processes, and the child that looks into them."""

    def __init__(self, inspector: DeviceInspector, pids: Sequence[int]) -> None:
        self.pids = list(pids)
        self.rows: List[Row] = []
        self.blind: List[int] = []
        self.rest: List[int] = []
        self.finished = not self.pids
        # Where the child is, in memory that both see: it survives whatever happens to the child.
        self._position = mmap.mmap(-1, mmap.PAGESIZE)
        self._last = (-1, time.monotonic())
        self._received = b""
        self.output, answer = os.pipe()
        parent = os.getpid()
        try:
            self._child = os.fork() if self.pids else 0
        except OSError:  # no process left: the looks are made here, without a net
            self._child = 0
            os.close(answer)
            self._take(_look_into(inspector, self.pids, lambda _number: None))
            self.finished = True
            return
        if self._child == 0 and self.pids:
            disposable.run_as_child(parent, lambda: self._work(inspector, answer), answer)
        os.close(answer)

    def _work(self, inspector: DeviceInspector, answer: int) -> None:
        """The child's part."""
        found = _look_into(inspector, self.pids, lambda number: _POSITION.pack_into(self._position, 0, number))
        data = pickle.dumps(found)
        while data:
            data = data[os.write(answer, data) :]

    def receive(self) -> None:
        """Take what the child has written."""
        chunk = os.read(self.output, 1 << 16)
        self._received += chunk
        if chunk:
            return
        self.finished = True
        if self._received:
            self._take(pickle.loads(self._received))
        else:
            self._leave_rest()

    def idle_for(self, seconds: float) -> bool:
        """Whether the child has looked at the same process for longer than that."""
        at, now = self._at(), time.monotonic()
        if at != self._last[0]:
            self._last = (at, now)
        return now - self._last[1] > seconds

    def give_up(self) -> None:
        """End the child, or abandon it; what it found before is looked for again by the next one."""
        disposable.kill_and_reap(self._child, 0.05)
        self.finished = True
        self._leave_rest()

    def _leave_rest(self) -> None:
        """The process that it was looking at first, then all others, as it took its findings with it."""
        at = self._at()
        self.rest = [self.pids[at], *self.pids[:at], *self.pids[at + 1 :]]

    def end(self) -> None:
        """Clear up."""
        os.close(self.output)
        if self._child:
            disposable.kill_and_reap(self._child, 0.05)
        self._position.close()

    def _take(self, found: Tuple[List[Row], List[int]]) -> None:
        self.rows, self.blind = found

    def _at(self) -> int:
        return min(int(_POSITION.unpack_from(self._position, 0)[0]), len(self.pids) - 1)


def _look_into(
    inspector: DeviceInspector, pids: Sequence[int], at: Callable[[int], None]
) -> Tuple[List[Row], List[int]]:
    """Rows for those that have a device open, and the PIDs that may not be looked into."""
    rows: List[Row] = []
    blind: List[int] = []
    for number, pid in enumerate(pids):
        at(number)
        nodes = inspector.nodes_of(pid)
        if nodes is None:
            blind.append(pid)
        elif nodes:
            seen = inspector.look(pid)
            if seen is not None:
                rows.append((seen[0].pid, seen[0].start_time, seen[1]))
    return rows, blind


def _await(parts: Sequence[_Part]) -> None:
    """Wait a moment for answers of the children, and take them."""
    poller = select.poll()
    waiting = {part.output: part for part in parts if not part.finished}
    for output in waiting:
        poller.register(output, select.POLLIN)
    for output, _events in poller.poll(int(_TICK * 1000)) if waiting else ():
        waiting[output].receive()
