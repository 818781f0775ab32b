# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Other instances of the host that run from the same Python, and so load the same files of SGLang."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import List, Optional, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstanceError, InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.patches.store import known_patches
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release, ReleaseError, read_current


def instances_alike(release: Release, paths: InstancePaths) -> List[str]:
    """Names of the other instances whose current release is started by the same program, in order."""
    if release.container:
        return []
    found = []
    for link in sorted(Path(paths.state_dir).glob("*/current")):
        other = _current(paths, link.parent.name)
        if other is None or other.instance == release.instance or other.container:
            continue
        if other.command[0] == release.command[0]:
            found.append(other.instance)
    return found


def _current(paths: InstancePaths, instance: str) -> Optional[Release]:
    try:
        return read_current(replace(paths, instance=instance))
    except (InstanceError, ReleaseError):
        return None


def sharing_warnings(release: Release, paths: InstancePaths, changed: Sequence[Path]) -> List[str]:
    """What somebody should know where instances share an installation.

    changed are the files that are about to be replaced.  Raises ReleaseError for a broken manifest.
    """
    alike = instances_alike(release, paths)
    if not alike:
        return []
    names = ", ".join(alike)
    warnings = [
        f"{path} changes for {names} too, from its next start on: it is started by the same {release.command[0]}."
        for path in changed
    ]
    own = {str(patch["target"]) for patch in release.patches}
    for entry in known_patches(paths.state_dir):
        others = sorted(set(entry["wanted_by"]) & set(alike))
        if others and entry["target"] not in own:
            warnings.append(
                f"{entry['path']} stays patched, as {', '.join(others)} wants it, and {release.instance} is started by "
                f"the same {release.command[0]}."
            )
    return warnings
