# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a container sees of the host's files, and where a path inside it lies on the host."""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass
from typing import Callable, List, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.settings import (
    ContainerError,
    ContainerSettings,
)

# Characters that end a path in --mount, whose value is a line of comma-separated fields.
_UNFIT = ',"\n'


@dataclass(frozen=True)
class Mount:
    """A file or folder of the host that a container sees read-only."""

    source: str
    target: str

    def words(self) -> List[str]:
        """Both engines' option.  Raises ContainerError for a path that it cannot express.

        Not --volume, which makes a folder where the source is missing.
        """
        for path in (self.source, self.target):
            if any(char in path for char in _UNFIT):
                raise ContainerError(f"{path!r} cannot be mounted into a container: it has a comma, a quote or a break")
        return ["--mount", f"type=bind,source={self.source},target={self.target},readonly"]


@dataclass(frozen=True)
class Volume:
    """One of the volumes that the user asks for; a source that is not absolute is the name of a volume."""

    source: str
    target: str
    options: Tuple[str, ...] = ()

    @property
    def named(self) -> bool:
        """Whether the engine keeps the content, so that it cannot be looked at from here."""
        return not self.source.startswith("/")


def parse_volume(text: str) -> Volume:
    """Read SOURCE:TARGET or SOURCE:TARGET:OPTIONS.  Raises ContainerError."""
    parts = text.split(":")
    if len(parts) not in (2, 3) or not all(parts):
        raise ContainerError(f"volumes: {text!r} is not SOURCE:TARGET or SOURCE:TARGET:OPTIONS")
    source, target = parts[0], parts[1]
    if not target.startswith("/") or posixpath.normpath(target) == "/":
        raise ContainerError(f"volumes: the target of {text!r} is not an absolute path below '/'")
    if not source.startswith("/") and not source[0].isalnum():
        raise ContainerError(f"volumes: the source of {text!r} is neither an absolute path nor the name of a volume")
    return Volume(source, posixpath.normpath(target), tuple(parts[2].split(",")) if len(parts) == 3 else ())


def volumes_of(settings: ContainerSettings) -> List[Volume]:
    """The volumes that can be read; check_container names the others."""
    found = []
    for text in settings.volumes:
        try:
            found.append(parse_volume(text))
        except ContainerError:
            continue
    return found


def inside(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies below it; both are absolute."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def host_path(settings: ContainerSettings, path: str) -> Optional[str]:
    """Where a path of the container lies on the host.

    None where the container does not have it from a folder of the host: it is in the image, or in a volume
    that the engine keeps.
    """
    path = posixpath.normpath(path)
    pairs = [(volume.target, "" if volume.named else volume.source) for volume in volumes_of(settings)]
    pairs += [(folder, folder) for folder in settings.folders]
    covering = [(target, source) for target, source in pairs if inside(path, target)]
    if not covering:
        return None
    # The innermost mount is the one that shows.
    target, source = max(covering, key=lambda pair: len(pair[0]))
    return posixpath.normpath(source + path[len(target) :]) if source else None


def uncovered(
    settings: ContainerSettings, wanted: Sequence[str], exists: Callable[[str], bool] = os.path.exists
) -> Tuple[str, ...]:
    """Those of the wanted absolute paths that must be mounted for the container to see them.

    What the host does not have is left out: it may be in the image.
    """
    volumes = volumes_of(settings)
    found: List[str] = []
    for path in sorted({posixpath.normpath(path) for path in wanted if path.startswith("/")}):
        covered = any(inside(path, volume.target) for volume in volumes) or any(inside(path, one) for one in found)
        if not covered and path != "/" and exists(path):
            found.append(path)
    return tuple(found)
