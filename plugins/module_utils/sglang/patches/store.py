# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings patches into an installed SGLang, and takes them out again.

An installation can serve several instances, so a file is put back only when no instance wants it changed.
What is to be done is decided from the files as they are; a run that was killed is finished by the next one.
"""

from __future__ import annotations

import functools
import os
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Set, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.files import (
    leftovers,
    read_text,
    remove_file,
    write_alike,
    write_bytes,
    write_text,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.patches.manifest import (
    Entry,
    Manifest,
    ManifestError,
    abandoned,
    manifest_folder,
    originals_in,
    package_of,
    read_manifests,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.patches.patches import (
    Patch,
    changed_message,
    others_message,
    sha256_of,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release, ReleaseError


@dataclass(frozen=True)
class Change:
    """One file of an installation that is replaced.  before and after are its contents; forward: by a patch."""

    path: Path
    before: bytes
    after: bytes
    forward: bool


@dataclass(frozen=True)
class Rewrite:
    """All changes of one installation.

    originals are kept, and `begun` written, before the first change; `done` follows the last one, after
    which `sweep` goes.  begun or done is None where the manifest says so already.
    """

    begun: Optional[Manifest]
    done: Optional[Manifest]
    originals: Mapping[Path, bytes] = field(default_factory=dict)
    changes: Tuple[Change, ...] = ()
    sweep: Tuple[Path, ...] = ()
    forgotten: Tuple[Path, ...] = ()

    @property
    def needed(self) -> bool:
        """Whether there is anything to do."""
        manifests = self.begun is not None or self.done is not None
        return bool(manifests or self.originals or self.changes or self.sweep)


@dataclass(frozen=True)
class PatchPlan:
    """What happens to all installations.  forgotten: patched files that somebody else has replaced meanwhile."""

    rewrites: Tuple[Rewrite, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether there is anything to do."""
        return any(rewrite.needed for rewrite in self.rewrites)

    @property
    def files(self) -> List[Change]:
        """The files that are replaced, in order."""
        return [change for rewrite in self.rewrites for change in rewrite.changes]

    @property
    def touches_files(self) -> bool:
        """Whether a file of an installation is replaced."""
        return bool(self.files)

    @property
    def forgotten(self) -> List[Path]:
        """Files that are not put back, since they are not as we left them."""
        return [path for rewrite in self.rewrites for path in rewrite.forgotten]


NO_PATCHES = PatchPlan()


def known_patches(state_dir: str) -> List[Dict[str, Any]]:
    """Everything we have changed, for patches.check_patches.  Raises ReleaseError for a broken manifest."""
    return [
        dict(entry.to_dict(), target=target, path=str(manifest.target_path(target)))
        for manifest in _manifests(state_dir).values()
        for target, entry in manifest.entries.items()
    ]


def releases_with_patches(paths: InstancePaths) -> Set[str]:
    """IDs of the instance's releases that a manifest names.  Raises ReleaseError."""
    return {
        entry.wanted_by[paths.instance]
        for manifest in _manifests(paths.state_dir).values()
        for entry in manifest.entries.values()
        if paths.instance in entry.wanted_by
    }


def plan_patches(release: Release, paths: InstancePaths, texts: Mapping[str, str]) -> PatchPlan:
    """What brings the patches of a release, and no others of this instance, into the installed SGLang.

    texts maps checksums to contents.  In a container patches are mounted, so the host keeps none.  Raises
    ReleaseError where a file is not as it should be, or another instance wants it otherwise.
    """
    manifests = _manifests(paths.state_dir)
    wanted = {} if release.container else _wanted(release, texts)
    rewrites = []
    # What is given up first: the order does not matter for the result, and a diff reads better.
    for package in sorted({*manifests, *wanted}, key=lambda name: (name in wanted, name)):
        manifest = manifests.get(package) or Manifest(manifest_folder(paths.state_dir, package), package)
        rewrites.append(_Planner(manifest, paths.instance, release.id).plan(wanted.get(package, {})))
    planned = {manifest_folder(paths.state_dir, package) for package in {*manifests, *wanted}}
    rewrites.append(Rewrite(None, None, sweep=tuple(abandoned(paths.state_dir, planned))))
    return PatchPlan(tuple(rewrite for rewrite in rewrites if rewrite.needed))


def _manifests(state_dir: str) -> Dict[str, Manifest]:
    try:
        return read_manifests(state_dir)
    except ManifestError as error:
        raise ReleaseError(str(error)) from None


def _wanted(release: Release, texts: Mapping[str, str]) -> Dict[str, Dict[str, Patch]]:
    """The patches of a release by the folder that holds the package, and by target."""
    found: Dict[str, Dict[str, Patch]] = {}
    for value in release.patches:
        target, after = str(value["target"]), str(value["sha256_after"])
        try:
            package, path = package_of(str(value["path"]), target)
        except ValueError as error:
            raise ReleaseError(f"patches: path of {target}: {error}. Give the path that the preflight found.") from None
        patch = Patch(target, str(value["sha256_before"]), after, texts[after], path)
        found.setdefault(package, {})[target] = patch
    return found


class _Planner:
    """Decides for the files of one installation."""

    def __init__(self, manifest: Manifest, instance: str, release_id: str) -> None:
        self._manifest = manifest
        self._instance = instance
        self._release_id = release_id
        self._begun: Dict[str, Entry] = {}
        self._done: Dict[str, Entry] = {}
        self._originals: Dict[Path, bytes] = {}
        self._changes: List[Change] = []
        self._forgotten: List[Path] = []

    def plan(self, wanted: Mapping[str, Patch]) -> Rewrite:
        """What has to be done so that exactly these patches are there for the instance."""
        for target, entry in self._manifest.entries.items():
            if target not in wanted:
                self._give_up(target, entry)
        for patch in wanted.values():
            self._want(patch)
        begun = replace(self._manifest, entries=self._begun)
        done = replace(self._manifest, entries=self._done)
        on_disk = read_text(self._manifest.path) or ""
        return Rewrite(
            begun=begun if self._changes and begun.text != on_disk else None,
            done=done if done.text != (begun.text if self._changes else on_disk) else None,
            originals=self._originals,
            changes=tuple(self._changes),
            sweep=self._sweep(),
            forgotten=tuple(self._forgotten),
        )

    def _give_up(self, target: str, entry: Entry) -> None:
        others = {name: release for name, release in entry.wanted_by.items() if name != self._instance}
        if others:
            self._begun[target] = self._done[target] = replace(entry, wanted_by=others)
            return
        path = self._manifest.target_path(target)
        data = _read(path)
        there = sha256_of(data) if data is not None else ""
        if there == entry.before:
            return
        if data is None or there not in entry.left_by_us:
            self._forgotten.append(path)
            return
        self._begun[target] = replace(entry, wanted_by={})
        self._changes.append(Change(path, data, self._kept(target, entry), forward=False))

    def _kept(self, target: str, entry: Entry) -> bytes:
        """The file as released, from where it was put."""
        path = self._manifest.original(entry)
        data = _read(path)
        if data is None or sha256_of(data) != entry.before:
            raise ReleaseError(
                f"{path}, the file {target} as released, is gone or has changed, so the patch of "
                f"{self._manifest.target_path(target)} cannot be taken out: install that version of SGLang anew."
            )
        return data

    def _want(self, patch: Patch) -> None:
        path = Path(patch.path)
        data = _read(path)
        if data is None:
            raise ReleaseError(
                f"patches: {path} does not exist: install the version of SGLang that the patch was made for."
            )
        there = sha256_of(data)
        entry = self._manifest.entries.get(patch.target)
        if entry is not None:
            self._refuse_others(entry, patch)
        known: FrozenSet[str] = frozenset()
        if entry is not None and entry.before == patch.sha256_before:
            known = entry.left_by_us
        if there != patch.sha256_before and there not in known:
            raise ReleaseError(changed_message(patch, str(path), there))
        wanted_by = dict(entry.wanted_by) if entry is not None else {}
        wanted_by[self._instance] = self._release_id
        settled = Entry(patch.sha256_before, patch.sha256_after, frozenset([patch.sha256_after]), wanted_by)
        self._done[patch.target] = settled
        self._keep_original(settled, there, data)
        if there == patch.sha256_after:
            self._begun[patch.target] = settled
            return
        # Until it is done, both what we leave and what we replace are ours.
        self._begun[patch.target] = replace(settled, ours=known | {patch.sha256_after})
        self._changes.append(Change(path, data, patch.content.encode("utf-8"), forward=True))

    def _refuse_others(self, entry: Entry, patch: Patch) -> None:
        others = entry.others(self._instance)
        if others and (entry.before, entry.after) != (patch.sha256_before, patch.sha256_after):
            raise ReleaseError(others_message(patch.target, others))

    def _keep_original(self, entry: Entry, there: str, data: bytes) -> None:
        path = self._manifest.original(entry)
        kept = _read(path)
        if there == entry.before and (kept is None or sha256_of(kept) != entry.before):
            self._originals[path] = data

    def _sweep(self) -> Tuple[Path, ...]:
        """Originals that nobody needs any more, and what a killed run left behind."""
        needed = {self._manifest.original(entry) for entry in self._done.values()}
        found = [path for path in originals_in(self._manifest.folder) if path not in needed]
        targets = {*self._manifest.entries, *self._done}
        written = [self._manifest.path, *(self._manifest.target_path(target) for target in sorted(targets))]
        found += [path for item in written for path in leftovers(item)]
        return tuple(found)


def _read(path: Path) -> Optional[bytes]:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


# -- doing it


def patch_steps(plan: PatchPlan) -> List[Callable[[], None]]:
    """What was planned, in an order that may end anywhere.  The steps raise OSError."""
    found: List[Callable[[], None]] = []
    for rewrite in plan.rewrites:
        for path, data in sorted(rewrite.originals.items()):
            found.append(functools.partial(write_bytes, path, data, 0o644))
        if rewrite.begun is not None:
            found.append(functools.partial(write_text, rewrite.begun.path, rewrite.begun.text, 0o644))
        for change in rewrite.changes:
            found.append(functools.partial(replace_source, change.path, change.after))
        if rewrite.done is not None:
            found.append(functools.partial(_finish, rewrite.done))
        found += [functools.partial(remove_file, path) for path in rewrite.sweep]
    return found


def _finish(manifest: Manifest) -> None:
    if manifest.entries:
        write_text(manifest.path, manifest.text, 0o644)
    else:
        remove_file(manifest.path)


def replace_source(path: Path, data: bytes, now: Callable[[], float] = time.time) -> None:
    """Replace a Python source so that no compiled form of the old one is taken for it.  Raises OSError.

    Python compares a compiled file with the source's size and its time in whole seconds, or with nothing at
    all.  So the compiled files go first, and the time moves on by a second at least, which also counts for
    those that are kept elsewhere.
    """
    for compiled in compiled_files(path):
        remove_file(compiled)
    write_alike(path, data, max(int(now()), int(path.stat().st_mtime) + 1))


def compiled_files(path: Path) -> List[Path]:
    """The compiled forms of a source, of all Python versions and optimisation levels."""
    folder, start = path.parent / "__pycache__", path.stem + "."
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return sorted(folder / name for name in names if name.startswith(start) and name.endswith(".pyc"))
