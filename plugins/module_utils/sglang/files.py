# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes files so that after a crash there is the old content or the new one, never a part.

A crash may leave a temporary file behind: `leftovers` finds those of a file by their name.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pwd
import re
import secrets
import time
from pathlib import Path
from typing import Callable, Iterator, List, Optional

from ansible_collections.inferops.sglang.plugins.module_utils.system import regular_file

_FOLDER_MODE = 0o755
_LOCK_POLL = 0.1


def read_text(path: Path) -> Optional[str]:
    """The content of a file, or None where there is none.  Raises OSError, also for what is no regular file."""
    try:
        return regular_file.read_bytes(path).decode("utf-8", "replace")
    except FileNotFoundError:
        return None


def user_id(name: str) -> Optional[int]:
    """The UID of a user by name or number, or None where there is none."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return int(name) if name.isdigit() and name.isascii() else None


def _existing_user(name: str) -> int:
    uid = user_id(name)
    if uid is None:
        raise OSError(errno.ENOENT, "no such user", name)
    return uid


def write_text(path: Path, text: str, mode: int, owner: str = "") -> None:
    """Replace a file whole.  owner is a user's name, "" for the one who writes."""
    write_bytes(path, text.encode("utf-8"), mode, owner)


def write_bytes(path: Path, data: bytes, mode: int, owner: str = "") -> None:
    """Replace a file whole.  owner is a user's name, "" for the one who writes."""
    make_folder(path.parent)
    with _temporary_name(path) as temporary:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            if owner:
                os.fchown(stream.fileno(), _existing_user(owner), -1)
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        temporary.replace(path)
    _sync_folder(path.parent)


def write_alike(path: Path, data: bytes, modified: int) -> None:
    """Replace an existing file whole, keeping owner, group and mode; modified is its new time in Unix seconds."""
    kept = path.stat()
    with _temporary_name(path) as temporary:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fchown(stream.fileno(), kept.st_uid, kept.st_gid)
            os.fchmod(stream.fileno(), kept.st_mode & 0o7777)
            os.utime(stream.fileno(), (modified, modified))
            os.fsync(stream.fileno())
        temporary.replace(path)
    _sync_folder(path.parent)


def point_link(link: Path, target: str) -> None:
    """Make a symbolic link, or point an existing one elsewhere, in one step."""
    make_folder(link.parent)
    with _temporary_name(link) as temporary:
        temporary.symlink_to(target)
        temporary.replace(link)
    _sync_folder(link.parent)


def remove_file(path: Path) -> None:
    """Remove a file, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, where they are missing."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(_FOLDER_MODE, exist_ok=True)
        folder.chmod(_FOLDER_MODE)  # whatever the umask is
        # Without this a loss of power may take the folder away from under a link that names it.
        _sync_folder(folder.parent)


def leftovers(path: Path) -> List[Path]:
    """Temporary files that a crash left behind while this file, or this link, was written."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{12}}")
    try:
        names = os.listdir(path.parent)
    except OSError:
        return []
    found = [path.parent / name for name in sorted(names) if pattern.fullmatch(name)]
    return [item for item in found if item.is_symlink() or item.is_file()]


@contextlib.contextmanager
def locked(
    folder: Path,
    timeout: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Keep others out of a folder, which is made where it is missing.

    Waits up to `timeout` seconds for whoever holds it, then raises OSError.  The lock ends with the process.
    """
    make_folder(folder)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        deadline = clock() + timeout
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if clock() >= deadline:
                    message = f"another run has been writing there for {timeout:g} s"
                    raise OSError(errno.EWOULDBLOCK, message, str(folder)) from None
            sleep(_LOCK_POLL)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _temporary_name(path: Path) -> Iterator[Path]:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        yield temporary
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
