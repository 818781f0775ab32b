# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file of lines that many processes append to, that never grows without end, and that nobody else can touch.

Source: open(2) (O_APPEND, O_NOFOLLOW), flock(2).  The lock is on the folder, since the file is moved away
when it is full.  Every line is one write(2) under the lock.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from typing import Callable

MOST_BYTES = 8 << 20  # of one file
OLDER = 4  # files that are kept beside it
# How long (seconds) all waits for the lock may take together: others hold it for microseconds.
_PATIENCE = 2.0
_POLL = 0.005
_FOLDER_MODE = 0o700
_FILE_MODE = 0o600
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class Refused(Exception):
    """A file that is not written; the message says why, and what to do."""


class LineFile:
    """The file; its folder is made where only that is missing.  Times are in seconds."""

    def __init__(
        self,
        path: str,
        most_bytes: int = MOST_BYTES,
        older: int = OLDER,
        patience: float = _PATIENCE,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._path = path
        self._folder, self._name = os.path.split(path)
        self._most_bytes = most_bytes
        self._older = older
        self._patience = patience
        self._clock = clock
        self._sleep = sleep

    def append(self, line: bytes, durable: bool = False) -> None:
        """Append one line, which ends with a newline.  durable: it is on the disk afterwards.

        Raises Refused, and OSError where the system does.
        """
        folder = self._open_folder()
        try:
            self._lock(folder)
            self._append(folder, line, durable)
        finally:
            os.close(folder)  # gives the lock back, too

    def _open_folder(self) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            folder = os.open(self._folder, flags)
        except FileNotFoundError:
            self._make_folder()
            folder = os.open(self._folder, flags)
        except NotADirectoryError:  # which is what a link is, too
            raise Refused("%s is not a folder: remove it, or name another file" % self._folder) from None
        try:
            _check_owner(os.fstat(folder), self._folder)
        except BaseException:
            os.close(folder)
            raise
        return folder

    def _make_folder(self) -> None:
        try:
            os.mkdir(self._folder, _FOLDER_MODE)
        except FileExistsError:
            pass  # somebody else was faster
        except FileNotFoundError:
            raise Refused("%s does not exist: make it" % os.path.dirname(self._folder)) from None

    def _lock(self, folder: int) -> None:
        while True:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if self._patience <= 0:
                    raise Refused("another process has locked %s: end it (lsof names it)" % self._folder) from None
            began = self._clock()
            self._sleep(_POLL)
            self._patience -= self._clock() - began

    def _append(self, folder: int, line: bytes, durable: bool) -> None:
        descriptor = self._open(folder)
        try:
            status = os.fstat(descriptor)
            if status.st_size and status.st_size + len(line) >= self._most_bytes:
                os.close(descriptor)
                descriptor = -1
                self._rotate(folder)
                descriptor = self._open(folder)
                status = os.fstat(descriptor)
            if status.st_size and os.pread(descriptor, 1, status.st_size - 1) != b"\n":
                line = b"\n" + line  # the last one is torn: its writer, or the host, died
            written = os.write(descriptor, line)
            if written != len(line):
                os.ftruncate(descriptor, status.st_size)
                raise Refused("there is no space left for %s: make some" % self._path)
            if durable:
                os.fdatasync(descriptor)
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _open(self, folder: int) -> int:
        """Open the file itself, never what a link leads to, and never wait for whoever reads a pipe."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(self._name, flags, _FILE_MODE, dir_fd=folder)
        except OSError as error:
            if stat.S_ISREG(self._mode(folder)):
                raise
            raise Refused("%s is not a regular file (%s): remove it" % (self._path, error.strerror)) from None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise Refused("%s is not a regular file: remove it" % self._path)
            _check_owner(status, self._path)
            if status.st_nlink > 1:
                raise Refused("%s has a second name on its disk: remove it" % self._path)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _mode(self, folder: int) -> int:
        """The mode of what has the name, that of a regular file where nothing has."""
        try:
            return os.stat(self._name, dir_fd=folder, follow_symlinks=False).st_mode
        except OSError:
            return stat.S_IFREG

    def _rotate(self, folder: int) -> None:
        """Move the file and the older ones on; the oldest falls off.  One that dies in between loses nothing."""
        for number in range(self._older, 0, -1):
            newer = self._name if number == 1 else "%s.%d" % (self._name, number - 1)
            try:
                os.replace(newer, "%s.%d" % (self._name, number), src_dir_fd=folder, dst_dir_fd=folder)
            except FileNotFoundError:
                continue


def _check_owner(status: os.stat_result, path: str) -> None:
    """Whoever else could write there could forge what is recorded."""
    if status.st_uid not in (0, os.geteuid()):
        raise Refused("%s belongs to the user %d: chown it to root" % (path, status.st_uid))
    if status.st_mode & _WRITABLE_BY_OTHERS:
        raise Refused("others may write %s (mode %04o): chmod go-w" % (path, stat.S_IMODE(status.st_mode)))
