# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes releases and moves the links between them.

`plan_*` read and decide, `apply` writes; nothing is written before everything has been decided.  A run may
be killed between any two steps: every plan is made from what lies there, so the next run finishes the work.
"""

from __future__ import annotations

import functools
import hashlib
import secrets
import shutil
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.current_since import note_switch
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.files import (
    leftovers,
    point_link,
    remove_file,
    user_id,
    write_text,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.managers.manager_files import (
    ManagerFile,
    foreign_file,
    foreign_message,
    manager_files,
    obsolete,
    outdated,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.patches.store import (
    NO_PATCHES,
    PatchPlan,
    patch_steps,
    plan_patches,
    releases_with_patches,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import (
    FILE_NAME,
    Release,
    ReleaseError,
    read_current,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.releases.folder import (
    outdated_contents,
    patch_file,
    read_patch_texts,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.releases.listing import (
    find_release,
    is_complete,
    linked_id,
    list_releases,
    release_folders,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.releases.proof import (
    Proof,
    proof_file,
    read_proof,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.audit import CONFIGURATION, NO_AUDIT, AuditLog

# The last proven release and the one before it, which `previous` means.
_LEAST_PROVEN = 2
# What a folder is renamed to before it is removed, so that half a release is never taken for a whole one.
_DOOMED = ".removed-"


@dataclass(frozen=True)
class Plan:
    """What has to be done; nothing where all fields but the first are empty.

    release is the one that counts afterwards; new: its description has to be written; contents: files beside
    it; files: those outside, for the manager; patches: what happens to the installed SGLang; current,
    last_good: the release that the link shall name, "" to leave the link; proof: to be written for the
    release; remove: folders of old and of unfinished releases; obsolete: files that the release needs no
    more, and what a killed run left behind.
    """

    release: Release
    new: bool = False
    contents: List[ManagerFile] = field(default_factory=list)
    files: List[ManagerFile] = field(default_factory=list)
    patches: PatchPlan = NO_PATCHES
    current: str = ""
    last_good: str = ""
    proof: Optional[Proof] = None
    remove: List[Path] = field(default_factory=list)
    obsolete: List[Path] = field(default_factory=list)

    @property
    def changes(self) -> bool:
        """Whether anything has to be done."""
        links = self.current or self.last_good
        written = self.new or self.contents or self.files or self.patches.changes or self.proof is not None
        return bool(links or written or self.remove or self.obsolete)

    @property
    def restart_needed(self) -> bool:
        """Whether a server that runs already may have been started from something else."""
        return bool(self.current or self.contents or self.files or self.patches.touches_files)


def release_id(now: datetime, digest: str) -> str:
    """A name that sorts by time and tells contents apart; now is in UTC."""
    return f"{now:%Y%m%dT%H%M%SZ}-{digest[:8]}"


def plan_present(
    wanted: Release,
    paths: InstancePaths,
    now: datetime,
    replace_foreign: bool,
    patch_texts: Optional[Mapping[str, str]] = None,
) -> Plan:
    """Make a release with this content the current one.  id and created of `wanted` do not count.

    patch_texts maps the checksums of patches to their contents.  Raises ReleaseError where the current
    release is broken, a file belongs to somebody else or a patch does not fit.
    """
    current = read_current(paths)
    same = current is not None and current.content() == wanted.content()
    release = current if same and current is not None else _dated(wanted, paths, now)
    return _live(release, paths, replace_foreign, patch_texts or {}, new=not same and not _is_stored(release, paths))


def _dated(wanted: Release, paths: InstancePaths, now: datetime) -> Release:
    """A release with this content that has a name."""
    identity = release_id(now, wanted.digest())
    return replace(wanted, id=identity, created=f"{now:%Y-%m-%dT%H:%M:%SZ}")


def _is_stored(release: Release, paths: InstancePaths) -> bool:
    return is_complete(paths.release_dir(release.id))


def plan_restored(paths: InstancePaths, replace_foreign: bool, wanted: str = "") -> Plan:
    """Make an earlier release the current one again, whatever the current one is.

    wanted names it, see find_release.  Raises ReleaseError where there is none or it is broken, and
    where a file belongs to somebody else or a patch does not fit any more.
    """
    release = find_release(paths, wanted)
    return _live(release, paths, replace_foreign, read_patch_texts(release, paths), new=False)


def _live(
    release: Release, paths: InstancePaths, replace_foreign: bool, patch_texts: Mapping[str, str], new: bool
) -> Plan:
    """What makes a release the one that is started next."""
    if release.user and user_id(release.user) is None:
        raise ReleaseError(f"user {release.user!r} does not exist on this host: create it, or name another one.")
    moved = linked_id(paths.current_link) != release.id
    return Plan(
        release,
        new=new,
        contents=outdated_contents(release, paths, patch_texts),
        files=_files(release, paths, replace_foreign),
        patches=plan_patches(release, paths, patch_texts),
        current=release.id if moved else "",
        obsolete=obsolete(release, paths) + _left_behind(release, paths),
    )


def plan_adopted(release: Release, paths: InstancePaths, now: datetime) -> Plan:
    """Record a server that runs already: its release becomes the current one and the last good one.

    id and created of `release` do not count.  The files of the manager are written when the release is
    restored, and not now, while somebody else runs the server.  Raises ReleaseError where the current
    release is broken, or where the manager could not start this one.
    """
    manager_files(replace(release, id="none"), paths, release.manager)
    current = read_current(paths)
    same = current is not None and current.content() == release.content()
    adopted = current if same and current is not None else _dated(release, paths, now)
    texts = read_patch_texts(adopted, paths) if same else {}
    return Plan(
        adopted,
        new=not same and not _is_stored(adopted, paths),
        contents=outdated_contents(adopted, paths, texts),
        current="" if linked_id(paths.current_link) == adopted.id else adopted.id,
        last_good="" if linked_id(paths.last_good_link) == adopted.id else adopted.id,
    )


def plan_proven(paths: InstancePaths, keep: int, proof: Optional[Proof] = None) -> Plan:
    """Remember the current release as proven, and let go of all but the newest `keep`, proven and others each.

    proof is written where the release was not the last good one, or has no proof yet; where other ranks run
    other releases by now, only that is new.  Raises ReleaseError where there is no current release or it is
    broken.
    """
    release = read_current(paths)
    if release is None:
        raise ReleaseError(
            f"There is no release of {paths.instance} that could be proven ({paths.current_link} does not exist): "
            "deploy one first."
        )
    moved = linked_id(paths.last_good_link) != release.id
    known = None if moved else read_proof(paths, release.id)
    if known is not None and proof is not None:
        others = bool(proof.ranks) and proof.ranks != known.ranks
        proof = replace(known, ranks=proof.ranks, proven_at=proof.proven_at) if others else None
    return Plan(
        release,
        last_good=release.id if moved else "",
        proof=proof,
        remove=_old_releases(paths, keep, release.id) + _doomed(paths),
        obsolete=_left_behind(release, paths),
    )


def _old_releases(paths: InstancePaths, keep: int, proven: str) -> List[Path]:
    """Folders beyond the newest `keep` that were proven and the newest `keep` of the others, and unfinished ones.

    They are counted apart, so that a row of failures pushes nothing out that can be gone back to.  What a link or
    a patch needs stays, and so does what does not look like a release.
    """
    entries = list_releases(paths)
    good = [entry.id for entry in entries if entry.id == proven or (entry.proven and entry.release is not None)]
    others = [entry.id for entry in entries if entry.id not in good]
    kept = {proven, linked_id(paths.current_link), *releases_with_patches(paths)}
    kept.update(good[: max(keep, _LEAST_PROVEN)], others[:keep])
    return [path for path in release_folders(paths) if path.name not in kept]


def _doomed(paths: InstancePaths) -> List[Path]:
    """Folders whose removal was begun and not finished."""
    return sorted(paths.releases_dir.glob(f"{_DOOMED}*")) if paths.releases_dir.is_dir() else []


def _files(release: Release, paths: InstancePaths, replace_foreign: bool) -> List[ManagerFile]:
    files = manager_files(release, paths, release.manager)
    foreign = None if replace_foreign else foreign_file(item.path for item in files)
    if foreign is not None:
        raise ReleaseError(foreign_message(foreign))
    return outdated(files)


def _left_behind(release: Release, paths: InstancePaths) -> List[Path]:
    """Temporary files of a run that was killed while it wrote one of ours."""
    written = [
        *(paths.current_link, paths.current_since_file, paths.last_good_link),
        *(paths.secret_args_file, paths.environment_file, paths.unit_file),
    ]
    folder = paths.release_dir(release.id)
    written += [folder / FILE_NAME, proof_file(paths, release.id), *(folder / name for name in release.files)]
    written += [patch_file(folder, str(patch["sha256_after"])) for patch in release.patches]
    return [path for item in written for path in leftovers(item)]


def apply(plan: Plan, paths: InstancePaths, audit: AuditLog = NO_AUDIT, why: str = "") -> None:
    """Do what was planned, and record it.  Raises OSError."""
    todo = steps(plan, paths)
    if not todo:
        return
    target = {"instance": paths.instance, "release": plan.release.id, "state_dir": paths.state_dir}
    with audit.event(CONFIGURATION, target, recorded(plan, paths, why)) as event:
        for step in todo:
            step()
        event.outcome = "written"


def recorded(plan: Plan, paths: InstancePaths, why: str) -> Dict[str, Any]:
    """A plan for the audit log; what is not changed is left out.  Contents may be secret: they are not in it."""
    folder = paths.release_dir(plan.release.id)
    written = [*plan.contents, *plan.files]
    found: Dict[str, Any] = {
        "why": why,
        "manager": plan.release.manager,
        "previous": linked_id(paths.current_link) if plan.current else None,
        "current": plan.current,
        "last_good": plan.last_good,
        "files": [str(folder / FILE_NAME)] * plan.new + [str(item.path) for item in written],
        "patched": [
            {
                "path": str(change.path),
                "restored": not change.forward,
                "sha256": hashlib.sha256(change.after).hexdigest(),
            }
            for change in plan.patches.files
        ],
        "proof": plan.proof is not None,
        "removed": [str(path) for path in [*plan.obsolete, *plan.remove]],
    }
    return {name: value for name, value in found.items() if value}


def steps(plan: Plan, paths: InstancePaths) -> List[Callable[[], None]]:
    """What was planned, in an order that may end anywhere.

    The description of a release comes after its contents, a link after what it names, and nothing is
    removed before the links have left it.
    """
    found: List[Callable[[], None]] = [functools.partial(_write, item) for item in plan.contents]
    folder = paths.release_dir(plan.release.id)
    if plan.new:
        found.append(functools.partial(write_text, folder / FILE_NAME, plan.release.to_json(), 0o600))
    found += patch_steps(plan.patches)
    found += [functools.partial(_write, item) for item in plan.files]
    if plan.current:
        found.append(functools.partial(note_switch, paths, plan.current))
        found.append(functools.partial(point_link, paths.current_link, f"releases/{plan.current}"))
    if plan.proof is not None:
        path = proof_file(paths, plan.release.id)
        found.append(functools.partial(write_text, path, plan.proof.to_json(), 0o644))
    if plan.last_good:
        found.append(functools.partial(point_link, paths.last_good_link, f"releases/{plan.last_good}"))
    found += [functools.partial(remove_file, path) for path in plan.obsolete]
    found += [functools.partial(_remove, path) for path in plan.remove]
    return found


def _write(item: ManagerFile) -> None:
    write_text(item.path, item.text, item.mode, item.owner)


def _remove(folder: Path) -> None:
    if not folder.name.startswith(_DOOMED):
        doomed = folder.with_name(f"{_DOOMED}{folder.name}-{secrets.token_hex(4)}")
        folder.rename(doomed)
        folder = doomed
    shutil.rmtree(folder)
