# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a server ended as its version does when it is told to.

Up to 0.5.18 SGLang ends itself by SIGKILL when its requests are done, which a shell shows as status 137;
from 0.5.19 on it ends with status 0.  Podman's client now and then ends with 127 in place of that, where the container
was removed before it asked how it had ended (seen with 4.3).
"""

from __future__ import annotations

from typing import Optional, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.launch_environment import (
    version_tuple,
)

_ENDS_WITH_ZERO = (0, 5, 19)
_SIGKILL, _SIGTERM = 128 + 9, 128 + 15
# What podman's client ends with where it does not know.
PODMAN_UNKNOWN = 127


def ends_with_zero(version: str) -> bool:
    """Whether a server of this version ends with status 0 when it is told to; before, it kills itself."""
    return version_tuple(version) >= _ENDS_WITH_ZERO


def expected_status(version: str) -> Optional[int]:
    """The exit status of an orderly end, as in a shell; None for a version that is not known."""
    if not version_tuple(version):
        return None
    return 0 if ends_with_zero(version) else _SIGKILL


def judge(
    status: Optional[int], version: str, had_to_be_killed: bool, limit: str = "", podman: bool = False
) -> Tuple[Optional[bool], str]:
    """Whether the end was an orderly one (None: that cannot be told), and a warning where it was not.

    status is as in a shell, 128 + N after signal N; None where nobody could ask for it.  limit is the option
    that cut it off, "" for grace.  podman: the status is that of podman's client.
    """
    if had_to_be_killed:
        return False, (
            "The server did not end by itself in the time it was given and was killed: requests may have been cut off. "
            "Give it more with %s, or look at its log." % (limit or "grace")
        )
    if status is None or (podman and status == PODMAN_UNKNOWN):
        return None, ""
    wanted = expected_status(version)
    if status in ((0, _SIGKILL) if wanted is None else (wanted,)):
        return True, ""
    if status == _SIGTERM:  # it had not served yet: it handles the signal only from its first request on
        return True, ""
    named = "SGLang %s" % version if version else "SGLang"
    return False, "The server ended with status %d, and %s ends with %s when it is told to stop: look at its log." % (
        status,
        named,
        "0 or 137" if wanted is None else str(wanted),
    )
