# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether anybody still waits for the answer of this process."""

from __future__ import annotations

import select
import sys

_GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL


def somebody_listens() -> bool:
    """False once the reader of the standard output has gone, as when a connection has ended.

    sshd closes its side then, and sends a command without a terminal no signal.
    """
    try:
        answer = sys.__stdout__.fileno() if sys.__stdout__ is not None else None
    except (OSError, ValueError):
        answer = None
    if answer is None:
        return True  # there is none that could be asked about
    poll = select.poll()
    poll.register(answer, select.POLLERR)
    return not any(event & _GONE for _descriptor, event in poll.poll(0))
