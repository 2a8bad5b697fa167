# SPDX-License-Identifier: Apache-2.0
"""Certificates for the tests of TLS."""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from refloat.app import certificates


@dataclass(frozen=True)
class Pair:
    """A certificate that signs itself, and its key, in PEM."""

    certificate: bytes
    key: bytes


@cache
def client(name: str, password: bytes = b"") -> Pair:
    """A client's certificate; with a password, the key is encrypted."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password:
        encryption = serialization.BestAvailableEncryption(password)
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
        ),
    )


def server(folder: Path, *clients: Pair) -> tuple[ssl.SSLContext, bytes]:
    """A server's TLS at the loopback that knows these clients, and its authority."""
    paths = certificates.ensure(folder, "127.0.0.1", datetime.now(UTC))
    context = certificates.server_context(paths)
    if clients:
        authorities = "".join(pair.certificate.decode() for pair in clients)
        context.load_verify_locations(cadata=authorities)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context, paths.authority.read_bytes()
