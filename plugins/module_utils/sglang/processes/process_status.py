# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of a server's main process at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class ProcessStatus:
    """What is known of the server's main process at one moment.

    pid is None where there is no main process (yet); dead says that there will be none any more, and
    detail why; exit_status is as in a shell (128 + N after signal N); replaced says that the process
    which is waited for was exchanged for another one; restarts counts how often a service manager has
    started it again by itself.
    """

    pid: Optional[int]
    dead: bool = False
    detail: str = ""
    exit_status: Optional[int] = None
    killed: bool = False
    replaced: bool = False
    restarts: int = 0
