# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An end of the process that does not take longer than its last step."""

from __future__ import annotations

import gc


def leave_quickly() -> None:
    """Spare the interpreter its last look through all objects for garbage.

    With what a module has imported that takes 20 ms, during which whoever waits for the module waits.
    What must be cleaned up is cleaned up by context managers, not by finalizers.
    """
    gc.freeze()
