# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which SGLang release to behave like: ``STANDIN_VERSION``, for example 0.5.7, 0.5.12, 0.5.17 or 0.5.23."""

from __future__ import annotations

import os
from typing import Tuple

__version__ = os.environ.get("STANDIN_VERSION") or "0.5.17"

VERSION: Tuple[int, ...] = tuple(int(part) for part in __version__.split(".")[:3])


def since(patch: int) -> bool:
    """Whether this is release 0.5.``patch`` or a later one."""
    return (0, 5, patch) <= VERSION
