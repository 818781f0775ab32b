# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The releases that an instance has, and which of them is meant by a name."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import redact_info
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import (
    FILE_NAME,
    Release,
    ReleaseError,
    read_last_good,
    read_release,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.releases.proof import Proof, read_proof

ADOPTED = "adopted"
PREVIOUS = "previous"

_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}")


@dataclass(frozen=True)
class Entry:
    """One release as it lies there.  release is None where it cannot be read: broken says why."""

    id: str
    current: bool
    last_good: bool
    release: Optional[Release] = None
    proof: Optional[Proof] = None
    broken: str = ""

    @property
    def proven(self) -> bool:
        """Whether it is known to have served: proven by us, or serving when it was taken over."""
        adopted = self.release is not None and self.release.origin == ADOPTED
        return self.proof is not None or self.last_good or adopted

    def to_dict(self) -> Dict[str, Any]:
        """As the module returns it, without secrets."""
        release = self.release
        found: Dict[str, Any] = {
            "id": self.id,
            "created": None if release is None else release.created,
            "current": self.current,
            "last_good": self.last_good,
            "proven": self.proven,
            "origin": "" if release is None else release.origin,
            "version": "" if release is None else release.sglang_version,
            "requested": {} if release is None else redact_info(release.requested),
            "accept_length": None if self.proof is None else self.proof.accept_length,
            "ready_after": None if self.proof is None else self.proof.ready_after,
            "proven_at": None if self.proof is None else self.proof.proven_at,
            "ranks": [] if self.proof is None else list(self.proof.ranks),
        }
        if self.broken:
            found["broken"] = self.broken
        return found

    def in_words(self) -> str:
        """One line for people: ID, speculation and what is known of it."""
        if self.release is None:
            return f"{self.id} (broken)"
        marks = [speculation_in_short(self.release), "proven" if self.proven else "not proven"]
        marks += [name for name, holds in (("current", self.current), ("last good", self.last_good)) if holds]
        if self.release.origin:
            marks.append(self.release.origin)
        return f"{self.id} ({', '.join(marks)})"


def linked_id(link: Path) -> Optional[str]:
    """The ID that a link names, without a look at the release; None where there is no link."""
    try:
        return Path(os.readlink(link)).name
    except OSError:
        return None


def release_folders(paths: InstancePaths) -> List[Path]:
    """The folders that are named like a release, oldest first, complete or not."""
    if not paths.releases_dir.is_dir():
        return []
    return sorted(path for path in paths.releases_dir.iterdir() if _ID.fullmatch(path.name))


def is_complete(folder: Path) -> bool:
    """Whether all of a release has been written: its description comes last."""
    return (folder / FILE_NAME).exists()


def list_releases(paths: InstancePaths) -> List[Entry]:
    """All releases, newest first; a broken one is listed as broken.

    What a run that was killed left unfinished is no release, unless a link names it.
    """
    current, last_good = linked_id(paths.current_link), linked_id(paths.last_good_link)
    linked = {current, last_good}
    found = []
    for folder in reversed(release_folders(paths)):
        if is_complete(folder) or folder.name in linked:
            found.append(_entry(folder, paths, folder.name == current, folder.name == last_good))
    return found


def _entry(folder: Path, paths: InstancePaths, current: bool, last_good: bool) -> Entry:
    proof = read_proof(paths, folder.name)
    try:
        return Entry(folder.name, current, last_good, read_release(folder), proof)
    except ReleaseError as error:
        return Entry(folder.name, current, last_good, None, proof, str(error))


def find_release(paths: InstancePaths, wanted: str) -> Release:
    """The release that somebody means.

    wanted is "" for the one that was proven last, "previous" for the newest proven one that is not the
    current one, or an ID or the beginning of one.  Raises ReleaseError, listing what there is.
    """
    if not wanted:
        return _last_good(paths)
    entries = list_releases(paths)
    if wanted == PREVIOUS:
        return _previous(paths, entries)
    meant = [entry for entry in entries if entry.id == wanted] or [e for e in entries if e.id.startswith(wanted)]
    if not meant:
        raise ReleaseError(f"release: {paths.instance} has no release {wanted!r}. {_listed(entries)}")
    if len(meant) > 1:
        raise ReleaseError(f"release: {wanted!r} can mean {len(meant)} releases: give more of its ID. {_listed(meant)}")
    if meant[0].release is None:
        raise ReleaseError(meant[0].broken)
    return meant[0].release


def _previous(paths: InstancePaths, entries: Sequence[Entry]) -> Release:
    for entry in entries:
        # A return to it was begun and not finished: whoever asks again means the same one.
        if entry.current and entry.proven and not entry.last_good and entry.release is not None:
            return entry.release
    for entry in entries:
        if entry.proven and not entry.current and entry.release is not None:
            return entry.release
    raise ReleaseError(
        f"release: there is no proven release of {paths.instance} other than the current one to go back to. "
        f"{_listed(entries)}"
    )


def _last_good(paths: InstancePaths) -> Release:
    release = read_last_good(paths)
    if release is None:
        raise ReleaseError(
            f"There is no proven release of {paths.instance} to go back to ({paths.last_good_link} does not exist): "
            "deploy a configuration that works."
        )
    return release


def _listed(entries: Sequence[Entry]) -> str:
    if not entries:
        return "No release is kept: deploy one first."
    return "Kept, newest first: " + "; ".join(entry.in_words() for entry in entries) + "."


def speculation_in_short(release: Release) -> str:
    """The speculation of a release, such as "EAGLE3 3/1/4": steps, topk, draft tokens."""
    values = {**release.requested, **release.effective}
    algorithm = values.get("speculative_algorithm")
    if not algorithm:
        return "no speculation"
    numbers = [_number(values, f"speculative_{name}") for name in ("num_steps", "eagle_topk", "num_draft_tokens")]
    return f"{algorithm} {'/'.join(numbers)}" + (" adaptive" if values.get("speculative_adaptive") else "")


def _number(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    return "?" if value is None else str(value)
