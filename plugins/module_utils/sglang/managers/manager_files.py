# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files outside a release that are needed to start it: for systemd, and for secret arguments."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Iterable, List, Optional

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.run import client_environment
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.files import read_text, user_id
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import SYSTEMD, InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.managers.systemd_unit import (
    HEADER,
    is_ours,
    render,
    render_environment,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release, ReleaseError


@dataclass(frozen=True)
class ManagerFile:
    """A file as it shall be; owner "" means the one who writes it."""

    path: Path
    text: str
    mode: int
    owner: str = ""


def manager_files(release: Release, paths: InstancePaths, manager: str) -> List[ManagerFile]:
    """The files that a manager needs.  Raises ReleaseError for a release that it cannot run."""
    if release.container and manager != SYSTEMD:
        raise ReleaseError(
            f"container is set and manager is {manager!r}: a container needs systemd as its manager. "
            "Set manager to systemd, or remove container."
        )
    files = []
    if release.secret_args:
        files.append(ManagerFile(paths.secret_args_file, _render_secret_args(release), 0o400, release.user))
    if manager == SYSTEMD:
        try:
            unit = render(release, paths)
        except ValueError as error:
            raise ReleaseError(f"{_rendered(release)} cannot be put into a unit: {error}.") from None
        # Where an engine's client runs it, some variables would change what the client does.
        environment = client_environment(release.environment) if release.container else release.environment
        files.append(ManagerFile(paths.environment_file, render_environment(environment), 0o600))
        files.append(ManagerFile(paths.unit_file, unit, 0o644))
    return files


def _rendered(release: Release) -> str:
    return "container, user or paths" if release.container else "command, user or working_directory"


def _render_secret_args(release: Release) -> str:
    # A JSON string is a YAML string, whatever it contains.
    lines = [f"{name}: {json.dumps(value)}" for name, value in sorted(release.secret_args.items())]
    return "\n".join([HEADER, *lines]) + "\n"


def outdated(files: List[ManagerFile]) -> List[ManagerFile]:
    """Those that are not on the host as they shall be."""
    return [item for item in files if not _is_current(item)]


def _is_current(item: ManagerFile) -> bool:
    if read_text(item.path) != item.text:
        return False
    status = item.path.stat()
    # Another user than before must be able to read it.
    owned = not item.owner or status.st_uid == user_id(item.owner)
    return owned and (status.st_mode & 0o777) == item.mode


def obsolete(release: Release, paths: InstancePaths) -> List[Path]:
    """Our files that the release has no use for: a key must not outlive its use, nor a unit start the old server."""
    needed = managed_paths(paths, release.manager, bool(release.secret_args))
    candidates = [path for path in managed_paths(paths, SYSTEMD, True) if path not in needed]
    found = [path for path in candidates if is_ours(read_text(path) or "")]
    # What "systemctl enable" made: it would start the unit at boot.
    enabled = paths.unit_file.parent / "multi-user.target.wants" / paths.unit_name
    if paths.unit_file in found and enabled.is_symlink():
        found.insert(0, enabled)
    return found


def managed_paths(paths: InstancePaths, manager: str, secret_args: bool) -> List[Path]:
    """The files that manager_files would write."""
    found = [paths.secret_args_file] if secret_args else []
    return found + ([paths.environment_file, paths.unit_file] if manager == SYSTEMD else [])


def foreign_file(candidates: Iterable[Path]) -> Optional[Path]:
    """The first of the files that is there and that somebody else wrote, if any.  Raises OSError."""
    for path in candidates:
        present = read_text(path)
        if present is not None and not is_ours(present):
            return path
    return None


def foreign_message(path: Path) -> str:
    """What to say about such a file."""
    return (
        f"{path} was not written by inferops.sglang.sglang_release, so it is left alone: move it away, "
        "use another instance, or set replace_foreign to true."
    )
