# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether standard output is read by a program, which lines of ours would confuse: pure, no I/O."""

from __future__ import annotations

_CALLBACKS = ("json", "jsonl", "junit")


def is_for_programs(callback: object) -> bool:
    """Tell whether a stdout callback writes one document: what people read belongs on standard error then."""
    return str(callback).rpartition(".")[2] in _CALLBACKS
