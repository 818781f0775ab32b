# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the Python interpreter that runs a server."""

from __future__ import annotations

import os
import shutil
from typing import Tuple

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def find_interpreter(python: str, search_path: str) -> Tuple[str, str]:
    """The absolute path of an interpreter, and what is wrong with it ("" for nothing).

    A bare name is looked for in search_path (as in the variable PATH).  Links are kept as they are: a
    virtual environment is recognised by the path of its link.
    """
    if os.sep in python:
        if not python.startswith("/"):
            return python, f"python: {python} is a relative path: give an absolute one."
        if not os.path.exists(python):
            return python, f"python: {python} does not exist on this host."
        if not os.access(python, os.X_OK) or os.path.isdir(python):
            return python, f"python: {python} is not an executable file."
        return python, ""
    found = shutil.which(python, path=search_path or DEFAULT_PATH)
    if found is None:
        return python, f"python: {python!r} is not found in PATH ({search_path or DEFAULT_PATH}): give its full path."
    return os.path.abspath(found), ""
