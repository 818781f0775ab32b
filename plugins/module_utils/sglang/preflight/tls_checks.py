# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a server that is to serve https can: its key and certificate, and its own first request.

SGLang reads them only after it has loaded the model, so what is wrong with them costs minutes.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import Check, failed, ok, skipped, warning
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.command_line import configured_value
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import Settings
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.files import read_text, user_id
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import probe_host
from ansible_collections.inferops.sglang.plugins.module_utils.system.access import readable_by

if TYPE_CHECKING:
    import ssl

_NAME = "tls"
_CERTIFICATE, _KEY, _AUTHORITIES = "ssl_certfile", "ssl_keyfile", "ssl_ca_certs"
_FILES = (_CERTIFICATE, _KEY, _AUTHORITIES)
_PASSWORD = "ssl-keyfile-password"
_HANDSHAKE_ROUNDS = 10

# Where a path of the server lies on this host, None where it is not of this host.
Locate = Callable[[str], Optional[str]]
# Whether a user may read a file, None where that cannot be told.
Readable = Callable[[str, Optional[pwd.struct_passwd]], Optional[bool]]


class _Encrypted(Exception):
    """The key needs a password, and none is given."""


def tls_files(
    settings: Settings,
    secret_args: Mapping[str, str],
    fields: Mapping[str, Any],
    read: Callable[[Path], Optional[str]] = read_text,
) -> Dict[str, str]:
    """The files of a server's TLS by SGLang's names, {} for plain HTTP.  fields are what SGLang makes of the request.

    Where no parser was asked, the file of --config is read for them here.
    """
    found = {}
    for name in _FILES:
        value = fields.get(name)
        if name not in fields:
            option = name.replace("_", "-")
            value = secret_args.get(option) or configured_value(settings.extra_args, "--" + option, read)
        if value:
            found[name] = str(value)
    return found


def check_tls(
    settings: Settings,
    secret_args: Mapping[str, str],
    fields: Mapping[str, Any],
    user: str,
    locate: Locate,
    read: Callable[[Path], Optional[str]] = read_text,
    readable: Readable = readable_by,
) -> List[Check]:
    """Refuse what would end the server when it begins to listen; nothing for a server of plain HTTP.

    user is who the server runs as, "" for root or the caller.
    """
    files = tls_files(settings, secret_args, fields, read)
    if not files:
        return []
    for name, other in ((_CERTIFICATE, _KEY), (_KEY, _CERTIFICATE), (_AUTHORITIES, _CERTIFICATE)):
        if name in files and other not in files:
            return [
                failed(_NAME, f"{_option(name)} {files[name]} without {_option(other)}: add that one, or remove it.")
            ]
    places, found = _places(files, user, locate, readable)
    if found or len(places) < len(files):
        return found
    password = secret_args.get(_PASSWORD) or configured_value(settings.extra_args, "--" + _PASSWORD, read)
    return _check_contents(settings, fields, files, places, password)


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _places(
    files: Mapping[str, str], user: str, locate: Locate, readable: Readable
) -> Tuple[Dict[str, str], List[Check]]:
    """Where the files lie on this host, as far as they do, and what is wrong with them."""
    account = _account(user)
    places: Dict[str, str] = {}
    found: List[Check] = []
    for name, path in files.items():
        option = _option(name)
        if not os.path.isabs(path):
            found.append(
                failed(_NAME, f"{option} {path} is no absolute path: give one, whatever the server starts in.")
            )
            continue
        place = locate(path)
        if place is None:
            found.append(skipped(_NAME, f"{option} {path} is not a file of this host: it must be in the image."))
        elif not os.path.isfile(place):
            found.append(failed(_NAME, f"{option} {path} is no file on this host: create it, or correct the option."))
        else:
            places[name] = place
            found += _check_readable(option, place, account, user, readable)
    return places, found


def _account(user: str) -> Optional[pwd.struct_passwd]:
    """The account of a user by name or number; None for the caller, and for one that check_account refuses."""
    uid = user_id(user) if user else None
    try:
        return pwd.getpwuid(uid) if uid is not None else None
    except KeyError:
        return None


def _check_readable(
    option: str, path: str, account: Optional[pwd.struct_passwd], user: str, readable: Readable
) -> List[Check]:
    may = readable(path, account)
    who = user or "this user"
    if may:
        return []
    if may is None:
        return [
            failed(
                _NAME,
                f"{option} {path}: it cannot be told whether {who} may read it. Run as root; where you do, see whether "
                "its file system answers.",
            )
        ]
    return [
        failed(
            _NAME,
            f"{option} {path} may not be read by {who}, as whom the server runs: give that user access to the file "
            "and to the folders above it.",
        )
    ]


def _check_contents(
    settings: Settings,
    fields: Mapping[str, Any],
    files: Mapping[str, str],
    places: Mapping[str, str],
    password: Optional[str],
) -> List[Check]:
    try:
        import ssl
    except ImportError:
        return [
            failed(
                _NAME,
                f"{_option(_CERTIFICATE)}: the Python that runs this module has no ssl, so the server could not be "
                "asked whether it serves. Set ansible_python_interpreter to one that has it.",
            )
        ]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate, key = places[_CERTIFICATE], places[_KEY]
    pair = f"{_option(_CERTIFICATE)} {files[_CERTIFICATE]} and {_option(_KEY)} {files[_KEY]}"
    try:
        context.load_cert_chain(certificate, key, password if password is not None else _no_password)
    except _Encrypted:
        return [
            failed(
                _NAME,
                f"{_option(_KEY)} {files[_KEY]} is encrypted, and SGLang would ask for its password where nobody "
                f"answers: give {_PASSWORD} in secret_args.",
            )
        ]
    except (OSError, ValueError) as error:  # ssl's own errors are OSErrors
        why = f" with the {_PASSWORD} that is given" if password is not None else ""
        return [
            failed(_NAME, f"{pair} cannot be used together{why}: {error}. Give a certificate and its own key, PEM.")
        ]
    found = _check_own_request(context, settings, fields, files, places)
    refresh = fields.get("enable_ssl_refresh") or settings.extra_value("--enable-ssl-refresh")
    if refresh and password is not None:
        found.append(
            warning(
                _NAME,
                "--enable-ssl-refresh: SGLang reloads a changed key without its password, which fails, and goes on "
                "with the old certificate. Keep the key unencrypted, or restart the server for a new one.",
            )
        )
    return found or [ok(_NAME, f"The server will serve https with {files[_CERTIFICATE]}.")]


def _no_password() -> str:
    raise _Encrypted


def _check_own_request(
    context: ssl.SSLContext,
    settings: Settings,
    fields: Mapping[str, Any],
    files: Mapping[str, str],
    places: Mapping[str, str],
) -> List[Check]:
    """SGLang's warm-up goes through its own port and checks the certificate, where it has something to check with."""
    if _AUTHORITIES not in files or _flag(settings, fields, "skip_server_warmup"):
        return []
    rank = fields.get("node_rank", settings.extra_value("--node-rank"))
    if isinstance(rank, int) and rank > 0:
        return []
    name = probe_host(settings.host)
    problem = handshake_problem(context, places[_AUTHORITIES], name)
    if not problem:
        return []
    return [
        failed(
            _NAME,
            f"{_option(_AUTHORITIES)} {files[_AUTHORITIES]}: SGLang checks its own certificate with it when it asks "
            f"itself at https://{name}:{settings.port}, and would end after loading: {problem}. Give a certificate of "
            f"that authority that also names {name}, remove {_option(_AUTHORITIES)} (clients need no certificate "
            "either way), or add --skip-server-warmup.",
        )
    ]


def _flag(settings: Settings, fields: Mapping[str, Any], name: str) -> bool:
    return bool(fields[name] if name in fields else settings.extra_value(_option(name)))


def handshake_problem(server: ssl.SSLContext, authorities: str, name: str) -> str:
    """Why a client that trusts these authorities would not talk to the server under a name, "" if it would.

    The two shake hands in memory: there is no server yet.
    """
    import ssl

    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.hostname_checks_common_name = False  # as the library that SGLang asks with
    try:
        client.load_verify_locations(authorities)
    except OSError as error:
        return f"it cannot be read: {error}"
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=name)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    try:
        for _round in range(_HANDSHAKE_ROUNDS):
            if _step(ours):
                return ""
            _step(theirs)
    except ssl.SSLCertVerificationError as error:
        return error.verify_message.rstrip(".")
    except ssl.SSLError as error:
        return str(error)
    return "no agreement on how to encrypt"


def _step(side: ssl.SSLObject) -> bool:
    """Take a handshake as far as it goes now; whether it is complete."""
    import ssl

    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def files_of(settings: Settings, secret_args: Mapping[str, str]) -> Sequence[str]:
    """The files by their paths, as far as the options name them: a container has to see them."""
    return [path for path in tls_files(settings, secret_args, {}, lambda _path: None).values() if os.path.isabs(path)]
