# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends events to systemd's journal in its native protocol.

Source: the interface description "Native Journal Protocol" of systemd: a datagram of fields, each
NAME=value and a newline, or, where the value has newlines, NAME, a newline, the length in eight bytes and
the value.  The journal itself adds who sent it (_PID, _UID, _AUDIT_LOGINUID).
"""

from __future__ import annotations

import errno
import socket
import struct
from typing import Dict, Mapping

IDENTIFIER = "inferops"
# syslog(3)
WARNING = 4
NOTICE = 5
INFO = 6
# After any other outcome somebody may have to look.
_GOOD = frozenset(["done", "terminated", "killed", "vanished", "sent", "stopped", "removed", "started", "written"])
# A field of that many bytes is left out of a datagram that is too large.
_LARGE = 1024


def priority_of(outcome: str) -> int:
    """How urgent an outcome is, as in syslog."""
    if outcome == "begun":
        return INFO
    return NOTICE if outcome in _GOOD else WARNING


def encode(fields: Mapping[str, str]) -> bytes:
    """The datagram.  Names are ours; values may be anything."""
    parts = []
    for name, value in fields.items():
        data = value.encode("utf-8", "backslashreplace").replace(b"\0", b"\\0")
        if b"\n" in data:
            parts.append(name.encode() + b"\n" + struct.pack("<Q", len(data)) + data + b"\n")
        else:
            parts.append(name.encode() + b"=" + data + b"\n")
    return b"".join(parts)


def send(fields: Mapping[str, str], path: str) -> None:
    """Send it and never wait.

    Raises OSError: ENOENT or ECONNREFUSED where there is no journal, EAGAIN where it hangs.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as sender:
        try:
            sender.sendto(encode(fields), path)
        except OSError as error:
            if error.errno != errno.EMSGSIZE:
                raise
            sender.sendto(encode(_without_large(fields)), path)


def _without_large(fields: Mapping[str, str]) -> Dict[str, str]:
    return {name: value for name, value in fields.items() if len(value) < _LARGE}
