# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the settings of a rollout from variables of hosts: pure, no I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, TypeVar

_Parsed = TypeVar("_Parsed")

_PERCENTAGE = re.compile(r"([0-9]{1,3})\s*%")
_NUMBER = re.compile(r"[0-9]{1,9}")
# So many hosts are named in a message; the others are counted.
_MOST_NAMES = 8


class RolloutError(Exception):
    """A setting that cannot be; the message names it, its value and the remedy."""


@dataclass(frozen=True)
class Share:
    """A number of things, or a percentage of however many there are."""

    amount: int
    percent: bool

    def __str__(self) -> str:
        return "%d%s" % (self.amount, "%" if self.percent else "")

    def at_least(self, total: int) -> int:
        """So many of a total, a fraction rounded up."""
        return -(-self.amount * total // 100) if self.percent else self.amount

    def at_most(self, total: int) -> int:
        """So many of a total, a fraction rounded down, but at least one."""
        return max(self.amount * total // 100, 1) if self.percent else self.amount


# One server, and then all that the floor allows.
DEFAULT_RAMP = (Share(1, False), Share(100, True))


def number(name: str, value: Any, smallest: int) -> int:
    """A whole number out of what YAML or -e made of it.  Raises RolloutError."""
    text = str(value).strip()
    if isinstance(value, bool) or not _NUMBER.fullmatch(text) or int(text) < smallest:
        raise RolloutError("%s: %r is no whole number from %d on." % (name, value, smallest))
    return int(text)


def seconds(name: str, value: Any) -> float:
    """Seconds, zero or more.  Raises RolloutError."""
    try:
        found = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        found = float("nan")
    if not 0 <= found < float("inf"):
        raise RolloutError("%s: %r is no number of seconds: give 0 or more." % (name, value))
    return found


def share(name: str, value: Any, smallest: int) -> Share:
    """A whole number, or a percentage such as 50%.  Raises RolloutError."""
    text = str(value).strip()
    percentage = _PERCENTAGE.fullmatch(text)
    if percentage and smallest <= int(percentage.group(1)) <= 100:
        return Share(int(percentage.group(1)), True)
    if not isinstance(value, bool) and _NUMBER.fullmatch(text) and int(text) >= smallest:
        return Share(int(text), False)
    raise RolloutError(
        '%s: %r is neither a whole number from %d on nor a percentage such as "50%%".' % (name, value, smallest)
    )


def ramp(name: str, value: Any) -> Tuple[Share, ...]:
    """How many at a time: one value, or a list of which the last counts on.  Raises RolloutError."""
    if isinstance(value, str) and value.strip().startswith("["):
        raise RolloutError('%s: %r is a text and no list: give it as -e \'{"%s": [1, "50%%"]}\'.' % (name, value, name))
    values = value if isinstance(value, (list, tuple)) else [value]
    if not values:
        raise RolloutError('%s: the list is empty: leave it out, or give a list such as [1, "50%%"].' % name)
    return tuple(share(name, item, 1) for item in values)


def names(hosts: List[str]) -> str:
    """Hosts for a message: all where they are few, else the first ones and how many more."""
    more = len(hosts) - _MOST_NAMES
    if more > 1:
        return "%s and %d more" % (", ".join(hosts[:_MOST_NAMES]), more)
    return ", ".join(hosts)


def agreed(name: str, values: Mapping[str, Any], parse: Callable[[str, Any], _Parsed], where: str) -> Optional[_Parsed]:
    """The one value that all hosts have, parsed; None where no host has any.

    values: by host, None where it is not set.  where: whose hosts these are, for the message.  Raises
    RolloutError, for a value that cannot be with its hosts, and for hosts that do not agree.
    """
    having: Dict[Optional[_Parsed], List[str]] = {}
    given: Dict[Optional[_Parsed], Any] = {}
    for host, value in values.items():
        try:
            parsed = None if value is None else parse(name, value)
        except RolloutError as error:
            raise RolloutError("%s It is set for %s." % (error, host)) from None
        having.setdefault(parsed, []).append(host)
        given.setdefault(parsed, value)
    if len(having) > 1:
        told = [
            "%s %s" % (names(hosts), "does not set it" if parsed is None else "has %r" % (given[parsed],))
            for parsed, hosts in having.items()
        ]
        raise RolloutError("%s must be the same for all hosts of %s: %s." % (name, where, "; ".join(told)))
    return next(iter(having), None)
