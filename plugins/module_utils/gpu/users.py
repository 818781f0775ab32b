# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turns users as people write them into user ids."""

from __future__ import annotations

import pwd
from typing import Callable, FrozenSet, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Failure, GpuError


def _uid_of(name: str) -> int:
    return pwd.getpwnam(name).pw_uid


def user_ids(option: str, users: Sequence[str], uid_of: Callable[[str], int] = _uid_of) -> FrozenSet[int]:
    """The user ids behind names and numbers.

    A name that no user has is an error that names the option: a typing mistake in a filter must not
    turn into "nobody matches".  Raises GpuError.
    """
    found = set()
    for user in users:
        try:
            found.add(uid_of(user))
        except KeyError:
            if not (user.isdigit() and user.isascii()):
                raise GpuError(
                    Failure(
                        "option",
                        "%s contains %r, which is no user of this host" % (option, user),
                        "Correct the name, or give the numeric user id",
                        permanent=True,
                    )
                ) from None
            found.add(int(user))
    return frozenset(found)
