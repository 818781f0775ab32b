# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What /metrics says that nothing else does: with how many steps a server that adapts speculates at this moment."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional

PATH = "/metrics"
# More than any server drafts: a number beyond it is none of steps or tokens.
_MOST = 10**6
_GAUGE = re.compile(
    r"^sglang:(?P<name>spec_num_steps|spec_num_draft_tokens)(?:\{[^}\n]*\})?[ \t]+(?P<value>[0-9.eE+-]{1,32})",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Tier:
    """The active one; None where it is not told.  num_steps 0 means that nothing is drafted at the moment."""

    num_steps: Optional[int] = None
    num_draft_tokens: Optional[int] = None

    def to_dict(self) -> Dict[str, Any]:
        """As modules return it."""
        return {"num_steps": self.num_steps, "num_draft_tokens": self.num_draft_tokens}


def has_tiers(info: Mapping[str, Any]) -> bool:
    """Whether a server adapts and can say so; info: its /server_info."""
    return info.get("speculative_adaptive") is True and info.get("enable_metrics") is True


def active_tier(text: str) -> Optional[Tier]:
    """Read /metrics (0.5.13 and newer): of the rank that drafts most; None where it has no such gauge."""
    largest: Dict[str, int] = {}
    for match in _GAUGE.finditer(text):
        try:
            value = float(match.group("value"))
        except ValueError:
            continue
        if 0 <= value <= _MOST:
            name = match.group("name")
            largest[name] = max(int(value), largest.get(name, 0))
    if not largest:
        return None
    return Tier(largest.get("spec_num_steps"), largest.get("spec_num_draft_tokens"))
