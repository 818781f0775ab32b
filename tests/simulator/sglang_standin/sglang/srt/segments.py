# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a server keeps in /dev/shm and /tmp, under the real names, and leaves there when it is killed.

Nothing is made unless ``STANDIN_SHM_DIR`` and ``STANDIN_TMP_DIR`` name folders to use instead of the host's own.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import shutil
import socket
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, List, Optional

_SIZE = 4096


def shared_folder() -> Optional[Path]:
    """The folder that stands for /dev/shm, or None."""
    return _folder("STANDIN_SHM_DIR")


def temporary_folder() -> Optional[Path]:
    """The folder that stands for /tmp, or None."""
    return _folder("STANDIN_TMP_DIR")


def _folder(variable: str) -> Optional[Path]:
    value = os.environ.get(variable)
    return Path(value) if value else None


class Segments:
    """The files of one process: mapped while it lives, removed when it leaves in good order."""

    def __init__(self) -> None:
        self._maps: List[Any] = []
        self._paths: List[Path] = []

    def of_main_process(self, metrics: bool) -> None:
        """The statistics that the schedulers publish, the arguments for other tokenizers, and sockets."""
        ipc = "tmp" + uuid.uuid4().hex[:8]
        digest = hashlib.blake2s(ipc.encode(), digest_size=4).hexdigest()
        self._map("sglang_loads_{}_{}.shm".format(ipc, digest))
        self._map("multi_tokenizer_args_{}".format(os.getpid()))
        self._map("psm_" + uuid.uuid4().hex[:8])
        folder = temporary_folder()
        if folder is None:
            return
        for name in (ipc, "tmp" + uuid.uuid4().hex[:8]):
            endpoint = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            endpoint.bind(str(folder / name))
            self._maps.append(endpoint)
            self._paths.append(folder / name)
        if metrics:  # Prometheus keeps the figures of several processes in files
            figures = folder / ("tmp" + uuid.uuid4().hex[:8])
            figures.mkdir()
            (figures / "counter_{}.db".format(os.getpid())).write_bytes(bytes(16))
            self._paths.append(figures)

    def of_scheduler(self) -> None:
        """Pictures on their way to the model, and what NCCL shares between ranks."""
        self._map("sgl_shm_mm_{}_{}".format(os.getpid(), uuid.uuid4().hex[:6]))
        self._map("nccl-" + uuid.uuid4().hex[:6])

    def _map(self, name: str) -> None:
        folder = shared_folder()
        if folder is None:
            return
        path = folder / name
        descriptor = os.open(str(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.ftruncate(descriptor, _SIZE)
            mapped = mmap.mmap(descriptor, _SIZE)
            mapped.madvise(mmap.MADV_DONTFORK)  # a spawned process would not have it either
            self._maps.append(mapped)
        finally:
            os.close(descriptor)
        self._paths.append(path)

    def remove(self) -> None:
        """As at an orderly end."""
        for path in self._paths:
            with suppress(FileNotFoundError):
                shutil.rmtree(str(path)) if path.is_dir() else path.unlink()
        self._paths = []


def refuse_stale() -> None:
    """Fail on statistics that a killed server left behind.

    :raises ValueError: for a file that no process has mapped; nobody removes it, so each start fails anew.
    """
    folder = shared_folder()
    for path in sorted(folder.glob("sglang_loads_*.shm")) if folder is not None else []:
        if not _is_mapped(path):
            raise ValueError("load snapshot {} has an unexpected header".format(path))


def _is_mapped(path: Path) -> bool:
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            if str(path) in maps.read_text(errors="replace"):
                return True
    return False
