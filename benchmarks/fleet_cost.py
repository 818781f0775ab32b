# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a command on the controller costs: time, processor time and memory of it and of all that it starts, and calls.

The command runs in a control group of its own, so that connections which ssh leaves in the background count as well.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Optional, Sequence

# A look at the memory of all processes is to take at most this share of the time.
_MEMORY_SHARE = 0.02
_LEAST_PAUSE = 0.5


@dataclass
class Cost:
    """Of one run on so many hosts.

    wall: seconds.  controller, on_hosts: processor seconds.  memory_mb: the most that all processes of the controller
    had at a time, shared pages counted once.  calls: round trips by host.  status: the exit status.
    """

    hosts: int
    wall: float
    controller: float
    on_hosts: float
    memory_mb: float
    calls: Dict[str, int] = field(default_factory=dict)
    status: int = 0

    @property
    def most_calls(self) -> int:
        """Round trips of the host that had the most."""
        return max(self.calls.values(), default=0)

    def as_dict(self) -> Dict[str, float]:
        """For JSON."""
        return {
            "hosts": self.hosts,
            "wall_s": round(self.wall, 3),
            "controller_cpu_s": round(self.controller, 3),
            "hosts_cpu_s": round(self.on_hosts, 3),
            "controller_memory_mb": round(self.memory_mb, 1),
            "round_trips": self.most_calls,
        }


def count_calls(text: str) -> Dict[str, int]:
    """Lines of a log of calls, by address."""
    counts: Dict[str, int] = {}
    for line in text.splitlines():
        counts[line] = counts.get(line, 0) + 1
    return counts


def usage_seconds(text: str) -> float:
    """The processor time in a control group's cpu.stat.  Raises OSError where it is not in there."""
    found = re.search(r"^usage_usec (\d+)$", text, re.MULTILINE)
    if not found:
        raise OSError("the kernel does not tell the processor time of control groups")
    return int(found.group(1)) / 1e6


def group_seconds(group: Path) -> float:
    """Processor seconds that a control group has used.  Raises OSError."""
    return usage_seconds((group / "cpu.stat").read_text(encoding="ascii"))


def proportional_mb(text: str) -> float:
    """The memory in a smaps_rollup: shared pages are divided among those that share them."""
    found = re.search(r"^Pss:\s+(\d+) kB$", text, re.MULTILINE)
    return int(found.group(1)) * 1024 / 1e6 if found else 0.0


class _Memory(threading.Thread):
    """Looks at the memory of a control group now and then."""

    def __init__(self, group: Path) -> None:
        super().__init__(daemon=True)
        self._group = group
        self._over = threading.Event()
        self.most = 0.0

    def run(self) -> None:
        pause = _LEAST_PAUSE
        while not self._over.wait(pause):
            began = time.monotonic()
            self.most = max(self.most, self._look())
            pause = max(_LEAST_PAUSE, (time.monotonic() - began) / _MEMORY_SHARE)

    def _look(self) -> float:
        total = 0.0
        with contextlib.suppress(OSError):
            for pid in (self._group / "cgroup.procs").read_text(encoding="ascii").split():
                # It may be gone by now.
                with contextlib.suppress(OSError):
                    total += proportional_mb(Path("/proc", pid, "smaps_rollup").read_text(encoding="ascii"))
        return total

    def end(self) -> float:
        self._over.set()
        self.join()
        return self.most


@contextlib.contextmanager
def control_group(path: Path) -> Iterator[Path]:
    """A control group of this name, whose processes end with it."""
    path.mkdir()
    try:
        yield path
    finally:
        (path / "cgroup.kill").write_text("1", encoding="ascii")
        for _try in range(100):
            with contextlib.suppress(OSError):
                path.rmdir()
                break
            time.sleep(0.05)


def measured(
    command: Sequence[str],
    hosts: int,
    group: Path,
    environment: Mapping[str, str],
    calls: Path,
    output: Path,
    others: Optional[Path] = None,
) -> Cost:
    """Run a command in a control group and tell what it cost.

    calls: the file where each round trip leaves a line.  output: where what it prints goes.  others: a control group
    that has the hosts, and this group among them.  Raises OSError.
    """
    calls.write_text("", encoding="ascii")

    def enter() -> None:
        (group / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")

    def on_hosts() -> float:
        return group_seconds(others) - group_seconds(group) if others else 0.0

    memory = _Memory(group)
    before, hosts_before, began = group_seconds(group), on_hosts(), time.monotonic()
    with open(output, "wb") as stream:
        process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            preexec_fn=enter,
        )
        memory.start()
        try:
            status = process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
            most = memory.end()
    wall = time.monotonic() - began
    counted = count_calls(calls.read_text(encoding="ascii"))
    return Cost(hosts, wall, group_seconds(group) - before, on_hosts() - hosts_before, most, counted, status)


def per_host(costs: Sequence[Cost]) -> List[float]:
    """Controller's processor seconds for each host of the largest run, without what one run costs in any case.

    Of two runs: (fixed, for each further host).
    """
    few, many = costs[0], costs[-1]
    slope = (many.controller - few.controller) / (many.hosts - few.hosts)
    return [few.controller - slope * few.hosts, slope]
