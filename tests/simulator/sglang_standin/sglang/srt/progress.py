# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bars with which a start shows how far it is, on standard error and without line ends, as tqdm draws them."""

from __future__ import annotations

import sys
import time
from typing import Sequence

from sglang.version import since

# Which of the two loaders is the default; where exactly that changed was not looked up.
_LOADER = "Multi-thread loading shards" if since(13) else "Loading safetensors checkpoint shards"


def load_shards(seconds: float, shards: int, visible: bool) -> None:
    """Take that long, and show each shard."""
    began = time.monotonic()
    for done in range(shards + 1):
        if visible:
            _draw(
                "{}: {:3d}% Completed | {}/{} [{}]".format(
                    _LOADER, 100 * done // shards, done, shards, _times(began, done, shards)
                )
            )
        if done < shards:
            time.sleep(seconds / shards)
    if visible:
        _end()


def capture_batches(seconds: float, sizes: Sequence[int], free_gib: float, visible: bool) -> None:
    """Take that long, and show each batch size, largest first."""
    began = time.monotonic()
    total = len(sizes)
    if visible:
        _draw("  0%|          | 0/{} [00:00<?, ?it/s]".format(total))
    for done in range(total + 1):
        size = sorted(sizes, reverse=True)[min(done, total - 1)]
        if visible:
            shown = "{:3d}%|{:<10}| {}/{} [{}]".format(
                100 * done // total, "\u2588" * (10 * done // total), done, total, _times(began, done, total)
            )
            _draw("Capturing batches (bs={} avail_mem={:.2f} GB): {}".format(size, free_gib, shown))
        if done < total:
            time.sleep(seconds / total)
    if visible:
        _end()


def _times(began: float, done: int, total: int) -> str:
    if not done:
        return "00:00<?, ?it/s"
    spent = max(time.monotonic() - began, 1e-3)
    return "{}<{}, {:5.2f}it/s".format(_clock(spent), _clock(spent / done * (total - done)), done / spent)


def _clock(seconds: float) -> str:
    return "{:02d}:{:02d}".format(*divmod(int(seconds), 60))


def _draw(text: str) -> None:
    sys.stderr.buffer.write(("\r" + text).encode())
    sys.stderr.flush()


def _end() -> None:
    sys.stderr.write("\n")
    sys.stderr.flush()
