# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which files a process has mapped.

Source: proc(5) for the text of /proc/PID/maps; linux/fs.h for PROCMAP_QUERY (Linux 6.11), which is
asked for the shared mappings alone and costs a sixth of the text.
"""

from __future__ import annotations

import array
import errno
import os
import struct
from typing import List, Optional, Tuple

try:
    import fcntl
except ImportError:  # not Linux
    fcntl = None  # type: ignore[assignment]

_CHUNK = 1 << 16
_QUERY = 0xC0686611  # _IOWR('f', 17, struct procmap_query)
_LAYOUT = struct.Struct("<9Q4I2Q")
_SHARED, _COVERING_OR_NEXT, _FILE_BACKED = 0x08, 0x10, 0x20
_WANTED = _SHARED | _COVERING_OR_NEXT | _FILE_BACKED
_NAME_SIZE = 4096


def text_of(path: str) -> Optional[bytes]:
    """The text of a maps file; empty: there is no memory, or it is gone; None: it may not be read."""
    parts: List[bytes] = []
    try:
        handle = os.open(path, os.O_RDONLY)
        try:
            while True:
                part = os.read(handle, _CHUNK)
                if not part:
                    return b"".join(parts)
                parts.append(part)
        finally:
            os.close(handle)
    except PermissionError:
        return None
    except OSError:
        return b""


class SharedMappings:
    """Asks the kernel for the shared file mappings of processes, one answer after another.

    `supported` turns False when this kernel does not know the question.
    """

    def __init__(self) -> None:
        self.supported = fcntl is not None
        self._name = array.array("b", bytes(_NAME_SIZE))
        self._name_at = self._name.buffer_info()[0]

    def files(self, path: str) -> Optional[List[Tuple[str, int]]]:
        """Path and inode of each file behind a maps file; None: it may not be read."""
        try:
            handle = os.open(path, os.O_RDONLY)
        except PermissionError:
            return None
        except OSError:
            return []
        found: List[Tuple[str, int]] = []
        try:
            address = 0
            while True:
                query = bytearray(_LAYOUT.size)
                _LAYOUT.pack_into(
                    query, 0, _LAYOUT.size, _WANTED, address, 0, 0, 0, 0, 0, 0, 0, 0, _NAME_SIZE, 0, self._name_at, 0
                )
                fcntl.ioctl(handle, _QUERY, query, True)
                answer = _LAYOUT.unpack(query)
                found.append((os.fsdecode(self._name.tobytes()[: max(0, answer[11] - 1)]), answer[8]))
                address = answer[4]
        except OSError as exc:
            if exc.errno in (errno.ENOTTY, errno.EINVAL):
                self.supported = False
            elif isinstance(exc, PermissionError):
                return None
            return found  # ENOENT: no more; ESRCH: no memory
        finally:
            os.close(handle)
