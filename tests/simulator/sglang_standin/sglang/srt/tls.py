# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Serving https: which options go together, and the contexts of both sides."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    import ssl  # loading OpenSSL takes longer than most of what is imported here, and few servers need it


def refuse_odd_options(args: Any) -> None:
    """What the release refuses before it loads anything. :raises ValueError: for each of them."""
    if not hasattr(args, "ssl_certfile"):
        return  # a release without TLS
    if args.ssl_keyfile and not args.ssl_certfile:
        raise ValueError("--ssl-keyfile requires --ssl-certfile to be specified as well.")
    if args.ssl_certfile and not args.ssl_keyfile:
        raise ValueError("--ssl-certfile requires --ssl-keyfile to be specified as well.")
    if not args.ssl_certfile and (args.ssl_ca_certs or args.ssl_keyfile_password or args.enable_ssl_refresh):
        raise ValueError("--ssl-ca-certs and the like have no effect without --ssl-certfile and --ssl-keyfile.")
    for file in (args.ssl_keyfile, args.ssl_certfile, args.ssl_ca_certs):
        if file and not os.path.isfile(file):
            raise ValueError("SSL file not found: '{}'.".format(file))


def serves_https(args: Any) -> bool:
    return bool(getattr(args, "ssl_certfile", None))


def server_context(args: Any) -> ssl.SSLContext:
    """For the port. It asks clients for no certificate, whatever ssl_ca_certs is."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(args.ssl_certfile, args.ssl_keyfile, args.ssl_keyfile_password or _nobody_answers)
    return context


def client_context(args: Any) -> Optional[ssl.SSLContext]:
    """For the server's requests to itself: without ssl_ca_certs it checks nothing."""
    if not serves_https(args):
        return None
    import ssl

    context = ssl.create_default_context(cafile=args.ssl_ca_certs or None)
    if not args.ssl_ca_certs:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _nobody_answers() -> str:
    raise ValueError("Enter PEM pass phrase: nobody answers")
