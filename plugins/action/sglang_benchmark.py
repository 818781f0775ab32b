# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the module of the same name in parts and says between them how far the benchmark is; see its options."""

from __future__ import annotations

from typing import Any, Mapping

from ansible_collections.inferops.sglang.plugins.plugin_utils.benchmark_progress_lines import progress_line
from ansible_collections.inferops.sglang.plugins.plugin_utils.parted_action import PartedAction


class ActionModule(PartedAction):
    """See parted_action."""

    module = "inferops.sglang.sglang_benchmark"

    def progress_line(self, who: str, progress: Mapping[str, Any]) -> str:
        """How far the benchmark is."""
        return progress_line(who, progress)
