# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a server says, fit to be returned: bounded, without secrets, control characters and deep nesting.

Whoever has a server's port can answer anything on it.
"""

from __future__ import annotations

import math
from typing import Any, Collection, Dict, Mapping

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.log_tail import clean, shorten

# Longest text of a value and of a message (characters), most elements of a list, largest whole number.
MOST_TEXT = 300
MOST_MESSAGE = 1000
_MOST_ITEMS = 20
_MOST_NUMBER = 2**63
# What is looked at of a text before it is cleaned (characters): cleaning takes time for each of them.
_READ = 20000


def one_line(text: str, secrets: Collection[str] = (), limit: int = MOST_TEXT) -> str:
    """A text of anybody's as one line that may be shown."""
    return shorten(" ".join(clean(text[:_READ], secrets)), limit)


def plain(value: Any, secrets: Collection[str] = ()) -> Any:
    """A value of a server's answer: a text, a number, a truth value, null, or a list of these."""
    if isinstance(value, (list, tuple)):
        items = [_scalar(item, secrets) for item in value[:_MOST_ITEMS]]
        left_out = len(value) - len(items)
        return [*items, "... (%d more)" % left_out] if left_out else items
    return _scalar(value, secrets)


def _scalar(value: Any, secrets: Collection[str]) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < _MOST_NUMBER else "(a number that is too large)"
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return one_line(value, secrets)
    return "(%s)" % ("an object" if isinstance(value, Mapping) else "a list")


def plain_fields(fields: Mapping[str, Any], secrets: Collection[str] = ()) -> Dict[str, Any]:
    """All values of a mapping whose names are ours."""
    return {name: plain(value, secrets) for name, value in fields.items()}
