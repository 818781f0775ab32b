# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a server's command line says, and the file of --config that it names."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Optional, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.files import read_text

_CONFIG = "--config"


def option_value(arguments: Sequence[str], option: str) -> Optional[str]:
    """The value of a long option, of its last occurrence; None where it is not given."""
    found = None
    for position, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") != option:
            continue
        if equals:
            found = value
        elif position + 1 < len(arguments):
            found = arguments[position + 1]
    return found


def configured_value(
    arguments: Sequence[str], option: str, read: Callable[[Path], Optional[str]] = read_text
) -> Optional[str]:
    """The value of a long option that takes a plain word, in the command line or else in the file of --config.

    SGLang lets the command line win.  A file that cannot be read says nothing.
    """
    given = option_value(arguments, option)
    # SGLang reads the file only where the two are words of their own.
    file = option_value(arguments, _CONFIG) if _CONFIG in arguments else None
    if given is not None or file is None:
        return given
    try:
        text = read(Path(file))
    except OSError:
        return None
    for line in (text or "").splitlines():
        name, colon, value = line.partition(":")
        if colon and name == option[2:]:
            return _word(value)
    return None


def _word(text: str) -> Optional[str]:
    """A scalar of YAML as far as a path or a word needs it: quoted, or up to a comment."""
    text = text.strip()
    for quote in ("'", '"'):
        if text.startswith(quote):
            return text[1:].partition(quote)[0]
    return text.partition(" #")[0].strip() or None
