# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One event as one line of JSON, which is never longer than a limit.

Values come from processes that may be hostile: names with escapes, bytes that are no text, command lines
without end.  The line is ASCII, with everything else escaped, so that none can begin a second line or a
field of its own, nor speak to the terminal of whoever reads the file.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping  # that of typing takes four times as long to be asked for
from typing import Any, Collection, Dict, List, NamedTuple, Sequence

# The most bytes of a line, its end included.
MOST_BYTES = 8192
REDACTED = "********"
# A shorter secret would blank out text that has nothing to do with it, unless it is the whole value.
_SHORTEST_SECRET = 4
_DEEPEST = 8
_LARGEST_INTEGER = 1 << 63
# Of a text, no more than this is looked at (characters); a whole record has so many values at most.
_MOST_LOOKED_AT = 1 << 16
_MOST_VALUES = 1000
_MISSING = "...[+%d]"


class _Bounds(NamedTuple):
    """The most characters of a text, and entries of a list or an object."""

    text: int
    entries: int


# One after the other until the line fits.
_BOUNDS = (_Bounds(1024, 64), _Bounds(256, 24), _Bounds(80, 8), _Bounds(32, 3))


def encode(record: Mapping[str, Any], hidden: Collection[str] = (), most_bytes: int = MOST_BYTES) -> bytes:
    """The line, with its end.  What does not fit is cut, with a mark that says how much is missing.

    hidden: secrets that are replaced wherever they occur.
    """
    secrets = sorted({str(secret) for secret in hidden if secret}, key=len, reverse=True)
    for bounds in _BOUNDS:
        line = _line(_Copy(bounds, secrets).of_object(record, _DEEPEST))
        if len(line) <= most_bytes:
            return line
    # Only many large fields can come to this: what tells the event itself is kept.
    small = {name: value for name, value in record.items() if not isinstance(value, (Mapping, list, tuple))}
    cut = sorted(set(record).difference(small))
    return _line(_Copy(_Bounds(32, 24), secrets).of_object(dict(small, cut=cut), 2))


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"


class _Copy:
    """Makes copies with nothing in them but what JSON has, within bounds."""

    def __init__(self, bounds: _Bounds, secrets: Sequence[str]) -> None:
        self._bounds = bounds
        self._secrets = secrets
        self._values_left = _MOST_VALUES

    def of(self, value: Any, depth: int) -> Any:
        """A copy of anything."""
        self._values_left -= 1
        if isinstance(value, str):
            return self.of_text(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return int(value) if abs(value) < _LARGEST_INTEGER else self.of_text("%x" % value)
        if isinstance(value, float):
            return value if value - value == 0 else str(value)  # infinity and not-a-number are no JSON
        if isinstance(value, (Mapping, list, tuple, set, frozenset)):
            if depth == 0 or self._values_left <= 0:
                return "..."
            if isinstance(value, Mapping):
                return self.of_object(value, depth)
            return self._of_list(sorted(value, key=str) if isinstance(value, (set, frozenset)) else value, depth)
        if isinstance(value, bytes):
            value = value[:_MOST_LOOKED_AT].decode("utf-8", "backslashreplace")
        return self.of_text(str(value))

    def of_object(self, value: Mapping[Any, Any], depth: int) -> Dict[str, Any]:
        """A copy of an object; what is missing stands under the name "..."."""
        kept = {
            self.of_text(str(name)): self.of(item, depth - 1)
            for name, item in itertools.islice(value.items(), self._bounds.entries)
        }
        missing = len(value) - self._bounds.entries
        return dict(kept, **{"...": _MISSING % missing}) if missing > 0 else kept

    def _of_list(self, value: Sequence[Any], depth: int) -> List[Any]:
        kept = [self.of(item, depth - 1) for item in value[: self._bounds.entries]]
        missing = len(value) - len(kept)
        return [*kept, _MISSING % missing] if missing else kept

    def of_text(self, text: str) -> str:
        """Secrets go before anything is cut, so that no part of one is left."""
        whole = len(text)
        text = text[:_MOST_LOOKED_AT]
        for secret in self._secrets:
            if text == secret:
                return REDACTED
            if len(secret) >= _SHORTEST_SECRET:
                text = text.replace(secret, REDACTED)
        if not text.isascii():
            # Bytes that were no text: JSON can escape them, but many who read it then refuse the line.
            text = text.encode("utf-8", "backslashreplace").decode("utf-8")
        if len(text) <= self._bounds.text:
            return text
        return text[: self._bounds.text] + _MISSING % (max(whole, len(text)) - self._bounds.text)
