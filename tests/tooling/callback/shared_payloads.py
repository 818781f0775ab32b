# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes the many short runs of Ansible in tests cheaper: all use the payloads of modules that one of them has built.

Each run builds anew what it sends to hosts, from all that a module imports, and that is a third of its processor time.
$SHARED_PAYLOADS names a folder that is emptied whenever the sources may have changed.
"""

from __future__ import annotations

import contextlib
import gc
import os

from ansible import constants
from ansible.executor import module_common
from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    """Shows nothing."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "shared_payloads"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *arguments, **options) -> None:
        super().__init__(*arguments, **options)
        # A tenth of the time, in the workers as well, for memory that a short run does not need back.
        gc.disable()
        folder = os.environ.get("SHARED_PAYLOADS")
        # ansible-core 2.18 has no lock between runs.
        if folder and hasattr(module_common, "_locking"):
            os.makedirs(folder, exist_ok=True)
            # Before any module is built; Ansible removes the link at its end, and not what is behind it.
            with contextlib.suppress(FileExistsError):
                os.symlink(folder, os.path.join(constants.DEFAULT_LOCAL_TMP, "ansiballz_cache"))
