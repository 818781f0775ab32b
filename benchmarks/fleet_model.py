# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long larger fleets take than were measured: a straight line through the measured sizes, and slices of a fleet.

The controller is the only thing that grows with the number of hosts: each host has processors of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Sequence, Tuple


@dataclass(frozen=True)
class Line:
    """fixed + each * hosts, in seconds."""

    fixed: float
    each: float

    def at(self, hosts: int) -> float:
        """The seconds for so many hosts."""
        return self.fixed + self.each * hosts


def fit(points: Sequence[Tuple[int, float]]) -> Line:
    """The line of least squares through (hosts, seconds).  Raises ValueError for fewer than two sizes."""
    if len({hosts for hosts, _seconds in points}) < 2:
        raise ValueError("two sizes are needed for a line")
    mean_hosts = sum(hosts for hosts, _seconds in points) / len(points)
    mean_seconds = sum(seconds for _hosts, seconds in points) / len(points)
    each = sum((hosts - mean_hosts) * (seconds - mean_seconds) for hosts, seconds in points) / sum(
        (hosts - mean_hosts) ** 2 for hosts, _seconds in points
    )
    return Line(mean_seconds - each * mean_hosts, each)


@dataclass(frozen=True)
class Fleet:
    """A restart of a whole fleet, as it was asked for.

    load: seconds from the start of a server until it answers, minus what it took when the line was measured.
    waves: how many times that is waited for, one after the other.
    """

    hosts: int
    controllers: int = 1
    waves: int = 1
    more_load: float = 0.0

    @property
    def on_each(self) -> int:
        """Hosts of the controller that has the most."""
        return math.ceil(self.hosts / self.controllers)

    def seconds(self, line: Line) -> float:
        """With one controller a slice, side by side: what the largest slice takes."""
        return line.fixed * self.waves + line.each * self.on_each + self.more_load * self.waves

    def memory_gb(self, fixed_mb: float, each_mb: float) -> float:
        """Of each controller, with a fork for each host of a wave."""
        return (fixed_mb + each_mb * math.ceil(self.on_each / self.waves)) / 1000
