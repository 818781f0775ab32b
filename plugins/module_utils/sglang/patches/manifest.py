# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What we have changed in an installed SGLang, remembered for all instances that use it.

STATE_DIR/.patches/DIGEST/manifest.json, one folder for each installation; originals/SHA256 beside it are the
files as they were released.  Both are written before a file of the installation changes.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import AbstractSet, Any, Dict, FrozenSet, List, Mapping, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.files import leftovers
from ansible_collections.inferops.sglang.plugins.module_utils.system import bounded_json, regular_file

FORMAT = 1
FILE_NAME = "manifest.json"
# No instance can have this name.
_FOLDER = ".patches"
_ORIGINALS = "originals"


class ManifestError(Exception):
    """A manifest that cannot be used; the message names the file and the remedy."""


@dataclass(frozen=True)
class Entry:
    """One file of the installation.

    before and after are checksums of the file as released and as it shall be; ours are all contents that we
    may have left there, more than one while a change is under way; wanted_by maps instances to the release
    that wants it, and is empty while the file is being put back.
    """

    before: str
    after: str
    ours: FrozenSet[str] = frozenset()
    wanted_by: Mapping[str, str] = field(default_factory=dict)

    def others(self, instance: str) -> List[str]:
        """Who else wants it."""
        return sorted(name for name in self.wanted_by if name != instance)

    @property
    def left_by_us(self) -> FrozenSet[str]:
        """Checksums of contents that come from us."""
        return self.ours | {self.after}

    def to_dict(self) -> Dict[str, Any]:
        """As it stands in the file."""
        return {
            "sha256_before": self.before,
            "sha256_after": self.after,
            "ours": sorted(self.left_by_us),
            "wanted_by": dict(self.wanted_by),
        }


@dataclass(frozen=True)
class Manifest:
    """All changes of one installation.  package is the folder that holds the package; entries go by target."""

    folder: Path
    package: str
    entries: Mapping[str, Entry] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / FILE_NAME

    def original(self, entry: Entry) -> Path:
        """Where the file as released is kept."""
        return self.folder / _ORIGINALS / entry.before

    def target_path(self, target: str) -> Path:
        """The file of the installation."""
        return Path(self.package) / target

    @property
    def text(self) -> str:
        """The file's content, "" where there shall be none."""
        if not self.entries:
            return ""
        entries = {target: entry.to_dict() for target, entry in self.entries.items()}
        data = {"format": FORMAT, "package": self.package, "patches": entries}
        return json.dumps(data, indent=2, sort_keys=True) + "\n"


def manifest_folder(state_dir: str, package: str) -> Path:
    """Where the changes of an installation are remembered."""
    digest = hashlib.sha256(package.encode("utf-8", "surrogateescape")).hexdigest()
    return Path(state_dir) / _FOLDER / digest[:16]


def originals_in(folder: Path) -> List[Path]:
    """All files that are kept as they were released."""
    try:
        return sorted((folder / _ORIGINALS).iterdir())
    except OSError:
        return []


def abandoned(state_dir: str, planned: AbstractSet[Path]) -> List[Path]:
    """What runs that were killed kept in other than the planned folders, and did not come to change."""
    folders = sorted(path for path in (Path(state_dir) / _FOLDER).glob("*") if path not in planned)
    found: List[Path] = []
    for folder in folders:
        if not (folder / FILE_NAME).exists():
            found += originals_in(folder) + leftovers(folder / FILE_NAME)
    return found


def package_of(path: str, target: str) -> Tuple[str, str]:
    """The folder that holds the package, symbolic links resolved, and the target's path in it.

    Raises ValueError where the path does not end in the target.
    """
    if not path.startswith("/") or not path.endswith("/" + target):
        raise ValueError(f"{path!r} is not an absolute path that ends in {target}")
    package = os.path.realpath(path[: -len(target) - 1])
    return package, os.path.join(package, target)


def read_manifests(state_dir: str) -> Dict[str, Manifest]:
    """All manifests by the folder that holds the package.  Raises ManifestError for one that is broken."""
    found = {}
    folder = Path(state_dir) / _FOLDER
    for path in sorted(folder.glob(f"*/{FILE_NAME}")):
        manifest = _read(path)
        found[manifest.package] = manifest
    return found


def _read(path: Path) -> Manifest:
    try:
        data = bounded_json.loads(regular_file.read_text(path))
        if data["format"] != FORMAT:
            raise ValueError(f"its format is {data['format']!r} and not {FORMAT}")
        entries = {str(target): _entry(value) for target, value in data["patches"].items()}
        return Manifest(path.parent, str(data["package"]), entries)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ManifestError(
            f"{path}, which tells what was patched in an installed SGLang, cannot be used: {error}. Put the file back "
            "as it was, or install that SGLang anew and remove the folder it is in."
        ) from None


def _entry(value: Mapping[str, Any]) -> Entry:
    return Entry(
        before=str(value["sha256_before"]),
        after=str(value["sha256_after"]),
        ours=frozenset(str(item) for item in value["ours"]),
        wanted_by={str(name): str(release) for name, release in value["wanted_by"].items()},
    )
