# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The matrix is a command, not a package: its files find each other beside them."""

from __future__ import annotations

import pathlib
import sys

FOLDER = str(pathlib.Path(__file__).resolve().parents[2] / "matrix")
if FOLDER not in sys.path:
    sys.path.append(FOLDER)
