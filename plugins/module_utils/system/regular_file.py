# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a file whose folder somebody else may write to: it may have become a pipe, a device, a link or a giant.

A pipe in place of a configuration would hang whoever reads it, a device may act on being opened, and a link
may lead to what its maker may not read.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Union

MIB = 1 << 20
# For the small files that the modules write or read (bytes).
MOST_BYTES = 16 * MIB


def open_regular(path: Union[str, Path]) -> BinaryIO:
    """Open a regular file for reading.  Raises OSError.

    A link counts where root or the caller made it, or where it leads to a file of the one who made it.
    """
    name = str(path)
    _check(os.stat(name), name)  # before it is opened
    link = os.lstat(name)
    # Without O_NONBLOCK a pipe that took the file's place since would hang.
    descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        status = os.fstat(descriptor)
        _check(status, name)
        if stat.S_ISLNK(link.st_mode) and link.st_uid not in (0, os.geteuid(), status.st_uid):
            raise OSError(errno.EPERM, "it is a link that another user made to somebody else's file", name)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_bytes(path: Union[str, Path], most: int = MOST_BYTES) -> bytes:
    """The content of a regular file of at most `most` bytes.  Raises OSError."""
    with open_regular(path) as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, "it is larger than %d MiB" % (most // MIB), str(path))
    return content


def read_text(path: Union[str, Path], most: int = MOST_BYTES) -> str:
    """The same as text.  Raises OSError, and UnicodeDecodeError where it is not UTF-8."""
    return read_bytes(path, most).decode("utf-8")


def open_own_log(path: Union[str, Path], mode: int) -> int:
    """A descriptor at the end of a log, which is made where it is missing.  Raises OSError.

    Nothing is written through a link, nor into a file that has another name somewhere.
    """
    name = str(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags, mode)
    try:
        status = os.fstat(descriptor)
        _check(status, name)
        if status.st_nlink > 1:
            raise OSError(errno.EMLINK, "it has another name somewhere", name)
        os.set_blocking(descriptor, True)
        os.fchmod(descriptor, mode)  # whatever the umask is
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check(status: os.stat_result, name: str) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", name)
