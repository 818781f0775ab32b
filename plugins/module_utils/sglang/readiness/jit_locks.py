# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lock files of just-in-time compilers that outlived their owner.

A server that is killed while it compiles a kernel leaves the lock file of that kernel behind, and the
next start waits for ever until somebody removes it.  That holds for compilers whose lock is that the file exists
(PyTorch's extensions, aiter); others lock an open file, which the kernel releases, and keep the file.
"""

from __future__ import annotations

import glob
import os
import re
from typing import List, Mapping, Sequence

# What such a lock is named, below the folders of jit_folders.
_PATTERNS = ("lock", "lock_*", "*/lock", "*/lock_*", "*/*/lock")
_WAITS = re.compile(r"waiting for baton release at (\S+)")
# A server that waits for a lock says nothing more: only the end of its log counts (lines).
_LAST = 20
_MOST = 5


def jit_folders(environment: Mapping[str, str], home: str) -> List[str]:
    """Where the compilers of a server keep what they compile, for its environment and its user's home."""
    cache = environment.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    extensions = environment.get("TORCH_EXTENSIONS_DIR") or os.path.join(cache, "torch_extensions")
    aiter = environment.get("AITER_JIT_DIR") or os.path.join(home, ".aiter", "jit")
    return [extensions, os.path.join(aiter, "build"), os.path.join(home, ".aiter", "build")]


def stale_locks(folders: Sequence[str], started_at: float) -> List[str]:
    """Lock files that are older than the start of the server (seconds since the epoch), at most five."""
    found = set()
    for folder in folders:
        for pattern in _PATTERNS:
            for path in glob.glob(os.path.join(glob.escape(folder), pattern)):
                try:
                    if os.path.isfile(path) and os.stat(path).st_mtime < started_at:
                        found.add(path)
                except OSError:
                    continue
    return sorted(found)[:_MOST]


def waited_for(lines: Sequence[str]) -> List[str]:
    """The lock files that the end of a log says are waited for."""
    found: List[str] = []
    for line in lines[-_LAST:]:
        match = _WAITS.search(line)
        if match and match.group(1) not in found:
            found.append(match.group(1))
    return found[:_MOST]
