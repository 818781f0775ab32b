# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What lies beside release.json: files that the server reads, and the contents of patches.

The server's command names such files by the link `current`, so their paths stay when a release follows another.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Dict, Iterable, List, Mapping

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.managers.manager_files import ManagerFile, outdated
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import (
    AS_ROOT,
    FILE_NAME,
    Release,
    ReleaseError,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.releases import proof as release_proof

PATCHES = "patches"
# The server reads them as its own user, and they hold no secrets.
_MODE = 0o644
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_TAKEN = (FILE_NAME, release_proof.FILE_NAME, PATCHES)


def check_file_names(names: Iterable[str]) -> None:
    """Refuse names that are no plain names of files, or that are taken.  Raises ReleaseError."""
    for name in names:
        if not _NAME.fullmatch(name):
            raise ReleaseError(
                f"files: {name!r} is not a plain file name: use letters, digits, '.', '_' and '-', at most 100, "
                "beginning with a letter, a digit or '_'."
            )
        if name in _TAKEN:
            raise ReleaseError(f"files: {name!r} is the name of a part of the release itself: choose another name.")


def patch_file(folder: Path, sha256_after: str) -> Path:
    """Where a release keeps the content of a patch, named by its checksum."""
    return folder / PATCHES / sha256_after


def outdated_contents(release: Release, paths: InstancePaths, texts: Mapping[str, str]) -> List[ManagerFile]:
    """Files of the release's folder that are not there as they shall be.

    texts maps checksums to the contents of patches.  Raises ReleaseError for a name that cannot be.
    """
    check_file_names(release.files)
    folder = paths.release_dir(release.id)
    wanted = [ManagerFile(folder / name, text, _MODE) for name, text in sorted(release.files.items())]
    sums = sorted({str(patch["sha256_after"]) for patch in release.patches})
    wanted += [ManagerFile(patch_file(folder, sha256), texts[sha256], _MODE) for sha256 in sums]
    return outdated(wanted)


def read_patch_texts(release: Release, paths: InstancePaths) -> Dict[str, str]:
    """The contents of a stored release's patches by checksum.  Raises ReleaseError for one that is gone or changed."""
    found = {}
    for patch in release.patches:
        sha256 = str(patch["sha256_after"])
        path = patch_file(paths.release_dir(release.id), sha256)
        try:
            data = path.read_bytes()
            text = data.decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            remedy = AS_ROOT if isinstance(error, PermissionError) else _REMEDY
            raise ReleaseError(f"{_broken(path, str(patch['target']))}: {reason}. {remedy}") from None
        if hashlib.sha256(data).hexdigest() != sha256:
            raise ReleaseError(f"{_broken(path, str(patch['target']))}: its content has changed. {_REMEDY}")
        found[sha256] = text
    return found


_REMEDY = "Put the file back as it was, or go to another release."


def _broken(path: Path, target: str) -> str:
    return f"{path}, the content of the patch of {target}, cannot be used"
