# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes releases and moves the links between them.

`plan_*` read and decide, `apply` writes; nothing is written before everything has been decided.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import List, Optional

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.files import point_link, write_text
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.manager_files import (
    ManagerFile,
    foreign_file,
    foreign_message,
    manager_files,
    obsolete,
    outdated,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import (
    FILE_NAME,
    Release,
    ReleaseError,
    read_current,
    read_last_good,
    read_release,
)

_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}")


@dataclass(frozen=True)
class Plan:
    """What has to be done; nothing where all fields but the first are empty.

    release is the one that counts afterwards; new: its file has to be written; current, last_good: the
    release that the link shall name, "" to leave the link; remove: folders of old releases;
    obsolete: files that the release needs no more.
    """

    release: Release
    new: bool = False
    files: List[ManagerFile] = field(default_factory=list)
    current: str = ""
    last_good: str = ""
    remove: List[Path] = field(default_factory=list)
    obsolete: List[Path] = field(default_factory=list)

    @property
    def changes(self) -> bool:
        """Whether anything has to be done."""
        return bool(self.new or self.files or self.current or self.last_good or self.remove or self.obsolete)


def linked_id(link: Path) -> Optional[str]:
    """The ID that a link names, without a look at the release; None where there is no link."""
    try:
        return Path(os.readlink(link)).name
    except OSError:
        return None


def release_id(now: datetime, digest: str) -> str:
    """A name that sorts by time and tells contents apart; now is in UTC."""
    return f"{now:%Y%m%dT%H%M%SZ}-{digest[:8]}"


def plan_present(wanted: Release, paths: InstancePaths, now: datetime, replace_foreign: bool) -> Plan:
    """Make a release with this content the current one.  id and created of `wanted` do not count.

    Raises ReleaseError where the current release is broken or a file belongs to somebody else.
    """
    current = read_current(paths)
    if current is not None and current.content() == wanted.content():
        files = _files(current, paths, current.manager, replace_foreign)
        return Plan(current, files=files, obsolete=obsolete(current, paths))
    identity = release_id(now, wanted.digest())
    folder = paths.releases_dir / identity
    new = not folder.exists()
    release = replace(wanted, id=identity, created=f"{now:%Y-%m-%dT%H:%M:%SZ}") if new else read_release(folder)
    files = _files(release, paths, release.manager, replace_foreign)
    return Plan(release, new=new, files=files, current=identity, obsolete=obsolete(release, paths))


def plan_restored(paths: InstancePaths, manager: str, replace_foreign: bool) -> Plan:
    """Make the last proven release the current one again, whatever the current one is.

    Raises ReleaseError where there is none or it is broken.
    """
    release = read_last_good(paths)
    if release is None:
        raise ReleaseError(
            f"There is no proven release of {paths.instance} to go back to ({paths.last_good_link} does not exist): "
            "deploy a configuration that works."
        )
    moved = linked_id(paths.current_link) != release.id
    files = _files(release, paths, manager, replace_foreign)
    return Plan(release, files=files, current=release.id if moved else "", obsolete=obsolete(release, paths))


def plan_proven(paths: InstancePaths, keep: int) -> Plan:
    """Remember the current release as proven, and let go of all but the newest `keep` releases.

    Raises ReleaseError where there is no current release or it is broken.
    """
    release = read_current(paths)
    if release is None:
        raise ReleaseError(
            f"There is no release of {paths.instance} that could be proven ({paths.current_link} does not exist): "
            "deploy one first."
        )
    moved = linked_id(paths.last_good_link) != release.id
    return Plan(release, last_good=release.id if moved else "", remove=_old_releases(paths, keep, release.id))


def _old_releases(paths: InstancePaths, keep: int, proven: str) -> List[Path]:
    """Folders of releases beyond the newest `keep`; what does not look like a release is left alone."""
    if not paths.releases_dir.is_dir():
        return []
    folders = sorted(path for path in paths.releases_dir.iterdir() if _ID.fullmatch(path.name))
    return [path for path in folders[: max(0, len(folders) - keep)] if path.name != proven]


def _files(release: Release, paths: InstancePaths, manager: str, replace_foreign: bool) -> List[ManagerFile]:
    files = manager_files(release, paths, manager)
    foreign = None if replace_foreign else foreign_file(item.path for item in files)
    if foreign is not None:
        raise ReleaseError(foreign_message(foreign))
    return outdated(files)


def apply(plan: Plan, paths: InstancePaths) -> None:
    """Do what was planned: the links last, so that they never name what is not there yet."""
    if plan.new:
        write_text(paths.releases_dir / plan.release.id / FILE_NAME, plan.release.to_json(), 0o600)
    for item in plan.files:
        write_text(item.path, item.text, item.mode, item.owner)
    if plan.current:
        point_link(paths.current_link, f"releases/{plan.current}")
    if plan.last_good:
        point_link(paths.last_good_link, f"releases/{plan.last_good}")
    for path in plan.obsolete:
        path.unlink()
    for folder in plan.remove:
        shutil.rmtree(folder)
