# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one part of a benchmark hands to the next, as plain data that travels over the controller.

Times are seconds of the host's boot clock: nobody can set it, and it means nothing in another boot.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional

from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity

FORMAT = 1
_NONCE = re.compile(r"[0-9a-f]{16}")


class StateError(ValueError):
    """Data that no earlier part can have returned; the message names the option and the remedy."""


@dataclass
class BenchmarkState:
    """Everything that one benchmark knows.

    points are those that are done; began is when the present one was started, None where it is not; warnings are
    those of the present one; client is what the client has said of itself.
    """

    boot: str
    release: str
    nonce: str
    identity: Optional[ProcessIdentity] = None
    speculates: bool = False
    adaptive: bool = False
    max_running_requests: Optional[int] = None
    model: str = ""
    tokenizer: str = ""
    facts: Dict[str, Any] = field(default_factory=dict)
    points: List[Dict[str, Any]] = field(default_factory=list)
    began: Optional[float] = None
    warnings: List[str] = field(default_factory=list)
    client: Optional[Dict[str, Any]] = None

    def to_dict(self) -> Dict[str, Any]:
        """As it travels."""
        identity = self.identity
        return {
            "format": FORMAT,
            "boot": self.boot,
            "release": self.release,
            "nonce": self.nonce,
            "identity": None if identity is None else [identity.pid, identity.start_time],
            "speculates": self.speculates,
            "adaptive": self.adaptive,
            "max_running_requests": self.max_running_requests,
            "model": self.model,
            "tokenizer": self.tokenizer,
            "facts": self.facts,
            "points": self.points,
            "began": self.began,
            "warnings": self.warnings,
            "client": self.client,
        }


def state_from(data: Mapping[str, Any]) -> BenchmarkState:
    """The reverse of BenchmarkState.to_dict.  Raises StateError."""
    try:
        if data["format"] != FORMAT:
            raise ValueError("its format is %r" % (data["format"],))
        nonce = str(data["nonce"])
        if not _NONCE.fullmatch(nonce):
            raise ValueError("its nonce is none")
        most = data["max_running_requests"]
        return BenchmarkState(
            boot=str(data["boot"]),
            release=str(data["release"]),
            nonce=nonce,
            identity=None if data["identity"] is None else ProcessIdentity(*[int(part) for part in data["identity"]]),
            speculates=bool(data["speculates"]),
            adaptive=bool(data["adaptive"]),
            max_running_requests=None if most is None else int(most),
            model=str(data["model"]),
            tokenizer=str(data["tokenizer"]),
            facts=dict(data["facts"]),
            points=[dict(point) for point in data["points"]],
            began=None if data["began"] is None else float(data["began"]),
            warnings=[str(warning) for warning in data["warnings"]],
            client=None if data["client"] is None else dict(data["client"]),
        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise StateError(
            "resume: it is not what an earlier part of the benchmark has returned (%s: %s): leave it out to begin anew."
            % (type(error).__name__, error)
        ) from None
