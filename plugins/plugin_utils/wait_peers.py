# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lets tasks that wait for the nodes of one server know when one of them has failed.

They run side by side in processes of the controller that share nothing but its files.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass

_LONGEST = 500  # characters


@dataclass(frozen=True)
class Peers:
    """Those that have a name in common.  folder: one that ends with this run of Ansible."""

    folder: str
    name: str

    @property
    def _path(self) -> str:
        digest = hashlib.sha256(self.name.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        return os.path.join(self.folder, "sglang-peers-%s" % digest)

    def fail(self, who: str, why: str) -> None:
        """Say that one has failed; the first one counts.  Without a file that can be written, the others go on."""
        text = json.dumps([who, why[:_LONGEST]])
        with suppress(OSError):
            descriptor = os.open(self._path + "-%d" % os.getpid(), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(text)
            # A reader sees a whole file or none, and never that of a second one.
            with suppress(FileExistsError):
                os.link(self._path + "-%d" % os.getpid(), self._path)
            os.unlink(self._path + "-%d" % os.getpid())

    def failed(self, who: str) -> str:
        """Who else has failed, and why, as a sentence; "" where nobody has."""
        try:
            with open(self._path, encoding="utf-8") as stream:
                other, why = json.load(stream)
        except (OSError, ValueError):
            return ""
        return "" if other == who else "%s: %s" % (other, why)
