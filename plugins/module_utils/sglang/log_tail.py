# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The end of a server's log, fit to be shown: bounded, without secrets and terminal escapes."""

from __future__ import annotations

import os
import re
from typing import Iterable, List, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import redact_text
from ansible_collections.inferops.sglang.plugins.module_utils.system import regular_file
from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import without_hidden

# Enough for the tracebacks of eight ranks (bytes).
MAX_BYTES = 512 * 1024
# SGLang prints all of its arguments in one line of tens of thousands of characters.
MAX_LINE = 600
SHOWN_LINES = 60

_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # operating system commands: titles, links
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # device control and other strings
    r"|[\x1b\x9b]\[?[0-?]*[ -/]*[@-~]"  # control sequences: colours, the cursor
)
# What the server's HTTP side logs about those who ask whether it is ready.
_PROBE = re.compile(r'"(?:GET|HEAD) /(?:health|health_generate|ready|ping)\b[^"]*HTTP/')


def clean_line(line: str) -> str:
    """A line as a terminal would have shown it in the end, without anything that moves a terminal."""
    line = _ESCAPES.sub("", line)
    # A progress bar rewrites its line: what stands after the last carriage return stays.
    shown = [part for part in line.split("\r") if part.strip()]
    # Left out and not shown as escapes: a secret must not be saved by one in its middle.
    return without_hidden(shown[-1] if shown else "").rstrip()


def clean(text: str, secrets: Iterable[str] = ()) -> List[str]:
    """The lines of a text, cleaned, without secrets and without empty lines."""
    secrets = list(secrets)
    # Secrets go first: a control character in the middle of one must not save it, hence also again after.
    lines = (clean_line(line) for line in redact_text(text, secrets).split("\n"))
    return [redact_text(line, secrets) for line in lines if line]


def without_probes(lines: Sequence[str]) -> List[str]:
    """The lines without those about requests for /health, which push everything else out of the end of a log."""
    return [line for line in lines if not _PROBE.search(line)]


def shorten(line: str, limit: int = MAX_LINE) -> str:
    """A line of at most `limit` characters; what was left out is counted in it."""
    if len(line) <= limit:
        return line
    note = " ... (%d more characters)" % (len(line) - limit)
    return line[:limit] + note


def tail(lines: Sequence[str], count: int = SHOWN_LINES) -> List[str]:
    """The last lines, each shortened."""
    return [shorten(line) for line in lines[-count:]]


def read_end(path: str, max_bytes: int = MAX_BYTES) -> str:
    """The end of a file, at most `max_bytes` of it, from the start of a line; "" where there is no file.

    Raises OSError where it may not be read.
    """
    try:
        with regular_file.open_regular(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            start = max(0, size - max_bytes)
            # One byte more: it tells whether the part begins at the start of a line.
            stream.seek(max(0, start - 1))
            data = stream.read(max_bytes + 1)
    except FileNotFoundError:
        return ""
    if start:
        _cut, newline, rest = data.partition(b"\n")
        data = rest if newline else data[1:]
    return data.decode("utf-8", "replace")


def read_start(path: str, max_bytes: int = MAX_BYTES) -> str:
    """The start of a file, at most `max_bytes` of it; "" where there is none or it may not be read."""
    try:
        with regular_file.open_regular(path) as stream:
            return stream.read(max_bytes).decode("utf-8", "replace")
    except OSError:
        return ""


def read_lines(path: str, secrets: Iterable[str] = (), max_bytes: int = MAX_BYTES) -> List[str]:
    """The cleaned lines at the end of a log file.  A file that may not be read gives one line that says so."""
    try:
        return clean(read_end(path, max_bytes), secrets)
    except OSError as error:
        return ["(the log %s cannot be read: %s)" % (path, error.strerror)]
