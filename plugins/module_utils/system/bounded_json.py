# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON that somebody else wrote: read without being made to hang, to run out of memory or of stack.

Python's reader takes numbers of any length, any depth up to its own limit, and names that are no JSON.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Mapping, Tuple

# Both far beyond what a server's settings or a model's configuration hold.
MOST_DEPTH = 64
MOST_CONTAINERS = 100_000
# Digits of a whole number: Python needs time that grows with their square.
_MOST_DIGITS = 40
_LARGEST_REAL = 1e300
_GONE = object()
_OPENED = re.compile(r"[\[{]")


def loads(text: str, strict: bool = False) -> Any:
    """The value of a JSON text.  Raises ValueError saying what is wrong with it.

    strict refuses as well what is no JSON although Python reads it (NaN, Infinity), and a name that an object
    has twice: which of the two values counts is anybody's guess.
    """
    if len(_OPENED.findall(text)) > MOST_CONTAINERS:
        raise ValueError("it has more than %d lists and objects" % MOST_CONTAINERS)
    try:
        if strict:
            value = json.loads(
                text,
                parse_int=_integer,
                parse_float=_real,
                parse_constant=_constant,
                object_pairs_hook=_object,
            )
        else:
            value = json.loads(text, parse_int=_integer)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _check_depth(value)
    return value


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError("it has a number of %d digits" % len(digits))
    return int(digits)


def _real(digits: str) -> float:
    value = float(digits)
    if abs(value) > _LARGEST_REAL:
        raise ValueError("it has a number that is too large")
    return value


def _constant(name: str) -> Any:
    raise ValueError("it has %s, which is no JSON" % name)


def _object(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        # Each that is met a second time is taken out of what is left of the names.
        left = dict(found)
        twice = next(name for name, _value in pairs if left.pop(name, _GONE) is _GONE)
        raise ValueError("it has the name %.60r twice" % twice)
    return found


def _check_depth(value: Any) -> None:
    level = [value]
    for _level in range(MOST_DEPTH + 1):
        level = [inner for outer in level for inner in _inside(outer) if isinstance(inner, (list, Mapping))]
        if not level:
            return
    raise ValueError("it is nested more than %d deep" % MOST_DEPTH)


def _inside(value: Any) -> Any:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()
