# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said on the controller about a benchmark: lines of text, no I/O."""

from __future__ import annotations

from typing import Any, Mapping

from ansible_collections.inferops.sglang.plugins.plugin_utils.start_progress_lines import duration


def progress_line(who: str, progress: Mapping[str, Any]) -> str:
    """How far a benchmark is, as one line; progress is the result of the module."""
    words = "concurrency %s" % progress.get("concurrency")
    if (progress.get("points") or 0) > 1:
        words += " (%s of %s)" % (progress.get("point"), progress.get("points"))
    if progress.get("repeat"):
        words += ", repeat %s of %s" % (progress["repeat"], progress.get("repeats"))
        words += ", %s of %s requests" % (progress.get("requests") or 0, progress.get("of"))
    else:
        words += ", the client is being started"
    parts = ["%s: %s" % (who, words), duration(progress.get("elapsed") or 0.0)]
    if progress.get("output_throughput") is not None:
        last = "last %.1f tok/s" % progress["output_throughput"]
        if progress.get("accept_length") is not None:
            last += " at %.2f tokens a step" % progress["accept_length"]
        parts.append(last)
    return ", ".join(parts)
