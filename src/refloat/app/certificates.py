# SPDX-License-Identifier: Apache-2.0
"""The cluster's own certificate authority, and the certificates that it signs.

The first start makes two certificates in the data directory: the server's, and
the one by which nodes know the server. Refloat renews certificates that expire
soon, and the server's also if the certificate does not name the server's address.
A node without an authority signs its own certificate.
"""

import ipaddress
import ssl
import sys
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from refloat.app import node_tls, private_files
from refloat.base.clock import RealClock
from refloat.base.errors import UsageError

AUTHORITY_DAYS = 3650
SERVER_DAYS = 365
RENEW_DAYS = 30  # this long before its end a certificate is replaced

NODE_CLIENT = "kube-apiserver-kubelet-client"  # the API server's name for nodes, as with kubeadm


@dataclass(frozen=True, slots=True)
class Paths:
    """The files of the certificates."""

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
    """Make sure of an authority and a valid certificate for this address."""
    folder.mkdir(mode=0o700, exist_ok=True)
    paths = Paths.below(folder)
    if not (paths.authority.exists() and paths.authority_key.exists()):
        key, subject = ec.generate_private_key(ec.SECP256R1()), _name("refloat-ca")
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = (
            _builder(subject, subject, key, now, AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(identifier, critical=False)
        )
        _save(paths.authority_key, paths.authority, key, builder.sign(key, hashes.SHA256()))
        paths.server.unlink(missing_ok=True)
        (folder / f"{NODE_CLIENT}.crt").unlink(missing_ok=True)
    _read_authority(paths)
    if not (
        paths.server.exists()
        and paths.server_key.exists()
        and _names_address(paths.server, address)
        and _lasts(paths.server, now)
    ):
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        files = (paths.server_key, paths.server)
        _sign(paths, files, _name("refloat-apiserver"), now, usage, _names(address))
    return paths


def server_context(paths: Paths) -> ssl.SSLContext:
    """The TLS context of the server."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _load_pair(context, paths.server, paths.server_key)
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


def _sign(
    paths: Paths,
    into: tuple[Path, Path],
    subject: x509.Name,
    now: datetime,
    usage: x509.ExtendedKeyUsage,
    names: x509.SubjectAlternativeName | None = None,
) -> None:
    """Make a key, and a certificate that the authority signs."""
    authority, authority_key = _read_authority(paths)
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    builder = (
        _builder(subject, authority.subject, key, now, SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(usage, critical=False)
        .add_extension(issuer, critical=False)
    )
    if names is not None:
        builder = builder.add_extension(names, critical=False)
    _save(*into, key, builder.sign(authority_key, hashes.SHA256()))


def ensure_client(
    folder: Path, now: datetime, *, user: str = NODE_CLIENT, group: str = "system:masters"
) -> tuple[Path, Path]:
    """Make sure of a client's certificate, by default the API server's; returns it and its key."""
    certificate, key = folder / f"{user}.crt", folder / f"{user}.key"
    if not (key.exists() and _lasts(certificate, now)):
        names = ((NameOID.ORGANIZATION_NAME, group), (NameOID.COMMON_NAME, user))
        subject = x509.Name([x509.NameAttribute(*each) for each in names])
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        _sign(Paths.below(folder), (key, certificate), subject, now, usage)
    return certificate, key


def client_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """The TLS context of the API server for nodes, which sign their own certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _load_pair(context, certificate, key)
    return context


def _load_pair(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Load a certificate and its key; `UsageError` if they are no pair."""
    read_certificate(certificate)
    private_files.read(key, secret=True)
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        raise UsageError(
            f"{key} is not the key of {certificate.name}; "
            "remove both, and the server makes new ones"
        ) from error


def read_certificate(path: Path, advice: str = "") -> x509.Certificate:
    """The certificate in a file; `UsageError` with advice if the file has none."""
    try:
        return x509.load_pem_x509_certificate(private_files.read(path, secret=False))
    except ValueError as error:
        advice = advice or "remove it, and the server makes a new one"
        raise UsageError(f"{path} is not a certificate; {advice}") from error


def _read_authority(paths: Paths) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """The authority and its key; `UsageError` if they cannot sign."""
    advice = (
        f"put {paths.authority.name} and {paths.authority_key.name} back from a backup, or "
        "remove both for a new authority, with which clients need the new kubeconfig"
    )
    authority = read_certificate(paths.authority, advice)
    content = private_files.read(paths.authority_key, secret=True)
    try:
        key = serialization.load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UsageError(f"{paths.authority_key} is not a private key; {advice}") from error
    is_pair = key.public_key() == authority.public_key()
    if not is_pair or not isinstance(key, ec.EllipticCurvePrivateKey):
        raise UsageError(
            f"{paths.authority_key} is not the key of {paths.authority.name}; {advice}"
        )
    return authority, key


def ensure_own(folder: Path, address: str, now: datetime) -> tuple[Path, Path]:
    """Make sure of a certificate for a node without an authority; returns it and its key."""
    certificate, key_file = node_tls.paths(folder)
    if not (
        key_file.exists() and _lasts(certificate, now) and _names_address(certificate, address)
    ):
        key, subject = ec.generate_private_key(ec.SECP256R1()), _name("refloat-agent")
        builder = (
            _builder(subject, subject, key, now, SERVER_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(_names(address), critical=False)
        )
        _save(key_file, certificate, key, builder.sign(key, hashes.SHA256()))
    return certificate, key_file


def _names(address: str) -> x509.SubjectAlternativeName:
    """Every name under which a client may call the server."""
    texts = dict.fromkeys(["127.0.0.1", "::1", address])
    addresses = [ipaddress.ip_address(each) for each in texts]
    return x509.SubjectAlternativeName(
        [
            x509.DNSName("localhost"),
            x509.DNSName("kubernetes.default.svc"),
            *(x509.IPAddress(each) for each in addresses),
        ]
    )


def _names_address(certificate: Path, address: str) -> bool:
    try:
        extensions = read_certificate(certificate).extensions
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return False
    return ipaddress.ip_address(address) in names.get_values_for_type(x509.IPAddress)


def _lasts(certificate: Path, now: datetime) -> bool:
    """Whether the certificate exists and is valid for some time."""
    if not certificate.exists():
        return False
    end = read_certificate(certificate).not_valid_after_utc
    return end > now + timedelta(days=RENEW_DAYS)


def _save(
    key_path: Path,
    certificate_path: Path,
    key: ec.EllipticCurvePrivateKey,
    certificate: x509.Certificate,
) -> None:
    """Write both; the certificate last, because its presence means that both exist."""
    private_files.write(
        key_path,
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
    private_files.write(certificate_path, certificate.public_bytes(serialization.Encoding.PEM))


if __name__ == "__main__":  # for `node_tls.certify`
    try:
        ensure_own(Path(sys.argv[1]), sys.argv[2], RealClock().now())
    except UsageError as problem:
        sys.exit(f"refloat: {problem}")
