# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Takes values out of what a host returned: pure, no I/O.

Everything in it may have been written by somebody who wants to move the reader's terminal, or to fill it.  So each
value is taken by its type, bounded, and a character that shows nothing is replaced by its escape.
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, Mapping, Optional

from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import visible

# Longest text (characters), and longest message.
MOST_TEXT = 120
MOST_MESSAGE = 600
# Longest text in a cell of a table.
_SHORT = 32
_MOST_NUMBER = 10**15


def text(value: Any, limit: int = MOST_TEXT) -> str:
    """A text as one line of printable characters; "" for null, and for what is no text or number."""
    if isinstance(value, bool):
        return str(bool(value))
    if isinstance(value, (int, float)):
        return _number_text(value)
    # A new string in any case: what comes from a task carries marks of Ansible.
    return "".join([visible(value, limit)]) if isinstance(value, str) else ""


def short(value: str, limit: int = _SHORT) -> str:
    """A text for a cell: a table gives a column what its longest word needs."""
    return value if len(value) <= limit else value[: limit - 3] + "..."


def _number_text(value: Any) -> str:
    if isinstance(value, int):
        return str(int(value)) if abs(value) < _MOST_NUMBER else "(too large a number)"
    return "%.6g" % value


def message(value: Any) -> str:
    """A text of several lines as one line; longer than other texts."""
    whole = value[: 4 * MOST_MESSAGE] if isinstance(value, str) else value
    return text(" ".join(whole.split()) if isinstance(whole, str) else whole, MOST_MESSAGE)


def whole(value: Any) -> Optional[int]:
    """A whole number that is not negative, None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST_NUMBER:
        return None
    return int(value)


def real(value: Any) -> Optional[float]:
    """A finite number that is not negative, None for everything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value < _MOST_NUMBER and math.isfinite(value) else None


def one_of(value: Any, allowed: tuple[str, ...], otherwise: str) -> str:
    """A word that must be one of some."""
    return text(value) if isinstance(value, str) and value in allowed else otherwise


def mappings(value: Any, most: int) -> List[Mapping[str, Any]]:
    """The mappings in a list, at most so many."""
    return [item for item in value[:most] if isinstance(item, Mapping)] if isinstance(value, (list, tuple)) else []


def mapping(value: Any) -> Mapping[str, Any]:
    """A mapping; empty for everything else."""
    return value if isinstance(value, Mapping) else {}


def texts(value: Any, most: int, limit: int = MOST_TEXT) -> List[str]:
    """The texts in a list, at most so many."""
    if not isinstance(value, (list, tuple)):
        return []
    return [text(item, limit) for item in value[:most] if isinstance(item, (str, int, float))]


def setting(value: Any) -> Any:
    """The value of a setting: null, a truth value, a number, a text, or a text for a list of these."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) < _MOST_NUMBER else text(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else text(value)
    if isinstance(value, (list, tuple)):
        return text(", ".join(texts(value, 20)))
    return text(value) if isinstance(value, str) else "(not shown)"


def settings(value: Any, most: int = 60) -> Dict[str, Any]:
    """Settings by name, sorted."""
    found = mapping(value)
    names = sorted(name for name in list(found)[:most] if isinstance(name, str))
    return {text(name): setting(found[name]) for name in names}
