# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""That a release was proven, and what was measured then: proof.json in the release's folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.system import bounded_json, regular_file

FORMAT = 1
FILE_NAME = "proof.json"


@dataclass(frozen=True)
class Phase:
    """One part of a start, such as the loading of weights, and how many seconds it took."""

    name: str
    seconds: float


@dataclass(frozen=True)
class Proof:
    """What was measured when a release was proven.

    proven_at is a UTC time in ISO 8601; ready_after is in seconds from the start of the process, None
    where the server had been running already; accept_length is in tokens per step, None without
    speculation; version is SGLang's, as the server reported it, "" where it did not; ranks are the IDs of
    the releases that all ranks ran, in their order, for a server on several hosts.
    """

    proven_at: str
    ready_after: Optional[float] = None
    accept_length: Optional[float] = None
    version: str = ""
    phases: Tuple[Phase, ...] = ()
    ranks: Tuple[str, ...] = ()

    def to_json(self) -> str:
        """The file's text."""
        data: Dict[str, Any] = {
            "format": FORMAT,
            "proven_at": self.proven_at,
            "ready_after": self.ready_after,
            "accept_length": self.accept_length,
            "version": self.version,
            "phases": [{"name": phase.name, "seconds": phase.seconds} for phase in self.phases],
        }
        if self.ranks:
            data["ranks"] = list(self.ranks)
        return json.dumps(data, indent=2, sort_keys=True) + "\n"


def proof_file(paths: InstancePaths, release_id: str) -> Path:
    """Where the proof of a release lies."""
    return paths.release_dir(release_id) / FILE_NAME


def read_proof(paths: InstancePaths, release_id: str) -> Optional[Proof]:
    """The proof of a release, or None where there is none that can be read."""
    try:
        data = bounded_json.loads(regular_file.read_text(proof_file(paths, release_id)))
        if data["format"] != FORMAT or not isinstance(data["proven_at"], str):
            return None
        return proof_from(data, data["proven_at"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def proof_from(values: Mapping[str, Any], proven_at: str) -> Proof:
    """A proof from measured values; unknown names do not count.  Raises ValueError naming what is wrong."""
    return Proof(
        proven_at=proven_at,
        ready_after=_number(values, "ready_after"),
        accept_length=_number(values, "accept_length"),
        version=str(values.get("version") or ""),
        phases=_phases(values.get("phases") or []),
        ranks=_ranks(values.get("ranks") or []),
    )


def proof_at(values: Mapping[str, Any], now: datetime) -> Proof:
    """A proof of this moment; now is in UTC.  Raises ValueError."""
    return proof_from(values, f"{now:%Y-%m-%dT%H:%M:%SZ}")


def _number(values: Mapping[str, Any], name: str) -> Optional[float]:
    value = values.get(name)
    # Templates turn "nothing" into an empty string.
    if value is None or value == "":
        return None
    try:
        number = None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = None
    if number is None or not 0 <= number < float("inf"):
        raise ValueError(f"{name} is {value!r}: give a number that is not negative, or nothing")
    return number


def _phases(values: Any) -> Tuple[Phase, ...]:
    if not isinstance(values, (list, tuple)):
        raise ValueError(f"phases is {values!r}: give a list of name and seconds")
    found: List[Phase] = []
    for value in values:
        if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
            raise ValueError(f"phases has {value!r}: give name and seconds")
        found.append(Phase(value["name"], _number(value, "seconds") or 0.0))
    return tuple(found)


def _ranks(values: Any) -> Tuple[str, ...]:
    if not isinstance(values, (list, tuple)) or not all(isinstance(value, str) and value for value in values):
        raise ValueError(f"ranks is {values!r}: give a list of IDs of releases")
    return tuple(values)
