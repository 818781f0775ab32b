# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the host is ready to take a release: users, folders, files, shared memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import List, Optional

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import Check, failed, ok, skipped, warning
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.files import user_id
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import SYSTEMD, InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.manager_files import (
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
