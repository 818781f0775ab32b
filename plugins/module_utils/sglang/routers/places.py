# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses of routers and of workers, and which two of them mean the same."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Optional, Tuple

HTTP, HTTPS, GRPC = "http", "https", "grpc"

_DEFAULT_PORTS = {HTTP: 80, HTTPS: 443}
_ADDRESS = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://)?"
    r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<name>[A-Za-z0-9._-]+))"
    r"(?::(?P<port>\d{1,5}))?"
    r"(?P<path>/[A-Za-z0-9._~!$&'()*+,;=:%/-]*)?"
)
# A router that tells the data-parallel ranks of a worker apart has one entry for each: URL@RANK.
_RANK = re.compile(r"@(\d+)$")
# On the router's host the two are one.
_LOOPBACK = {"localhost": "127.0.0.1"}


@dataclass(frozen=True)
class Place:
    """An address in parts.

    scheme is "" where none was given; host has no brackets; path has no slash at its end; rank is the
    data-parallel rank behind the address, None for none.
    """

    scheme: str
    host: str
    port: int
    path: str = ""
    rank: Optional[int] = None

    @property
    def key(self) -> Tuple[str, int, str]:
        """Equal for two addresses of one listener: which protocol it speaks, and its ranks, play no role."""
        return _LOOPBACK.get(self.host, self.host), self.port, self.path

    @property
    def url(self) -> str:
        """The address as a URL, without the rank; HOST:PORT where the scheme is not known."""
        host = "[%s]" % self.host if ":" in self.host else self.host
        return "%s%s:%d%s" % (self.scheme + "://" if self.scheme else "", host, self.port, self.path)

    def speaking(self, scheme: str) -> Place:
        """The same with another scheme."""
        return replace(self, scheme=scheme)


def parse_place(text: str) -> Place:
    """Take a URL, or HOST:PORT, apart.  Raises ValueError saying what is wrong with it."""
    bare = text.strip()
    rank = _RANK.search(bare)
    if rank:
        bare = bare[: rank.start()]
    found = _ADDRESS.fullmatch(bare)
    if not found:
        raise ValueError("%r is no URL such as http://10.0.0.5:30000" % _without_password(text))
    scheme = (found.group("scheme") or "").lower()
    if scheme and scheme not in (HTTP, HTTPS, GRPC):
        raise ValueError("%r has a scheme that is neither http, https nor grpc" % text)
    port = int(found.group("port") or _DEFAULT_PORTS.get(scheme, 0))
    if not 0 < port < 65536:
        raise ValueError("%r has no port, or none from 1 to 65535" % text)
    host = (found.group("v6") or found.group("name")).lower()
    path = (found.group("path") or "").rstrip("/")
    return Place(scheme, host, port, path, int(rank.group(1)) if rank else None)


def without_rank(url: str) -> str:
    """A URL as it is, but for the rank at its end."""
    return _RANK.sub("", url)


def _without_password(text: str) -> str:
    """For a message: what stands before an @ may be a password."""
    return re.sub(r"//[^/@]*@", "//…@", text)
