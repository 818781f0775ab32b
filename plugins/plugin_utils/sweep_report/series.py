# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plot shows, as values: no library in it, so that what is shown can be tested without a drawing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

# How many lines somebody can tell apart; the others are drawn thin and grey behind them.
MOST_STYLES = 6
# The style of the baseline, of what is only there to compare with, and of what was computed and not measured.
BASELINE, FAINT, CURVE = 0, -1, -2


@dataclass(frozen=True)
class Mark:
    """One point, with the ends of its bar where it has one."""

    x: float
    y: float
    low: Optional[float] = None
    high: Optional[float] = None


@dataclass(frozen=True)
class Line:
    """One configuration.  style: one of those above, or 1 to MOST_STYLES.  label: short, drawn at its end."""

    label: str
    style: int
    marks: Tuple[Mark, ...]
    # Drawn as a line, or as single marks.
    joined: bool = True


@dataclass(frozen=True)
class Crossing:
    """Where a line meets the baseline: its estimate, and where it may lie as well."""

    style: int
    at: float
    low: float
    high: float


@dataclass(frozen=True)
class Plot:
    """Everything that one drawing shows.

    x_name, y_name: what the axes are, with unit.  ticks: what is written along the x axis.  logarithmic_x: base 2.
    logarithmic_y: where the values span more than one would see otherwise.  reference: the level of what all lines are
    compared with.
    """

    x_name: str
    y_name: str
    lines: Tuple[Line, ...]
    ticks: Tuple[float, ...]
    logarithmic_x: bool = True
    logarithmic_y: bool = False
    from_zero: bool = True
    reference: Optional[float] = None
    crossings: Tuple[Crossing, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to see."""
        return not any(line.marks for line in self.lines)
