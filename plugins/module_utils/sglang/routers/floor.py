# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many workers must be left to a router: pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FLOOR = re.compile(r"(\d{1,6})\s*(%?)")


@dataclass(frozen=True)
class Floor:
    """A number of workers, or a share of them in percent."""

    number: int
    percent: bool = False

    def of(self, workers: int) -> int:
        """How many of so many workers must be left; a share is rounded up."""
        return -(-self.number * workers // 100) if self.percent else self.number

    def describe(self) -> str:
        """As it was given."""
        return "%d%%" % self.number if self.percent else "%d" % self.number


def parse_floor(text: str) -> Floor:
    """Read "2" or "50%".  Raises ValueError saying what is wrong with it."""
    found = _FLOOR.fullmatch(text.strip())
    if not found:
        raise ValueError("%r is neither a number nor a percentage such as 50%%" % text)
    floor = Floor(int(found.group(1)), bool(found.group(2)))
    if floor.percent and floor.number > 99:
        raise ValueError("%r leaves no worker that could be taken out" % text)
    return floor
