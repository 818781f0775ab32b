# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The systemd unit of a server and its environment file, as text.

Quoting follows systemd.service(5), systemd.syntax(7) and systemd.exec(5).
"""

from __future__ import annotations

import re
from typing import List, Mapping, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.run import (
    clear_words,
    daemon_unit,
    end_words,
    run_words,
    stop_words,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.settings import (
    PODMAN,
    ContainerSettings,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.managers.exit_status import (
    PODMAN_UNKNOWN,
    ends_with_zero,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release

# By this line a unit is recognised as one that may be rewritten.
HEADER = "# Written by inferops.sglang.sglang_release: changes here are lost, use a drop-in (systemctl edit)."

# What an engine may take to stop a container beyond the time that the server gets, and to remove one (seconds).
_ENGINE_SECONDS = 30.0
_CLEARING_SECONDS = 90.0
_UNFIT_PATH = re.compile(r"[\x00-\x1f\x7f]|\A[\s~-]|[\s\\]\Z")
_PLAIN = re.compile(r"[A-Za-z0-9_./:=,+@-]+")


def is_ours(text: str) -> bool:
    """Whether a unit file was written by this module."""
    return text.splitlines()[:1] == [HEADER]


def quote_word(word: str) -> str:
    """One word of ExecStart=, safe from systemd's specifiers, variables, quotes and escapes."""
    word = word.replace("%", "%%").replace("$", "$$")
    if _PLAIN.fullmatch(word):
        return word
    return '"' + "".join(_escape(char) for char in word) + '"'


def _escape(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char in "\n\t\r" or ord(char) < 0x20 or ord(char) == 0x7F:
        return f"\\x{ord(char):02x}"
    return char


def quote_command(command: Sequence[str]) -> str:
    """The value of ExecStart=.  Raises ValueError for a program that systemd would not find.

    The first word must be an absolute path, so that no prefix is read into it; in it alone, variables
    are not expanded but its doubled dollar signs would not be halved either.
    """
    if not command[0].startswith("/") or "$" in command[0]:
        raise ValueError(f"the program {command[0]!r} must be an absolute path without a dollar sign")
    return " ".join(quote_word(word) for word in command)


def quote_path(path: str) -> str:
    """A path as the value of a setting that expands specifiers and takes the rest of the line.

    Raises ValueError for one that systemd would read otherwise.  To it a line also ends at a carriage return, and goes
    on behind a backslash: a folder that somebody named so would bring settings of its own into the unit.
    """
    if _UNFIT_PATH.search(path) is not None:
        raise ValueError(
            "a path in a unit cannot have control characters, begin with a space, '-' or '~', or end with a space or "
            f"backslash, as {path!r} does"
        )
    return path.replace("%", "%%")


def quote_assignment(name: str, value: str) -> str:
    """A value of Environment=, in which only specifiers, quotes and escapes are special."""
    return '"' + "".join(_escape(char) for char in f"{name}={value}").replace("%", "%%") + '"'


def render(release: Release, paths: InstancePaths) -> str:
    """The unit of a release.  Raises ValueError where systemd or an engine cannot be told something of it."""
    settings = ContainerSettings.from_dict(release.container) if release.container else None
    lines = [
        HEADER,
        "[Unit]",
        f"Description=SGLang server {release.instance}",
        "Wants=network-online.target",
        "After=network-online.target",
        *(_needs(settings) if settings else []),
        "",
        "[Service]",
        "# Readiness is proven by requests to the server; systemd only runs it.",
        "Type=exec",
        *(_container(settings, release, paths) if settings else _plain(release, paths)),
        "SendSIGKILL=yes",
        "# A server that is started again and again hides why it died, and takes GPUs that are being freed.",
        "Restart=no",
        "LimitMEMLOCK=infinity",
        "LimitNOFILE=1048576",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
        "",
    ]
    return "\n".join(lines)


def _plain(release: Release, paths: InstancePaths) -> List[str]:
    """A server from an environment on the host: it is the main process of the unit."""
    lines = [
        f"ExecStart={quote_command(release.command)}",
        f"EnvironmentFile={quote_path(str(paths.environment_file))}",
        *(f"Environment={quote_assignment(name, value)}" for name, value in sorted(paths.markers.items())),
    ]
    if release.user:
        lines.append(f"User={quote_path(release.user)}")
    if release.working_directory:
        lines.append(f"WorkingDirectory={quote_path(release.working_directory)}")
    lines += [
        "# The main process lets its workers finish their requests: it alone gets the first signal.",
        "KillMode=mixed",
        "KillSignal=SIGTERM",
        f"TimeoutStopSec={_seconds(release.stop_timeout)}",
        "# Loading a model takes as long as it takes.",
        "TimeoutStartSec=infinity",
    ]
    if not ends_with_zero(release.sglang_version):
        lines += [
            "# This version ends itself by SIGKILL when it was told to stop.",
            "SuccessExitStatus=137 SIGKILL",
        ]
    return lines


def _needs(settings: ContainerSettings) -> List[str]:
    """The unit of an engine that has a daemon: stopped after ours, and not without it."""
    daemon = daemon_unit(settings)
    return [f"Requires={daemon}", f"After={daemon}"] if daemon else []


def _container(settings: ContainerSettings, release: Release, paths: InstancePaths) -> List[str]:
    """A server in a container: the engine's client is the main process, and stopping goes through the engine."""
    lines = [
        "# What a loss of power left of this instance, and nothing that is not ours.",
        f"ExecStartPre=-{quote_command(clear_words(settings, paths))}",
        f"ExecStart={quote_command(run_words(settings, release, paths))}",
        f"EnvironmentFile={quote_path(str(paths.environment_file))}",
        f"ExecStop=-{quote_command(stop_words(settings, paths, release.stop_timeout))}",
        "# Where the client was killed: the container may outlive it, or the engine believe that it does.",
        f"ExecStopPost=-{quote_command(end_words(settings, paths, release.stop_timeout))}",
    ]
    if settings.engine == PODMAN:
        lines += [
            "# Podman makes control groups of its own below the unit's.",
            "Delegate=yes",
        ]
    statuses = "143" if ends_with_zero(release.sglang_version) else "137 143"
    if settings.engine == PODMAN:
        statuses = f"{PODMAN_UNKNOWN} {statuses}"
    return [
        *lines,
        "KillMode=mixed",
        "KillSignal=SIGTERM",
        "# Longer than the engine waits before it kills.",
        f"TimeoutStopSec={_seconds(release.stop_timeout + _ENGINE_SECONDS)}",
        "# The server's own time does not count: the client has been started when the engine is asked.",
        f"TimeoutStartSec={_seconds(_CLEARING_SECONDS)}",
        "# Ended by SIGTERM before it had a handler for it, or as its version ends; podman may not know how it ended.",
        f"SuccessExitStatus={statuses}",
    ]


def _seconds(value: float) -> str:
    # Milliseconds: systemd knows no exponents, and 0 would mean "no limit".
    return f"{max(1, round(value * 1000))}ms"


def render_environment(environment: Mapping[str, str]) -> str:
    """The environment file: NAME="value" lines, in which only backslash, quote, dollar and backtick are special."""
    lines = [HEADER]
    for name in sorted(environment):
        value = re.sub(r'([\\"$`])', r"\\\1", environment[name])
        lines.append(f'{name}="{value}"')
    return "\n".join(lines) + "\n"
