# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A release: one configuration of a server, complete enough to start it again, and how it is read.

A release lies in STATE_DIR/INSTANCE/releases/ID/release.json.  The link `current` names the one that
the manager starts, `last_good` the one that was proven last.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Set

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import (
    REDACTED,
    redact_argv,
    redact_environment,
    secret_argument_values,
    secrets_of,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system import bounded_json, regular_file

FORMAT = 1
FILE_NAME = "release.json"


class ReleaseError(Exception):
    """A release that cannot be read; the message names the file and the remedy."""


@dataclass(frozen=True)
class Release:
    """One configuration of one instance.

    command is complete (interpreter first); stop_timeout is in seconds; created is a UTC time in
    ISO 8601; requested, effective and adjusted map SGLang's argument names to values; gpus are UUIDs.
    secret_args maps option names without dashes to values that must not stand in a command line.
    container says in which image the command runs (see container_run), {} for none; files maps names of
    further files that the server reads, kept beside release.json, to their content; patches are the
    changed files of the installed SGLang (see patches); origin is "adopted" for a release that was made
    from a server which somebody had started by hand, "" otherwise.
    """

    id: str
    created: str
    instance: str
    manager: str
    command: List[str]
    environment: Dict[str, str] = field(default_factory=dict)
    secret_args: Dict[str, str] = field(default_factory=dict)
    user: str = ""
    working_directory: str = ""
    stop_timeout: float = 300.0
    host: str = "127.0.0.1"
    port: int = 30000
    requested: Dict[str, Any] = field(default_factory=dict)
    effective: Dict[str, Any] = field(default_factory=dict)
    adjusted: Dict[str, Any] = field(default_factory=dict)
    sglang_version: str = ""
    gpus: List[str] = field(default_factory=list)
    container: Dict[str, Any] = field(default_factory=dict)
    files: Dict[str, str] = field(default_factory=dict)
    patches: List[Dict[str, Any]] = field(default_factory=list)
    origin: str = ""

    def to_dict(self) -> Dict[str, Any]:
        """What stands in the file, secrets included."""
        return {"format": FORMAT, **asdict(self)}

    def to_json(self) -> str:
        """The file's text: the same content always gives the same text."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"

    def content(self) -> Dict[str, Any]:
        """Everything that makes it this configuration: two releases with equal contents are the same."""
        return {name: value for name, value in self.to_dict().items() if name not in ("id", "created")}

    def digest(self) -> str:
        """SHA-256 of the content, in hexadecimal."""
        return hashlib.sha256(json.dumps(self.content(), sort_keys=True).encode()).hexdigest()

    def secrets(self) -> Set[str]:
        """The values that must not be shown."""
        return secrets_of(self.command, self.environment, self.secret_args)

    def api_key(self) -> Optional[str]:
        """The key of the server's API, None where it has none."""
        if "api-key" in self.secret_args:
            return self.secret_args["api-key"]
        for position, word in enumerate(self.command):
            if word == "--api-key" or word.startswith("--api-key="):
                values = secret_argument_values(self.command[position:])
                return values[0] if values else None
        return None

    def shown(self) -> Dict[str, Any]:
        """The content as it may be shown: without any secret."""
        visible = self.content()
        visible["command"] = redact_argv(self.command)
        visible["environment"] = redact_environment(self.environment)
        visible["secret_args"] = dict.fromkeys(self.secret_args, REDACTED)
        return visible


# What JSON must give for each field.
_TYPES: Dict[str, Any] = {
    "id": str,
    "created": str,
    "instance": str,
    "manager": str,
    "command": list,
    "environment": dict,
    "secret_args": dict,
    "user": str,
    "working_directory": str,
    "stop_timeout": (int, float),
    "host": str,
    "port": int,
    "requested": dict,
    "effective": dict,
    "adjusted": dict,
    "sglang_version": str,
    "gpus": list,
    "container": dict,
    "files": dict,
    "patches": list,
    "origin": str,
}
_PATCH = ("target", "path", "sha256_before", "sha256_after")
_REQUIRED = ("id", "created", "instance", "manager", "command")


def parse_release(text: str) -> Release:
    """Read a release from its JSON.  Raises ValueError saying what is wrong with the text."""
    try:
        data = bounded_json.loads(text)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(data, Mapping):
        raise ValueError("it is not a JSON object")
    if data.get("format") != FORMAT:
        raise ValueError(f"its format is {data.get('format')!r} and not {FORMAT}")
    for name in _REQUIRED:
        if name not in data:
            raise ValueError(f"{name} is missing")
    known = {item.name: data[item.name] for item in fields(Release) if item.name in data}
    for name, value in known.items():
        if not isinstance(value, _TYPES[name]) or isinstance(value, bool):
            raise ValueError(f"{name} has the wrong type: {type(value).__name__}")
    if not known["command"] or not all(isinstance(word, str) for word in known["command"]):
        raise ValueError("command is not a list of words")
    for name in ("environment", "secret_args", "files"):
        if not all(isinstance(value, str) for value in known.get(name, {}).values()):
            raise ValueError(f"{name} has a value that is no string")
    for patch in known.get("patches", []):
        if not isinstance(patch, Mapping) or not all(isinstance(patch.get(name), str) for name in _PATCH):
            raise ValueError(f"patches has an element without {', '.join(_PATCH)}")
    return Release(**known)


def read_release(folder: Path) -> Release:
    """Read the release in a folder (or behind a link to one).  Raises ReleaseError."""
    path = Path(folder) / FILE_NAME
    try:
        release = parse_release(regular_file.read_text(path))
        if release.id != path.resolve().parent.name:
            raise ValueError(f"its id {release.id!r} is not the name of its folder")
        return release
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        remedy = AS_ROOT if isinstance(error, PermissionError) else _remedy(folder)
        raise ReleaseError(f"The release {path} cannot be read: {reason}. {remedy}") from None
    except ValueError as error:
        raise ReleaseError(f"The release {path} cannot be used: {error}. {_remedy(folder)}") from None


# A release has secrets, so that its owner and root alone can read it.
AS_ROOT = "Run the task as root (become), or as the user that it belongs to."


def _remedy(folder: Path) -> str:
    what = "link" if Path(folder).is_symlink() else "folder"
    return f"Put the file back as it was, or remove the {what} {folder} and deploy anew."


def _read_link(link: Path) -> Optional[Release]:
    if not link.is_symlink() and not link.exists():
        return None
    return read_release(link)


def read_current(paths: InstancePaths) -> Optional[Release]:
    """The release that the manager starts, or None before the first one.  Raises ReleaseError."""
    return _read_link(paths.current_link)


def read_last_good(paths: InstancePaths) -> Optional[Release]:
    """The release that was proven last, or None where none was.  Raises ReleaseError."""
    return _read_link(paths.last_good_link)
