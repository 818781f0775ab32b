# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can go wrong between this host and the routers of its server."""

from __future__ import annotations


class RouterError(Exception):
    """What was asked for was not done; the message names the router, the worker and the remedy.

    reason is one of the codes of docs/failures.md.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
