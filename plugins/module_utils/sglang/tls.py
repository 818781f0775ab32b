# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a server speaks TLS, and how it is asked then.

SGLang serves https where it has a certificate (--ssl-certfile), and plain HTTP otherwise.  It never wants a
certificate of its clients: --ssl-ca-certs is what it checks its own certificate with when it asks itself.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.command_line import configured_value
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.files import read_text
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release

if TYPE_CHECKING:
    import ssl

CERTIFICATE = "ssl_certfile"
AUTHORITIES = "ssl_ca_certs"

Read = Callable[[Path], Optional[str]]


@dataclass(frozen=True)
class Tls:
    """How a server with a certificate is asked.

    Its certificate is not checked where the server is on this host: it bears the name that clients use and
    not the loopback address that is asked, and which process answers is known from the port's listener.
    authorities is for a server on another host: the file that its chain is checked with, "" for none.
    """

    authorities: str = ""

    def context(self) -> ssl.SSLContext:
        """For the client's side of a connection.  Raises OSError, and ImportError for a Python without ssl."""
        import ssl  # takes 15 ms, and few servers need it

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if self.authorities:
            context.load_verify_locations(self.authorities)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def tls_of_release(release: Release, elsewhere: bool = False, read: Read = read_text) -> Optional[Tls]:
    """How the server of a release is asked; None for plain HTTP.  elsewhere: it is on another host."""
    if CERTIFICATE in release.effective:
        return tls_of_fields(release.effective, elsewhere)

    # Of a release that no parser has seen, the command tells.
    def given(field: str) -> Optional[str]:
        option = field.replace("_", "-")
        return release.secret_args.get(option) or configured_value(release.command, "--" + option, read)

    return tls_of_fields({name: given(name) for name in (CERTIFICATE, AUTHORITIES)}, elsewhere)


def tls_of_arguments(arguments: Sequence[str], read: Read = read_text) -> Optional[Tls]:
    """How a server of this host with these arguments is asked; None for plain HTTP."""
    return Tls() if configured_value(arguments, "--" + CERTIFICATE.replace("_", "-"), read) else None


def tls_of_fields(fields: Mapping[str, Any], elsewhere: bool = False) -> Optional[Tls]:
    """How a server is asked that runs with these fields of SGLang; None for plain HTTP."""
    if not fields.get(CERTIFICATE):
        return None
    authorities = str(fields.get(AUTHORITIES) or "")
    return Tls(authorities if elsewhere and os.path.isfile(authorities) else "")
