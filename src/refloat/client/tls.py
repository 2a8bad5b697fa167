# SPDX-License-Identifier: Apache-2.0
"""TLS towards a cluster: verified unless the kubeconfig says otherwise.

A context is made anew when the authority or the client's certificate
changes, and only then; connections are pooled by context, so that new
requests use the new one while older ones finish on theirs.
"""

import ssl
import tempfile
from pathlib import Path

from refloat.base.clock import Clock
from refloat.client import access, errors
from refloat.client.credentials import Identity
from refloat.client.watched import Content


class Tls:
    """The present context for one cluster."""

    def __init__(self, cluster: access.Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._authority = Content(cluster.authority, clock)
        self._made_from: tuple[bytes, bytes, bytes] | None = None
        self._context: ssl.SSLContext | None = None

    def context(self, identity: Identity) -> ssl.SSLContext | None:
        """For this identity; None for a server without TLS."""
        if not self._cluster.is_encrypted:
            return None
        seen = (self._read_authority(), identity.certificate, identity.key)
        if self._context is None or seen != self._made_from:
            self._context = self._make(*seen)
            self._made_from = seen
        return self._context

    def _read_authority(self) -> bytes:
        try:
            return self._authority.read()
        except OSError as error:
            raise errors.Unreachable(
                f"certificate authority: {error.filename}: cannot be read: {error.strerror}"
            ) from error

    def _make(self, authority: bytes, certificate: bytes, key: bytes) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cadata=_ascii(authority) if authority else None)
        except (ssl.SSLError, ValueError) as error:
            raise errors.Unreachable(f"certificate authority: is not valid: {error}") from error
        # Newer Pythons refuse authorities that clusters were set up with years
        # ago, for want of extensions that Kubernetes never asked for.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.set_alpn_protocols(["http/1.1"])
        if self._cluster.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if certificate:
            _load(context, certificate, key)
        return context


def _ascii(pem: bytes) -> str:
    return pem.decode("latin-1").encode("ascii", errors="replace").decode()


def _load(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Python takes a certificate from files only: private ones, and not for long."""
    with tempfile.TemporaryDirectory(prefix="refloat-") as folder:
        files = Path(folder, "tls.crt"), Path(folder, "tls.key")
        for file, content in zip(files, (certificate, key), strict=True):
            file.touch(mode=0o600)
            file.write_bytes(content)
        try:
            context.load_cert_chain(*files, password=_no_password)
        except (ssl.SSLError, ValueError) as error:
            raise errors.Unauthorized(
                f"no credentials: client certificate and key cannot be used: {error}"
            ) from error


def _no_password() -> str:
    """Without this, OpenSSL would ask for one on the terminal."""
    raise ValueError("the key is encrypted")
