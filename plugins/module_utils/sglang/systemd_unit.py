# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The systemd unit of a server and its environment file, as text.

Quoting follows systemd.service(5), systemd.syntax(7) and systemd.exec(5).
"""

from __future__ import annotations

import re
from typing import Mapping, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.launch_environment import version_tuple
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release

# By this line a unit is recognised as one that may be rewritten.
HEADER = "# Written by inferops.sglang.sglang_release: changes here are lost, use a drop-in (systemctl edit)."

# From this version on a server that was told to stop ends with status 0; before, it kills itself.
_ENDS_WITH_ZERO = (0, 5, 19)
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
    """A path as the value of a setting that expands specifiers and takes the rest of the line."""
    if "\n" in path:
        raise ValueError("a path in a unit cannot contain a line break")
    return path.replace("%", "%%")


def render(release: Release, paths: InstancePaths) -> str:
    """The unit of a release."""
    lines = [
        HEADER,
        "[Unit]",
        f"Description=SGLang server {release.instance}",
        "Wants=network-online.target",
        "After=network-online.target",
        "",
        "[Service]",
        "# Readiness is proven by requests to the server; systemd only runs it.",
        "Type=exec",
        f"ExecStart={quote_command(release.command)}",
        f"EnvironmentFile={quote_path(str(paths.environment_file))}",
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
        "SendSIGKILL=yes",
    ]
    if not _ends_with_zero(release.sglang_version):
        lines += [
            "# This version ends itself by SIGKILL when it was told to stop.",
            "SuccessExitStatus=137 SIGKILL",
        ]
    lines += [
        "# Loading a model takes as long as it takes.",
        "TimeoutStartSec=infinity",
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


def _seconds(value: float) -> str:
    # Milliseconds: systemd knows no exponents, and 0 would mean "no limit".
    return f"{max(1, round(value * 1000))}ms"


def _ends_with_zero(version: str) -> bool:
    return version_tuple(version) >= _ENDS_WITH_ZERO


def render_environment(environment: Mapping[str, str]) -> str:
    """The environment file: NAME="value" lines, in which only backslash, quote, dollar and backtick are special."""
    lines = [HEADER]
    for name in sorted(environment):
        value = re.sub(r'([\\"$`])', r"\\\1", environment[name])
        lines.append(f'{name}="{value}"')
    return "\n".join(lines) + "\n"
