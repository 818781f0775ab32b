# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which node of a server that spans several hosts a release runs.

Only rank 0 serves.  The others answer /health with 200 from the start, whatever becomes of the server.
"""

from __future__ import annotations

import re
from typing import Any, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release

_OPTION = "--node-rank"
_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<name>[^\s:/\[\]]+)):(?P<port>\d{1,5})")


def node_rank_of(release: Optional[Release]) -> int:
    """The node's rank, 0 where there is one node only."""
    if release is None:
        return 0
    for fields in (release.effective, release.requested):
        rank = _number(fields.get("node_rank"))
        if rank is not None:
            return rank
    return _rank_in(release.command)


def _rank_in(command: Sequence[str]) -> int:
    for position, word in enumerate(command):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") == _OPTION:
            rank = _number(value if equals else " ".join(command[position + 1 : position + 2]))
            return rank or 0
    return 0


def _number(value: Any) -> Optional[int]:
    try:
        return None if value is None or isinstance(value, bool) else int(value)
    except (TypeError, ValueError):
        return None


def parse_address(text: str) -> Tuple[str, int]:
    """Host and port from HOST:PORT or [IPV6]:PORT.  Raises ValueError saying what is wrong."""
    found = _ADDRESS.fullmatch(text.strip())
    if not found:
        raise ValueError("%r is not HOST:PORT" % text)
    port = int(found.group("port"))
    if not 0 < port < 65536:
        raise ValueError("%d is not a port" % port)
    return found.group("v6") or found.group("name"), port
