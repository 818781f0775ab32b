# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copy an installed pure-Python distribution to another folder, with its metadata.

usage: copy_distribution.py NAME FOLDER

The test hosts have no way to a package registry; what they need comes from the controller's own
virtual environment.
"""

from __future__ import annotations

import shutil
import sys
from importlib import metadata
from pathlib import Path


def copy_distribution(name: str, folder: Path) -> None:
    """Copy every file of the distribution that lies in its site-packages folder."""
    for entry in metadata.files(name) or []:
        if ".." in entry.parts or "__pycache__" in entry.parts:
            continue
        target = folder / entry
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(entry.locate(), target)


if __name__ == "__main__":
    copy_distribution(sys.argv[1], Path(sys.argv[2]))
