# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""For tests: keys and certificates of servers that serve https, made when they are needed."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional, Union

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Pair:
    """The files of a certificate and of its key."""

    certificate: Path
    key: Path

    @property
    def options(self) -> List[str]:
        """SGLang's options for it."""
        return ["--ssl-certfile", str(self.certificate), "--ssl-keyfile", str(self.key)]


def make_certificate(
    folder: Path,
    *names: str,
    stem: str = "server",
    password: str = "",
    issuer: Optional[Pair] = None,
    days: int = 30,
) -> Pair:
    """A certificate for these names and addresses, signed by the issuer or by itself.

    :param password: what the key is encrypted with, "" for not at all.
    :param days: until it expires; negative for one that has.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, stem)])
    signer, by = key, subject
    if issuer is not None:
        by = x509.load_pem_x509_certificate(issuer.certificate.read_bytes()).subject
        signer = serialization.load_pem_private_key(issuer.key.read_bytes(), None)
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=60))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([_name(name) for name in names]), critical=False)
    encryption: Union[serialization.NoEncryption, serialization.BestAvailableEncryption]
    encryption = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    folder.mkdir(parents=True, exist_ok=True)
    pair = Pair(folder / (stem + ".crt"), folder / (stem + ".key"))
    pem = serialization.Encoding.PEM
    pair.certificate.write_bytes(builder.sign(signer, hashes.SHA256()).public_bytes(pem))
    pair.key.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, encryption))
    return pair


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
