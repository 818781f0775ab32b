# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the host is ready to take a release: users, folders, files, shared memory."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Callable, Dict, List, Optional, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import Check, failed, ok, skipped, warning
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.files import user_id
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import SYSTEMD, InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.managers.manager_files import (
    foreign_file,
    foreign_message,
    managed_paths,
)

SHARED_MEMORY = "/dev/shm"
_SHARED_MEMORY_MIB = 1024


def free_shared_memory(path: str = SHARED_MEMORY) -> Optional[int]:
    """Free shared memory in MiB, or None where there is none."""
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize // (1 << 20)


def check_shared_memory(free_mib: Optional[int]) -> List[Check]:
    """The server's processes talk through shared memory; containers often have 64 MiB."""
    name = "shared_memory"
    if free_mib is None:
        return [skipped(name, f"{SHARED_MEMORY} cannot be read.")]
    if free_mib < _SHARED_MEMORY_MIB:
        return [
            warning(
                name,
                f"{SHARED_MEMORY} has {free_mib} MiB free and the server's processes may need "
                f"{_SHARED_MEMORY_MIB} MiB: give the container more (--ipc=host), or remove what was left there.",
            )
        ]
    return [ok(name, f"{SHARED_MEMORY} has {free_mib} MiB free.")]


def home_of(user: str) -> str:
    """The home folder of a user by name or number, of the caller for ""; "/root" where there is no such user."""
    uid = user_id(user) if user else os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_dir if uid is not None else "/root"
    except KeyError:
        return "/root"


def free_space(path: str) -> Optional[int]:
    """Free space in MiB where a path is or would be, or None where that cannot be told."""
    try:
        status = os.statvfs(_existing_parent(Path(path)))
    except OSError:
        return None
    return status.f_bavail * status.f_frsize // (1 << 20)


# What a release and the server's own small files need, and what downloads and compiled code may need.
_LEAST_MIB = 64
_COMFORTABLE_MIB = 2048


def check_disk_space(needed: Sequence[str], useful: Sequence[str], free: Callable[[str], Optional[int]]) -> List[Check]:
    """Free space: `needed` are folders that must be written to, `useful` those that may well be.

    free tells how many MiB are free at a path, None where that is not known.
    """
    name = "disk_space"
    found: List[Check] = []
    by_amount: Dict[int, List[str]] = {}
    for path in dict.fromkeys((*needed, *useful)):
        mib = free(path)
        if mib is not None and mib < _COMFORTABLE_MIB:
            by_amount.setdefault(mib, []).append(path)
    for mib, paths in by_amount.items():
        where = " and ".join(paths)
        if mib < _LEAST_MIB and set(paths) & set(needed):
            found.append(
                failed(name, f"{where}: {mib} MiB are free, and at least {_LEAST_MIB} MiB are needed: make room.")
            )
        else:
            found.append(
                warning(name, f"{where}: only {mib} MiB are free, which may not last for what the server keeps there.")
            )
    return found or [ok(name, "There is room in the folders that are written to.")]


def check_account(user: str, working_directory: str) -> List[Check]:
    """The user and the folder that the server starts as and in."""
    name = "account"
    found = []
    if user and user_id(user) is None:
        found.append(failed(name, f"user {user!r} does not exist on this host: create it, or name another one."))
    if working_directory and not (working_directory.startswith("/") and os.path.isdir(working_directory)):
        found.append(
            failed(name, f"working_directory: {working_directory} is not a folder on this host with an absolute path.")
        )
    return found


def check_folders(paths: InstancePaths, manager: str, secret_args: bool, replace_foreign: bool) -> List[Check]:
    """Whether the release and the manager's files can be written, and belong to us."""
    name = "files"
    files = managed_paths(paths, manager, secret_args)
    folders = [paths.releases_dir, *(path.parent for path in files)]
    found = []
    for blocked in sorted({str(parent) for parent in map(_existing_parent, folders) if not _writable(parent)}):
        found.append(failed(name, f"{blocked} cannot be written to: run as root, or choose other folders."))
    try:
        foreign = None if replace_foreign else foreign_file(files)
    except OSError as error:
        found.append(failed(name, f"{error.filename} cannot be read: {error.strerror}."))
    else:
        if foreign is not None:
            found.append(failed(name, foreign_message(foreign)))
    if manager == SYSTEMD and paths.unit_file.is_symlink():
        found.append(failed(name, f"{paths.unit_file} is a link (a masked unit?): remove it, or use another instance."))
    return found or [ok(name, "The release can be written.")]


def _existing_parent(folder: Path) -> Path:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _writable(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
