# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compiling kernels at the first start: one process does it, and a file tells the others to wait.

The file alone is the lock: whoever finds it waits until it is gone, also when the one who made it was killed.
PyTorch's cache of extensions says nothing meanwhile, that of aiter does. Nothing happens unless
``TORCH_EXTENSIONS_DIR`` or ``AITER_JIT_DIR`` is set.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

logger = logging.getLogger(__name__)

_NAME = "standin_kernels"


def build_kernels(seconds: float) -> None:
    """Compile what is not yet in a cache; waits as long as somebody else does it."""
    folder = os.environ.get("TORCH_EXTENSIONS_DIR")
    if folder:
        _build(Path(folder) / _NAME / "lock", seconds, "")
    folder = os.environ.get("AITER_JIT_DIR")
    if folder:
        _build(Path(folder) / "build" / ("lock_" + _NAME), seconds, "[aiter] waiting for baton release at {}")


def _build(lock: Path, seconds: float, waiting: str) -> None:
    library = lock.with_name(_NAME + ".so")
    lock.parent.mkdir(parents=True, exist_ok=True)
    while True:
        try:
            os.close(os.open(str(lock), os.O_CREAT | os.O_EXCL))
            break
        except FileExistsError:
            if waiting:
                logger.info(waiting.format(lock))
            while lock.exists():
                time.sleep(0.02)
    try:
        if not library.exists():
            logger.info("Building extension module %s...", _NAME)
            time.sleep(seconds)
            library.touch()
        logger.info("Loading extension module %s...", _NAME)
    finally:
        lock.unlink()
