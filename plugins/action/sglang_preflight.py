# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads patches on the controller for the module of the same name, which has the options."""

from __future__ import annotations

from ansible_collections.inferops.sglang.plugins.plugin_utils.patch_action import PatchAction


class ActionModule(PatchAction):
    """Runs inferops.sglang.sglang_preflight on the host."""

    module = "inferops.sglang.sglang_preflight"
