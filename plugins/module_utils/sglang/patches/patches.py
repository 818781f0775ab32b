# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changed files of the installed SGLang: what is asked for, and whether it can be and does anything.

A target is the path of a file relative to the folder that holds the package, such as
sglang/srt/speculative/eagle_worker_v2.py.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import Check, failed, ok, warning
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.parser_probe import FoundFile
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.worker_files import (
    is_worker,
    used_workers,
)

_NAME = "patches"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TARGET = re.compile(r"sglang(?:/[A-Za-z0-9_.-]+)+")
# SGLang needs at least this Python: an older one must not judge the syntax of its files.
_OLDEST_PYTHON = (3, 10)


class PatchError(ValueError):
    """A patch that cannot be: the message names the option, the value and the remedy."""


@dataclass(frozen=True)
class Patch:
    """One file that replaces one of the installed SGLang.

    Checksums are SHA-256 in hexadecimal, of the file as released and of `content`; path is where the
    file lies, "" where that is not known yet; src is where the content came from, for messages.
    """

    target: str
    sha256_before: str
    sha256_after: str
    content: str
    path: str = ""
    src: str = ""

    def to_release(self) -> Dict[str, Any]:
        """As it stands in a release: the content lies beside it."""
        return {
            "target": self.target,
            "path": self.path,
            "sha256_before": self.sha256_before,
            "sha256_after": self.sha256_after,
        }


def sha256_of(data: bytes) -> str:
    """The checksum that patches go by."""
    return hashlib.sha256(data).hexdigest()


def patch_options() -> Dict[str, Any]:
    """The entry of an argument spec; `content` is filled in from `src` on the controller."""
    return {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "src": {"type": "str", "default": ""},
            "content": {"type": "str"},
            "target": {"type": "str", "required": True},
            "path": {"type": "str", "default": ""},
            "sha256_before": {"type": "str", "required": True},
            "sha256_after": {"type": "str", "default": ""},
        },
    }


def patches_from(values: Sequence[Mapping[str, Any]]) -> List[Patch]:
    """The patches that the option describes.  Raises PatchError for the first that cannot be."""
    found: Dict[str, Patch] = {}
    for value in values:
        patch = _patch_from(value)
        if patch.target in found:
            raise PatchError(f"patches: {patch.target} is the target of two patches: leave one.")
        found[patch.target] = patch
    return list(found.values())


def _patch_from(value: Mapping[str, Any]) -> Patch:
    target, src = str(value["target"]), str(value.get("src") or "")
    if not _TARGET.fullmatch(target) or {".", ".."} & set(target.split("/")):
        raise PatchError(
            f"patches: the target {target!r} is no file of the package: give its path from the folder that holds the "
            "package on, such as sglang/srt/speculative/eagle_worker_v2.py."
        )
    content = value.get("content")
    if content is None:
        raise PatchError(f"patches: the patch of {target} has no content: give src, a file on the controller.")
    after = sha256_of(content.encode("utf-8"))
    before = _checksum(value, "sha256_before", target)
    if not before:
        raise PatchError(f"patches: sha256_before of {target} is empty: give the checksum of the file as released.")
    wanted = _checksum(value, "sha256_after", target)
    if wanted not in ("", after):
        raise PatchError(
            f"patches: the content of {src or 'the patch'} for {target} has the checksum {after}, and sha256_after "
            f"says {wanted}: it is not the file that was meant."
        )
    if after == before:
        raise PatchError(f"patches: the content for {target} is the file as released (sha256_before): remove it.")
    return Patch(target, before, after, content, str(value.get("path") or ""), src)


def _checksum(value: Mapping[str, Any], name: str, target: str) -> str:
    checksum = str(value.get(name) or "").lower()
    if checksum and not _SHA256.fullmatch(checksum):
        raise PatchError(f"patches: {name} of {target} is {checksum!r}: give 64 hexadecimal digits, as of sha256sum.")
    return checksum


def check_patches(
    wanted: Sequence[Mapping[str, Any]],
    found: Mapping[str, FoundFile],
    current: Sequence[Mapping[str, Any]],
    effective: Mapping[str, Any],
    version: str,
    instance: str = "",
) -> List[Check]:
    """Whether patches fit the installed SGLang, and whether it would load them.

    wanted is the option; found is what lies at the targets, by target; current is what we have changed
    there ourselves (see patch_store.known_patches, or the patches of the current release); effective are
    SGLang's arguments by name, version its version, "" where it is not known.  instance is the one that
    asks: it may change its own patches, and not those of others.
    """
    try:
        patches = patches_from(wanted)
    except PatchError as error:
        return [failed(_NAME, str(error))]
    if not patches:
        return []
    checks: List[Check] = []
    for patch in patches:
        there = found.get(patch.target)
        if there is not None and not there.sha256:
            checks.append(failed(_NAME, _missing_message(patch, there, used_workers(version, effective))))
            continue
        checks += _check_target(patch, there, current, instance)
        checks += _check_use(patch, effective, version)
        checks += _check_syntax(patch, there)
    names = ", ".join(patch.target for patch in patches)
    return checks or [ok(_NAME, f"{names}: as expected, and loaded by this configuration.")]


def _missing_message(patch: Patch, there: FoundFile, used: Optional[Sequence[str]]) -> str:
    if there.problem:
        return f"patches: {there.path} cannot be read: {there.problem}."
    message = f"patches: {patch.target} does not exist in the installed SGLang ({there.path})."
    if not is_worker(patch.target) or used is None:
        return message + " Name a file of the installed version."
    return message + (f" This configuration uses {used[0]}." if used else " This configuration does not speculate.")


def _check_target(
    patch: Patch, there: Optional[FoundFile], current: Sequence[Mapping[str, Any]], instance: str
) -> List[Check]:
    if there is None:
        return [
            failed(
                _NAME,
                f"patches: it is not known where {patch.target} lies, since SGLang was not asked: a patch needs "
                "parser=auto or required, and an SGLang that can be imported.",
            )
        ]
    ours = [entry for entry in current if _same_file(entry, patch.target, there.path)]
    for entry in ours:
        others = sorted(set(entry.get("wanted_by") or {}) - {instance})
        if others and (entry["sha256_after"], entry["sha256_before"]) != (patch.sha256_after, patch.sha256_before):
            return [failed(_NAME, others_message(patch.target, others))]
    if there.sha256 == patch.sha256_before:
        return []
    known = [entry for entry in ours if entry["sha256_before"] == patch.sha256_before]
    if any(there.sha256 in (entry["sha256_after"], *(entry.get("ours") or ())) for entry in known):
        return []
    return [failed(_NAME, changed_message(patch, there.path, there.sha256))]


def _same_file(entry: Mapping[str, Any], target: str, path: str) -> bool:
    if entry["target"] != target:
        return False
    recorded = str(entry.get("path") or "")
    return not recorded or os.path.realpath(recorded) == os.path.realpath(path)


def others_message(target: str, others: Sequence[str]) -> str:
    """What to say of a file that other instances want otherwise."""
    return (
        f"patches: {target} is patched otherwise for {', '.join(others)}, which uses the same installation: give "
        "both the same patch, or give this instance a virtual environment of its own."
    )


def changed_message(patch: Patch, path: str, sha256: str) -> str:
    """What to say of a file that is neither as released nor as we left it."""
    return (
        f"patches: {path} has the checksum {sha256}, and sha256_before is {patch.sha256_before}: it is of another "
        "version, or somebody else changed it. Install the version that the patch was made for, or make the patch "
        "anew from this file and give its checksum."
    )


def _check_use(patch: Patch, effective: Mapping[str, Any], version: str) -> List[Check]:
    """Refuse a worker that this configuration does not load: the patch would do nothing, and nobody would notice."""
    if not is_worker(patch.target):
        return []
    used = used_workers(version, effective)
    if used is None:
        known = f"SGLang {version}" if version else "an unknown version of SGLang"
        return [warning(_NAME, f"patches: it is not known whether {known} loads {patch.target} in this configuration.")]
    if patch.target in used:
        return []
    algorithm = effective.get("speculative_algorithm")
    if not used:
        return [failed(_NAME, f"patches: {patch.target} is not loaded, since this configuration does not speculate.")]
    return [
        failed(
            _NAME,
            f"patches: SGLang {version} does not load {patch.target} with {_settings(algorithm, effective)}, but "
            f"{used[0]}: patch that file instead.",
        )
    ]


def _settings(algorithm: Any, effective: Mapping[str, Any]) -> str:
    overlap_off = effective.get("disable_overlap_schedule")
    if overlap_off is None:
        return str(algorithm)
    return f"{algorithm} and disable_overlap_schedule={'true' if overlap_off else 'false'}"


def _check_syntax(patch: Patch, there: Optional[FoundFile]) -> List[Check]:
    if not patch.target.endswith(".py"):
        return []
    problem = syntax_error(patch.content)
    if not problem:
        return []
    if not _can_judge(there.path if there is not None else ""):
        return [warning(_NAME, f"patches: the syntax of {patch.src or patch.target} is newer than this Python knows.")]
    return [failed(_NAME, f"patches: {patch.src or 'the content'} for {patch.target} is no valid Python: {problem}.")]


def syntax_error(content: str) -> str:
    """What is wrong with a Python source, "" where nothing is."""
    try:
        compile(content, "patch", "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except ValueError as error:  # null bytes, before Python 3.12
        return str(error)
    return ""


def _can_judge(
    original: str, read: Optional[Callable[[str], str]] = None, version: Tuple[int, ...] = sys.version_info[:2]
) -> bool:
    """Whether this Python knows the syntax that SGLang is written in.  original is the path of the released file."""
    try:
        text = (read or _read)(original)
    except (OSError, UnicodeDecodeError):
        return version >= _OLDEST_PYTHON
    return not syntax_error(text)


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as stream:
        return stream.read()
