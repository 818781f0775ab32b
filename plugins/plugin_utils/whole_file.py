# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files on the controller that are replaced whole: a reader sees the old one or the new one, never half of it."""

from __future__ import annotations

import os
import stat
import tempfile

from ansible_collections.inferops.sglang.plugins.module_utils.system.regular_file import read_bytes

# Of a file that was not there before: names of hosts, users and processes are not for everybody.
_MODE = 0o600


class FileError(ValueError):
    """A file that cannot be written; the message names the option, the file and the remedy."""


def check_target(option: str, path: str) -> None:
    """Refuse a file that cannot be written before any work is done for it.  Raises FileError."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise FileError(
            "%s: %s cannot be written: there is no folder %s. Make it, or give another file." % (option, path, folder)
        )
    if os.path.isdir(path):
        raise FileError("%s: %s is a folder. Give a file in it." % (option, path))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise FileError(
            "%s: %s cannot be written: the folder %s may not be written to. Give a file in another folder."
            % (option, path, folder)
        )


def differs(path: str, content: str) -> bool:
    """Whether a file is not there, cannot be read, or has another content."""
    wanted = content.encode("utf-8")
    try:
        return read_bytes(path, len(wanted)) != wanted
    except OSError:
        return True


def replace(option: str, path: str, content: str) -> None:
    """Replace a file.  One that was there keeps its mode.  Raises FileError."""
    folder = os.path.dirname(os.path.abspath(path))
    try:
        _replace(folder, path, content)
    except OSError as exc:
        raise FileError(
            "%s: %s cannot be written: %s. Give a file in a folder that you may write to."
            % (option, path, exc.strerror)
        ) from exc


def _replace(folder: str, path: str, content: str) -> None:
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:
        mode = _MODE
    descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".inferops.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content.encode("utf-8"))
            os.fchmod(stream.fileno(), mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
