# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where everything of one SGLang server lies on its host."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict

STATE_DIR = "/var/lib/sglang"
RUN_DIR = "/run/sglang"
LOG_DIR = "/var/log/sglang"
ETC_DIR = "/etc/sglang"
UNIT_DIR = "/etc/systemd/system"

SYSTEMD = "systemd"
PROCESS = "process"

# The variable that every process of a server inherits: it tells whose a process is whose parent, session and
# control group no longer do.
MARKER = "INFEROPS_SGLANG_INSTANCE"
# Beside it: two folders of releases on one host may each have an instance of the same name.
STATE_MARKER = "INFEROPS_SGLANG_STATE_DIR"

# The name becomes part of file names and of a unit's name, where other characters would need escaping.
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,47}")


class InstanceError(ValueError):
    """An instance that cannot be: the message names the option, the value and the remedy."""


def instance_options() -> Dict[str, Dict[str, Any]]:
    """The argument spec that goes with the doc fragment sglang_instance."""
    return {
        "instance": {"type": "str", "default": "main"},
        "state_dir": {"type": "path", "default": STATE_DIR},
        "manager": {"type": "str", "choices": [SYSTEMD, PROCESS], "default": SYSTEMD},
    }


@dataclass(frozen=True)
class InstancePaths:
    """All paths of one instance.  Raises InstanceError for a name or a folder that cannot be used."""

    instance: str
    state_dir: str = STATE_DIR
    run_dir: str = RUN_DIR
    log_dir: str = LOG_DIR
    etc_dir: str = ETC_DIR
    unit_dir: str = UNIT_DIR

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.instance):
            raise InstanceError(
                f"instance: {self.instance!r} is not a name: use lower-case letters, digits, '-' and '_', at most 48, "
                "beginning with a letter or a digit"
            )
        for option in ("state_dir", "run_dir", "log_dir", "etc_dir", "unit_dir"):
            value = getattr(self, option)
            if not value.startswith("/") or "\0" in value or "\n" in value:
                raise InstanceError(f"{option}: {value!r} is not an absolute path: give one that begins with '/'")

    @property
    def markers(self) -> Dict[str, str]:
        """The variables by which the processes of the instance are recognised, for the environment of its server."""
        return {MARKER: self.instance, STATE_MARKER: self.state_dir}

    # -- releases

    @property
    def base_dir(self) -> Path:
        """Folder of everything that outlives a restart of the host."""
        return Path(self.state_dir) / self.instance

    @property
    def releases_dir(self) -> Path:
        """Folder with one folder for each release."""
        return self.base_dir / "releases"

    @property
    def current_link(self) -> Path:
        """Symbolic link to the release that the manager starts."""
        return self.base_dir / "current"

    @property
    def current_since_file(self) -> Path:
        """When that link was pointed to its release, in a clock that nobody can set."""
        return self.base_dir / "current_since.json"

    @property
    def last_good_link(self) -> Path:
        """Symbolic link to the release that was proven last."""
        return self.base_dir / "last_good"

    def release_dir(self, release_id: str) -> Path:
        """Folder of one release: release.json, and what belongs to it."""
        return self.releases_dir / release_id

    # -- process manager

    @property
    def pid_file(self) -> Path:
        """File that identifies the process which sglang_process started."""
        return Path(self.run_dir) / (self.instance + ".json")

    @property
    def log_file(self) -> Path:
        """What a process started by sglang_process writes."""
        return Path(self.log_dir) / (self.instance + ".log")

    # -- systemd and secrets

    @property
    def instance_etc_dir(self) -> Path:
        """Folder of the files that the unit and the server read."""
        return Path(self.etc_dir) / self.instance

    @property
    def environment_file(self) -> Path:
        """Environment of the unit."""
        return self.instance_etc_dir / "environment"

    @property
    def secret_args_file(self) -> Path:
        """Arguments of the server that must not stand in a command line (YAML, for --config)."""
        return self.instance_etc_dir / "secrets.yaml"

    @property
    def container_name(self) -> str:
        """The container, where the server runs in one."""
        return f"sglang-{self.instance}"

    @property
    def unit_name(self) -> str:
        """The systemd unit."""
        return f"sglang-{self.instance}.service"

    @property
    def unit_file(self) -> Path:
        """File of the systemd unit."""
        return Path(self.unit_dir) / self.unit_name
