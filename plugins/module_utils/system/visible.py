# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text that somebody else chose, fit to be shown: nothing in it is hidden, moves a terminal, or is endless.

Names of processes and files, lines of logs and answers of servers are made by people whom nobody checks.
What would act on a terminal, or would not show, is written as an escape, so that two names that differ
also look different.
"""

from __future__ import annotations

import re
from typing import Any, Mapping

# Characters that count as printable and that nobody sees: variation selectors, fillers, joiners, blanks.
_UNSEEN = re.compile(
    "[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
# A letter has a few accents; a tower of them covers the lines around it.
_ACCENT = re.compile("[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]")
_MOST_ACCENTS = 2
_KEPT = " \t\n"
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ELLIPSIS = "..."

# For one name, one sentence, and a text of several lines (characters).
NAME = 80
PATH = 4096
SENTENCE = 4000
# How deep a value is looked into; no result of ours comes near it.
_MOST_DEPTH = 20


def visible(text: str, longest: int = NAME) -> str:
    """One line of at most `longest` characters, in which everything shows."""
    return _escaped(text, longest, keep="")


def visible_lines(text: str, longest: int = SENTENCE) -> str:
    """The same for a text whose line breaks are meant."""
    return _escaped(text, longest, keep="\n")


def _escaped(text: str, longest: int, keep: str) -> str:
    # Cut first: a name of megabytes must not cost megabytes of work.
    cut = len(text) > longest
    text = text[: longest + 1]
    if text.isascii() and text.isprintable():
        shown = text
    else:
        shown = _few_accents("".join(char if char in keep else _shown(char) for char in text))
    if not cut and len(shown) <= longest:
        return shown
    return shown[: max(0, longest - len(_ELLIPSIS))] + _ELLIPSIS


def _shown(char: str) -> str:
    if char.isprintable() and _UNSEEN.match(char) is None:
        return char
    if char in _NAMED:
        return _NAMED[char]
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8, as Python keeps it
        code -= 0xDC00
    if code < 0x100:
        return "\\x%02x" % code
    return "\\u%04x" % code if code < 0x10000 else "\\U%08x" % code


def _few_accents(text: str) -> str:
    kept, row = [], 0
    for char in text:
        row = row + 1 if _ACCENT.match(char) else 0
        kept.append(char if row <= _MOST_ACCENTS else "\\u%04x" % ord(char))
    return "".join(kept)


def without_hidden(text: str) -> str:
    """A text without all that does not show, tabs and line breaks aside."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(" " if char.isspace() and char not in _KEPT else char for char in text if _is_kept(char))


def _is_kept(char: str) -> bool:
    if char.isspace():
        return char in _KEPT or ord(char) >= 0x80  # of the others, those of Unicode become a plain one
    return char.isprintable() and _UNSEEN.match(char) is None


def visible_value(value: Any, longest: int = SENTENCE, depth: int = _MOST_DEPTH) -> Any:
    """A copy of a value of JSON in which all text, that of keys too, is visible; line breaks stay."""
    if isinstance(value, str):
        return visible_lines(value, longest)
    if depth <= 0 and isinstance(value, (Mapping, list, tuple)):
        return _ELLIPSIS
    if isinstance(value, Mapping):
        return {visible(str(key), NAME): visible_value(item, longest, depth - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [visible_value(item, longest, depth - 1) for item in value]
    return value
