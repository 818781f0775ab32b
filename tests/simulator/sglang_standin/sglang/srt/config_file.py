# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""``--config FILE.yaml``: the options in a file come before those of the command line, which therefore win.

The file is YAML of the simplest kind, one ``option: value`` a line; lists and nesting are refused here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Collection, List, Sequence

FLAG = "--config"


def merge_config(argv: Sequence[str], switches: Collection[str]) -> List[str]:
    """The command line with the file's options in it. Only the two words ``--config FILE`` name a file.

    :param switches: the options that take no value, without dashes in front.
    :raises ValueError: as the release does it for a file that is not named, not there or no YAML.
    """
    words = list(argv)
    if FLAG not in words:
        return words
    if words.count(FLAG) > 1:
        raise ValueError("Multiple config files specified! Only one allowed.")
    position = words.index(FLAG)
    if position + 1 == len(words):
        raise ValueError("No config file specified after --config flag!")
    file = Path(words[position + 1])
    if file.suffix.lower() not in (".yaml", ".yml"):
        raise ValueError("Config file must be YAML format, got: {}".format(file.suffix))
    if not file.exists():
        raise ValueError("Config file not found: {}".format(file))
    return _options(file.read_text(), switches) + words[:position] + words[position + 2 :]


def _options(text: str, switches: Collection[str]) -> List[str]:
    words: List[str] = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, value = line.partition(":")
        if not colon or name != name.strip() or name.startswith("-"):
            raise ValueError("The stand-in reads only lines of the form 'option: value', not {!r}".format(line))
        words += _words(name, _scalar(value.strip()), switches)
    return words


def _scalar(text: str) -> Any:
    """Quoted text, a number, true, false or null; anything else is text without quotes."""
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if isinstance(value, (list, dict)) or value == "":
        raise ValueError("The stand-in reads only single values, not {!r}".format(text))
    return value


def _words(name: str, value: Any, switches: Collection[str]) -> List[str]:
    if isinstance(value, bool):
        if name in switches:
            return ["--" + name] if value else []
        value = str(value).lower()
    return ["--" + name, str(value)]  # null becomes the text "None"
