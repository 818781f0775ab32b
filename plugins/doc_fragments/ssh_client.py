# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of the ssh connection plugin, for a connection plugin that goes through ssh.

They are read off the installed ansible-core, so that they are those of its own version.
"""

from __future__ import annotations

from typing import Any

import yaml
from ansible.plugins.connection import ssh

# What is said anew by the plugin, means nothing where files go through standard input and output, or would
# put a terminal between a module and its result.
_LEFT_OUT = frozenset(("host", "pipelining", "use_tty", "ssh_transfer_method"))
_FILE_TOOLS = ("sftp_", "scp_")
# The user of the connection is root in the guest; the one that logs in to the host is another thing.
_RENAMED = {"remote_user": "host_user"}


def _options() -> dict[str, Any]:
    options = yaml.safe_load(ssh.DOCUMENTATION)["options"]
    return {
        _RENAMED.get(name, name): _without_versions(option)
        for name, option in options.items()
        if name not in _LEFT_OUT and not name.startswith(_FILE_TOOLS)
    }


def _without_versions(value: Any) -> Any:
    """Versions of ansible-core would pass for versions of this collection."""
    if isinstance(value, dict):
        return {key: _without_versions(item) for key, item in value.items() if key != "version_added"}
    if isinstance(value, list):
        return [_without_versions(item) for item in value]
    if isinstance(value, str):
        for name, new_name in _RENAMED.items():
            value = value.replace("O(%s)" % name, "O(%s)" % new_name)
    return value


class ModuleDocFragment:
    """Documentation of ssh's options."""

    # With its type: a checker of ansible-test takes a plain assignment for a literal.
    DOCUMENTATION: str = yaml.safe_dump({"options": _options()})
