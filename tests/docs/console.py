# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take a console block apart into commands and what they print, and compare that with what they did print.

Pure: text in, commands out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import List, Sequence

# On the controller, in the story's folder; and as root, on the host.
CONTROLLER, HOST = "$", "#"
_WILDCARD = re.compile(r"\.\.\.|…")


@dataclass(frozen=True)
class Command:
    """One command, and the lines that the page shows below it; none means that it shows no output."""

    where: str
    text: str
    output: Sequence[str] = ()


def commands_of(text: str) -> List[Command]:
    """Return the commands of a block.  Raises ValueError where it begins with something else."""
    commands: List[Command] = []
    output: List[str] = []
    open_command = False
    for line in text.rstrip("\n").split("\n"):
        if open_command:
            last = commands.pop()
            commands.append(Command(last.where, f"{last.text}\n{line.strip()}"))
        elif line[:2] in (f"{CONTROLLER} ", f"{HOST} "):
            commands = _with_output(commands, output)
            output = []
            commands.append(Command(line[0], line[2:]))
        elif not commands:
            raise ValueError(f"the first line is no command (begin it with '$ ' or '# '): {line!r}")
        else:
            output.append(line)
            continue
        open_command = commands[-1].text.endswith("\\")
    return _with_output(commands, output)


def _with_output(commands: List[Command], output: Sequence[str]) -> List[Command]:
    if not output:
        return commands
    return [*commands[:-1], Command(commands[-1].where, commands[-1].text, tuple(output))]


def matches(expected: Sequence[str], printed: str) -> bool:
    """Tell whether a command printed what the page shows.

    "..." on a line of its own stands for any number of lines, within a line for any text.  Space at the ends of lines
    and empty lines do not count.
    """
    pattern = ""
    for line in _lines("\n".join(expected)):
        if _WILDCARD.fullmatch(line.strip()):
            pattern += r"(?:[^\n]*\n)*"
        else:
            pattern += "[^\n]*".join(re.escape(part) for part in _WILDCARD.split(line)) + "\n"
    actual = "".join(f"{line}\n" for line in _lines(printed))
    return re.fullmatch(pattern, actual) is not None


def _lines(text: str) -> List[str]:
    return [line.rstrip() for line in text.split("\n") if line.strip()]
