# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The patches of a configuration, compared with the SGLang that the parser was found in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import Check
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.parser_probe import ProbeResult
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.patches.patches import (
    Patch,
    PatchError,
    check_patches,
    patches_from,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.patches.store import known_patches
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.request import Request


def targets_of(values: Sequence[Mapping[str, Any]]) -> List[str]:
    """The files to look at; none where a patch cannot be, which the check reports."""
    try:
        return [patch.target for patch in patches_from(values)]
    except PatchError:
        return []


def check_wanted_patches(request: Request, answer: Optional[ProbeResult], effective: Mapping[str, Any]) -> List[Check]:
    """Whether the patches fit and do anything; effective is what the server would run with."""
    # An image is never changed, so what lies in it is as released.
    ours = [] if request.container is not None else known_patches(request.paths.state_dir)
    return check_patches(
        request.patches,
        answer.files if answer is not None else {},
        ours,
        effective,
        answer.version if answer is not None else "",
        request.paths.instance,
    )


def located_patches(request: Request, answer: Optional[ProbeResult]) -> List[Patch]:
    """The patches with the paths that were found, by target; [] where they cannot be."""
    found = answer.files if answer is not None else {}
    try:
        patches = patches_from(request.patches)
    except PatchError:
        return []  # reported by the check
    located = [replace(patch, path=found[patch.target].path) if patch.target in found else patch for patch in patches]
    return sorted(located, key=lambda patch: patch.target)


def patches_shown(patches: Sequence[Patch]) -> List[Dict[str, Any]]:
    """As they are handed to sglang_release, which reads the contents anew."""
    return [dict(patch.to_release(), src=patch.src) for patch in patches]
