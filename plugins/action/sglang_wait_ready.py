# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the module of the same name in parts and says between them how far the server is; see its options."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from ansible import constants
from ansible.errors import AnsibleConnectionFailure

from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import visible
from ansible_collections.inferops.sglang.plugins.plugin_utils.parted_action import LONGEST_LINE, PartedAction
from ansible_collections.inferops.sglang.plugins.plugin_utils.start_progress_lines import progress_line
from ansible_collections.inferops.sglang.plugins.plugin_utils.wait_peers import Peers

_PEER_FAILED = "It is waited for no longer, since another node of its server has failed. %s"


class ActionModule(PartedAction):
    """Beside what it says, it looks after the other nodes of the same server."""

    module = "inferops.sglang.sglang_wait_ready"
    _peers: Optional[Peers] = None

    def progress_line(self, who: str, progress: Mapping[str, Any]) -> str:
        """How far the start is."""
        return progress_line(who, progress)

    def in_parts_all_the_same(self, arguments: Mapping[str, Any]) -> bool:
        """Who looks after others does so without a word."""
        return bool(arguments.get("peers"))

    def all_parts(self, arguments: Dict[str, Any], variables: Dict[str, Any], silent: bool) -> Dict[str, Any]:
        """Wait, and tell the others where that fails."""
        if arguments.get("peers"):
            self._peers = Peers(str(constants.DEFAULT_LOCAL_TMP), str(arguments["peers"]))
        try:
            found = super().all_parts(arguments, variables, silent)
        except AnsibleConnectionFailure as error:
            self._tell_peers("it cannot be reached: %s" % error)
            raise
        if found.get("failed") or found.get("unreachable"):
            self._tell_peers(str(found.get("msg") or "it gave no reason"))
        return found

    def given_up(self, part: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        """A failure, where another node has failed."""
        other = self._peers.failed(self.who) if self._peers is not None else ""
        return {**part, "failed": True, "reason": "peer_failed", "msg": _PEER_FAILED % other} if other else None

    def _tell_peers(self, why: str) -> None:
        if self._peers is not None:
            self._peers.fail(self.who, visible(why, LONGEST_LINE))
