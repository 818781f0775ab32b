# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An installed SGLang of a few files, and releases that patch it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.patches.store import patch_steps, plan_patches
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release

WORKER = "sglang/srt/speculative/eagle_worker_v2.py"
UTILS = "sglang/srt/speculative/eagle_utils.py"
ORIGINALS = {WORKER: "worker = 0\n", UTILS: "utils = 0\n"}


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


class Installation:
    """A folder that holds the package."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.reinstall()

    def reinstall(self, **changes):
        """Put all files as they are released; changes are contents of another version, by stem."""
        for target, text in ORIGINALS.items():
            path = self.path(target)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(changes.get(path.stem, text))

    def path(self, target):
        return self.root / target

    def read(self):
        return {target: self.path(target).read_text() for target in ORIGINALS}

    def patch(self, text, target=WORKER, before=None):
        """A patch as it stands in a release."""
        return {
            "target": target,
            "path": str(self.path(target)),
            "sha256_before": digest(before or ORIGINALS[target]),
            "sha256_after": digest(text),
        }


def release(instance="main", patches=(), identity="20261130T104500Z-00000000", **changes):
    fields = {
        "id": identity,
        "created": "2026-11-30T10:45:00Z",
        "instance": instance,
        "manager": "process",
        "command": ["/usr/bin/python3", "x"],
        "patches": list(patches),
    }
    return Release(**dict(fields, **changes))


def texts(*contents):
    return {digest(text): text for text in contents}


def bring(wanted, paths, *contents):
    """Plan and do; returns the plan."""
    plan = plan_patches(wanted, paths, texts(*contents))
    for step in patch_steps(plan):
        step()
    return plan
