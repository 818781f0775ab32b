# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Since when a release is the current one, so that it can be told whether a process was started from it.

The times of files and of processes' starts both follow the clock, and a clock that is set between the two makes
a process look older or younger than it is.  So the moment is noted in clock ticks after boot, in which the
kernel counts the starts of processes, and which nobody can set.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Optional

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.files import write_text
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.system import bounded_json, regular_file
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessInfo, ProcFs

_MODE = 0o644


@dataclass(frozen=True)
class Since:
    """A moment in two clocks: seconds since the epoch, and ticks after this boot, None where they are not known."""

    moment: float
    ticks: Optional[int] = None

    def is_after_start_of(self, process: ProcessInfo) -> bool:
        """Whether a process was started before, beyond doubt."""
        if self.ticks is not None:
            return process.start_time < self.ticks
        return process.started_before(self.moment)


def note_switch(paths: InstancePaths, release_id: str, procfs: Optional[ProcFs] = None) -> None:
    """Note that the link `current` is about to be pointed to a release.  Raises OSError.

    Before and not after: where the run is killed in between, the next one points the link, and notes it again.
    """
    procfs = procfs or ProcFs()
    noted = {"release": release_id, "boot_id": procfs.boot_id(), "ticks": procfs.ticks_now()}
    write_text(paths.current_since_file, json.dumps(noted, sort_keys=True) + "\n", _MODE)


def current_since(paths: InstancePaths, procfs: ProcFs) -> Optional[Since]:
    """Since when the current release is that; None where there is none."""
    try:
        moment = os.lstat(str(paths.current_link)).st_mtime
        release_id = os.path.basename(os.readlink(str(paths.current_link)))
    except OSError:
        return None
    return Since(moment, _noted_ticks(paths, release_id, procfs))


def _noted_ticks(paths: InstancePaths, release_id: str, procfs: ProcFs) -> Optional[int]:
    try:
        noted = bounded_json.loads(regular_file.read_text(paths.current_since_file))
        release, boot_id, ticks = noted["release"], noted["boot_id"], int(noted["ticks"])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # an earlier version of this collection made the link
    now = procfs.boot_id()
    if release != release_id or not boot_id or not now:
        return None
    # All that runs was started after this boot, and the link is older than that.
    return ticks if boot_id == now else 0
