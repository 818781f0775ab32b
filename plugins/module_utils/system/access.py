# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether another user may read a file: asked of the kernel, in a child that has become that user.

Modes alone do not tell: access lists, mount options and every folder above count too.
"""

from __future__ import annotations

import os
import pwd
import select
from typing import Optional

from ansible_collections.inferops.sglang.plugins.module_utils.system.disposable import kill_and_reap, run_as_child

# A file on a network that hangs must not hang the task (seconds).
_PATIENCE = 5.0
_YES, _NO = b"y", b"n"


def readable_by(path: str, account: Optional[pwd.struct_passwd]) -> Optional[bool]:
    """Whether a user may open a file for reading; account None is the caller.

    None where it cannot be told: only root can become somebody else, and a hung file system does not answer.
    """
    caller = os.geteuid()
    if account is not None and caller not in (0, account.pw_uid):
        return None
    parent = os.getpid()
    answer, question = os.pipe()
    try:
        pid = os.fork()
        if pid == 0:
            run_as_child(parent, lambda: _try(path, account if caller == 0 else None, question), question)
        os.close(question)
        question = -1
        ready = select.select([answer], [], [], _PATIENCE)[0]
        said = os.read(answer, 1) if ready else b""
        kill_and_reap(pid, _PATIENCE)
    finally:
        for descriptor in (answer, question):
            if descriptor >= 0:
                os.close(descriptor)
    return said == _YES if said else None


def _try(path: str, account: Optional[pwd.struct_passwd], question: int) -> None:
    """Answer through the pipe; nothing where the user's place could not be taken."""
    if account is not None:
        os.initgroups(account.pw_name, account.pw_gid)
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        os.write(question, _NO)
    else:
        os.write(question, _YES)
