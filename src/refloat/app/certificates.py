# SPDX-License-Identifier: Apache-2.0
"""The cluster's own certificate authority and the server's certificate.

Both are made on the first start and kept in the data directory. The server's
is made anew when it expires soon or does not name the address to serve at.
"""

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from refloat.app import files

AUTHORITY_DAYS = 3650
SERVER_DAYS = 365
RENEW_DAYS = 30  # this long before its end a certificate is replaced


@dataclass(frozen=True, slots=True)
class Paths:
    """Where the certificates lie."""

    authority: Path
    authority_key: Path
    server: Path
    server_key: Path

    @staticmethod
    def below(folder: Path) -> "Paths":
        return Paths(
            folder / "ca.crt", folder / "ca.key", folder / "server.crt", folder / "server.key"
        )


def ensure(folder: Path, address: str, now: datetime) -> Paths:
    """Have an authority and a valid certificate for this address."""
    folder.mkdir(mode=0o700, exist_ok=True)
    paths = Paths.below(folder)
    if not (paths.authority.exists() and paths.authority_key.exists()):
        _make_authority(paths, now)
        paths.server.unlink(missing_ok=True)
    if not _serves(paths, address, now):
        _make_server(paths, address, now)
    return paths


def server_context(paths: Paths) -> ssl.SSLContext:
    """TLS as a server does it."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(paths.server, paths.server_key)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks of clients may be behind
        .not_valid_after(now + timedelta(days=days))
    )


def _make_authority(paths: Paths, now: datetime) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name("refloat-ca")
    certificate = (
        _builder(subject, subject, key, now, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _save(paths.authority_key, paths.authority, key, certificate)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _make_server(paths: Paths, address: str, now: datetime) -> None:
    authority = x509.load_pem_x509_certificate(paths.authority.read_bytes())
    authority_key = serialization.load_pem_private_key(
        paths.authority_key.read_bytes(), password=None
    )
    assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    certificate = (
        _builder(_name("refloat-apiserver"), authority.subject, key, now, SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer, critical=False)
        .add_extension(_names(address), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    _save(paths.server_key, paths.server, key, certificate)


def _names(address: str) -> x509.SubjectAlternativeName:
    """Every name under which a client may call the server."""
    wanted = dict.fromkeys(["127.0.0.1", "::1", address])
    addresses = [ipaddress.ip_address(each) for each in wanted]
    return x509.SubjectAlternativeName(
        [
            x509.DNSName("localhost"),
            x509.DNSName("kubernetes.default.svc"),
            *(x509.IPAddress(each) for each in addresses),
        ]
    )


def _serves(paths: Paths, address: str, now: datetime) -> bool:
    """Is the server's certificate there, of this authority, valid, and for this address?"""
    if not (paths.server.exists() and paths.server_key.exists()):
        return False
    certificate = x509.load_pem_x509_certificate(paths.server.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    served = names.get_values_for_type(x509.IPAddress)
    return ipaddress.ip_address(
        address
    ) in served and certificate.not_valid_after_utc > now + timedelta(days=RENEW_DAYS)


def _save(
    key_path: Path,
    certificate_path: Path,
    key: ec.EllipticCurvePrivateKey,
    certificate: x509.Certificate,
) -> None:
    """Write both; the certificate last, because its presence says that all is there."""
    files.write(
        key_path,
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
    files.write(certificate_path, certificate.public_bytes(serialization.Encoding.PEM))
