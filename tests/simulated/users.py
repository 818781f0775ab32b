# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes of another user."""

from __future__ import annotations

import os


def as_user(uid, group=None):
    """What a child of root does to become this user: Popen's `preexec_fn`, as its own `user` needs Python 3.9.

    group is to be its only group; without one it keeps root's.
    """

    def become():
        if group is not None:
            os.setgroups([])
            os.setgid(group)
        os.setuid(uid)

    return become
