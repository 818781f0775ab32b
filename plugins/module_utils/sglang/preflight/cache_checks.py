# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What earlier servers left in the caches: locks that nobody will ever release, and files from the future.

A server that waits for such a lock does so for ever and without a word.  Compiled code is looked up by
time, so that of a file from the future is made anew at every start, or never again.
"""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, Sequence, Set, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import Check, ok, skipped, warning
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.jit_locks import jit_folders, stale_locks
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs

_NAME = "caches"
# Caches have many thousands of files, and their folders of locks lie near the top.
_MOST_ENTRIES = 20000
# On a file server each look takes long (seconds).
_LONGEST = 3.0
_DEEPEST = 7
# Clocks of file servers and hosts differ a little (seconds).
_TOLERANCE = 120.0
_LOCK_ENDING = ".lock"
_MOST_NAMED = 3
_SOCKETS = "sglang_weight_cache_gpu"


def cache_folders(environment: Mapping[str, str], home: str) -> List[str]:
    """Where a server with this environment and home folder keeps what it compiles and downloads."""
    general = environment.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    named = [
        environment.get("TRITON_CACHE_DIR") or os.path.join(environment.get("TRITON_HOME") or home, ".triton", "cache"),
        environment.get("TORCH_EXTENSIONS_DIR") or os.path.join(general, "torch_extensions"),
        environment.get("TORCHINDUCTOR_CACHE_DIR", ""),
        environment.get("FLASHINFER_WORKSPACE_BASE", ""),
        environment.get("SGLANG_DG_CACHE_DIR", ""),
        # Mostly weights, and the last to be walked through.
        environment.get("HF_HOME") or os.path.join(general, "huggingface"),
        general,
    ]
    return [folder for folder in dict.fromkeys(named) if folder.startswith("/")]


@dataclass
class Found:
    """What a walk through the caches found: files of locks by path, and files from the future."""

    locks: List[str] = field(default_factory=list)
    future: List[str] = field(default_factory=list)
    complete: bool = True


def look(folders: Sequence[str], now: float, clock: Callable[[], float] = time.monotonic) -> Found:
    """Walk through folders, never far and never for long: now is the time of the host's clock."""
    found = Found()
    deadline = clock() + _LONGEST
    seen: Set[str] = set()
    left = _MOST_ENTRIES
    for folder in folders:
        for entry in _walk(folder, seen):
            left -= 1
            if left < 0 or clock() > deadline:
                found.complete = False
                return found
            _note(entry, now, found)
    return found


def _walk(folder: str, seen: Set[str]) -> Iterator[os.DirEntry[str]]:
    waiting: List[Tuple[str, int]] = [(folder, 0)]
    while waiting:
        path, depth = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        try:
            entries = sorted(os.scandir(path), key=lambda entry: entry.name)
        except OSError:
            continue  # not there, or not to be seen
        for entry in entries:
            yield entry
            try:
                if depth < _DEEPEST and entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, depth + 1))
            except OSError:
                continue


def _note(entry: os.DirEntry[str], now: float, found: Found) -> None:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return
    if not stat.S_ISREG(status.st_mode):
        return
    if entry.name.endswith(_LOCK_ENDING):
        found.locks.append(entry.path)
    if status.st_mtime > now + _TOLERANCE:
        found.future.append(entry.path)


def check_locks(
    batons: Sequence[str],
    locks: Sequence[str],
    proc_root: str,
    is_ours: Callable[[int], bool],
    alive: Callable[[int], bool],
) -> List[Check]:
    """Locks that keep the next server waiting.

    batons are files whose being there is the lock, and which their maker has open; locks are files that are
    locked while they are open.  is_ours tells PIDs of the instance, which will be stopped first; alive those
    that run.
    """
    held = _open_by(batons, proc_root) if batons else set()
    stale = [path for path in batons if path not in held]
    stale += [path for path in locks if _dead_owner(path, alive)]
    checks = []
    if stale:
        checks.append(
            warning(
                _NAME,
                f"{_listed(stale)}: a lock that an ended process left behind, for which the next server would wait "
                f"without end. Remove it: rm {' '.join(stale[:_MOST_NAMED])}",
            )
        )
    for path, pid in sorted(_locked(locks, proc_root).items()):
        if not is_ours(pid):
            checks.append(
                warning(
                    _NAME,
                    f"{path} is locked by PID {pid}, which is not this instance: the next server may have to wait. "
                    "See whether that process still works.",
                )
            )
    return checks


def _listed(paths: Sequence[str]) -> str:
    more = len(paths) - _MOST_NAMED
    return ", ".join(paths[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _dead_owner(path: str, alive: Callable[[int], bool]) -> bool:
    """Whether a lock file names a process that has ended; most lock files are empty and harmless."""
    try:
        with open(path, "rb") as stream:
            first = stream.read(64).split(b"\n")[0].strip()
    except OSError:
        return False
    return first.isdigit() and 0 < int(first) < 1 << 31 and not alive(int(first))


def _open_by(paths: Iterable[str], proc_root: str) -> Set[str]:
    """Those of some files that a process has open."""
    wanted = set(paths)
    procfs = ProcFs(proc_root)
    return {path for pid in procfs.pids() for path in procfs.open_files(pid) if path in wanted}


def _locked(paths: Sequence[str], proc_root: str) -> Dict[str, int]:
    """Which of some files are locked, and by which process (of those that can be seen)."""
    if not paths:
        return {}
    try:
        text = Path(proc_root, "locks").read_text(encoding="ascii", errors="replace")
    except OSError:
        return {}
    owners: Dict[int, int] = {}
    for line in text.splitlines():
        words = line.split()
        # 1: FLOCK ADVISORY WRITE 4711 08:01:1234 0 EOF; one that waits has an arrow behind the number.
        if len(words) >= 6 and words[1] != "->" and words[4].isdigit() and words[5].count(":") == 2:
            inode = words[5].rsplit(":", 1)[1]
            if inode.isdigit() and int(words[4]) > 0:
                owners[int(inode)] = int(words[4])
    found = {}
    for path in paths if owners else ():
        try:
            inode_number = os.stat(path).st_ino
        except OSError:
            continue
        if inode_number in owners:
            found[path] = owners[inode_number]
    return found


def future_files(folders: Sequence[str], now: float) -> List[str]:
    """Files at the top of folders, such as weights, that were changed later than the host's clock says."""
    found = []
    for folder in folders:
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            try:
                if entry.stat().st_mtime > now + _TOLERANCE:
                    found.append(entry.path)
            except OSError:
                continue
    return found


def check_clock(future: Sequence[str]) -> List[Check]:
    """Files from the future mean that the host's clock is behind, or was ahead when they were written."""
    if not future:
        return []
    return [
        warning(
            "clock",
            f"{_listed(future)}: changed in the future, so this host's clock is behind, or was ahead at the time. "
            "Set the clock right (chronyc tracking, timedatectl), and then the files' times (touch).",
        )
    ]


def weight_cache_sockets(proc_root: str) -> List[str]:
    """The sockets of SGLang's weight-cache daemons that are listened on."""
    try:
        text = Path(proc_root, "net", "unix").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    found = set()
    for line in text.splitlines()[1:]:
        words = line.split(None, 7)
        # Flags has the bit of a listening socket (__SO_ACCEPTCON).
        if len(words) == 8 and os.path.basename(words[7]).startswith(_SOCKETS) and int(words[3], 16) & 0x10000:
            found.add(words[7].strip())
    return sorted(found)


def check_weight_cache(sockets: Sequence[str]) -> List[Check]:
    """A weight-cache daemon keeps weights in GPU memory on purpose, and for ever."""
    if not sockets:
        return []
    return [
        warning(
            "weight_cache",
            f"SGLang's weight-cache daemon listens on {_listed(sockets)}: it holds GPU memory by design, which no "
            "server with speculation can use. Stop the daemon (the process sglang.srt.weight_cache.daemon), or use "
            "other GPUs.",
        )
    ]


def check_caches(
    environment: Mapping[str, str],
    home: str,
    model_folders: Sequence[str],
    now: float,
    proc_root: str,
    is_ours: Callable[[int], bool],
    alive: Callable[[int], bool],
) -> List[Check]:
    """All of the above, for a server with this environment and its user's home; now is the host's clock."""
    found = look(cache_folders(environment, home), now)
    batons = stale_locks(jit_folders(environment, home), now)
    checks = check_locks(batons, found.locks, proc_root, is_ours, alive)
    checks += check_clock(future_files(model_folders, now) + found.future)
    checks += check_weight_cache(weight_cache_sockets(proc_root))
    if not found.complete:
        checks.append(skipped(_NAME, "The caches are large, or slow to read: not all of them was looked at."))
    return checks or [ok(_NAME, "No stale lock and nothing from the future in the caches.")]
