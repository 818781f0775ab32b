# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has been taken out of which router, kept on the host until it is back.

It is written before a worker is taken out, so that a run which is killed right after that loses nothing: the same
run again, or a rollback, puts the worker back as it was.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Dict, Mapping

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.files import read_text, remove_file, write_text
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.errors import RouterError

FORMAT = 1
_NAME = "routers.json"
# Labels are whatever somebody has put there.
_MODE = 0o600


@dataclass(frozen=True)
class Record:
    """One worker as one router had it: its URL there, and what makes it again."""

    worker_url: str
    attributes: Dict[str, Any] = field(default_factory=dict)


Records = Dict[str, Record]


def records_file(paths: InstancePaths) -> Path:
    """Where they are kept."""
    return paths.base_dir / _NAME


def to_dict(records: Mapping[str, Record]) -> Dict[str, Any]:
    """Records by the URL of their router, as JSON has them."""
    return {router: asdict(record) for router, record in sorted(records.items())}


def from_dict(data: Any) -> Records:
    """The reverse.  Raises ValueError saying what is wrong."""
    if not isinstance(data, Mapping):
        raise ValueError("it is no JSON object")
    records: Records = {}
    for router, record in data.items():
        url = record.get("worker_url") if isinstance(record, Mapping) else None
        attributes = record.get("attributes", {}) if isinstance(record, Mapping) else None
        if not isinstance(url, str) or not isinstance(attributes, Mapping):
            raise ValueError("what it says of %s has no worker_url or no attributes" % router)
        records[str(router)] = Record(url, dict(attributes))
    return records


class RecordFile:
    """The records of one instance on its host."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Records:
        """What is kept, nothing where there is no file.  Raises RouterError."""
        try:
            text = read_text(self.path)
            if text is None:
                return {}
            data = json.loads(text)
            if not isinstance(data, Mapping) or data.get("format") != FORMAT:
                raise ValueError("its format is not %d" % FORMAT)
            return from_dict(data.get("routers"))
        except ValueError as error:
            raise RouterError(
                "broken_record",
                "%s says with what this host's worker was taken out of its routers, and cannot be used: %s. Put the "
                "worker into its routers by hand, then remove the file." % (self.path, error),
            ) from None

    def write(self, records: Mapping[str, Record]) -> None:
        """Keep these and no others.  Raises OSError."""
        if not records:
            remove_file(self.path)
            return
        text = json.dumps({"format": FORMAT, "routers": to_dict(records)}, indent=2, sort_keys=True)
        write_text(self.path, text + "\n", _MODE)

    def add(self, records: Mapping[str, Record]) -> None:
        """Keep these, too.  Raises RouterError and OSError."""
        kept = self.read()
        if any(kept.get(router) != record for router, record in records.items()):
            self.write({**kept, **records})

    def drop(self, router: str) -> None:
        """Forget what was taken out of one router.  Raises RouterError and OSError."""
        kept = self.read()
        if kept.pop(router, None) is not None:
            self.write(kept)
