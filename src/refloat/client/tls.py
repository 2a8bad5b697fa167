# SPDX-License-Identifier: Apache-2.0
"""TLS towards a cluster, verified unless the kubeconfig switches that off.

There is a new context after each change of the authority or the client's
certificate. Connections are pooled by context, so that new requests use the new
context while older requests finish with theirs.
"""

import ssl
import tempfile
from pathlib import Path

from refloat.base.clock import Clock
from refloat.client import cluster_access, errors
from refloat.client.credentials import Identity
from refloat.client.reloading_files import Content


class Tls:
    """The present context for one cluster."""

    def __init__(self, cluster: cluster_access.ClusterEndpoint, clock: Clock) -> None:
        self._cluster = cluster
        self._authority = Content(cluster.authority, clock)
        self._made_from: tuple[bytes, bytes, bytes] | None = None
        self._context: ssl.SSLContext | None = None

    def context(self, identity: Identity) -> ssl.SSLContext | None:
        """For this identity; None for a server without TLS."""
        if not self._cluster.is_encrypted:
            return None
        try:
            authority = self._authority.read()
        except OSError as error:
            raise errors.Unreachable(
                f"certificate authority: {error.filename}: cannot be read: {error.strerror}"
            ) from error
        inputs = (authority, identity.certificate, identity.key)
        if self._context is None or inputs != self._made_from:
            self._context = self._make(*inputs)
            self._made_from = inputs
        return self._context

    def _make(self, authority: bytes, certificate: bytes, key: bytes) -> ssl.SSLContext:
        try:
            # ssl takes text in ASCII only; other characters are outside of the certificates.
            pem = authority.decode("latin-1").encode("ascii", errors="replace").decode()
            context = ssl.create_default_context(cadata=pem or None)
        except (ssl.SSLError, ValueError) as error:
            raise errors.Unreachable(f"certificate authority: is not valid: {error}") from error
        # Python 3.13 refuses authorities without certain extensions, which Kubernetes never
        # required and older clusters lack.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.set_alpn_protocols(["http/1.1"])
        if self._cluster.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if certificate:
            _load(context, certificate, key)
        return context


def _load(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Python reads a certificate only from files, so write private ones for a moment."""

    def no_password() -> str:  # without this function, OpenSSL would ask on the terminal
        raise ValueError("the key is encrypted")

    with tempfile.TemporaryDirectory(prefix="refloat-") as folder:
        files = Path(folder, "tls.crt"), Path(folder, "tls.key")
        for file, content in zip(files, (certificate, key), strict=True):
            file.touch(mode=0o600)
            file.write_bytes(content)
        try:
            context.load_cert_chain(*files, password=no_password)
        except (ssl.SSLError, ValueError) as error:
            raise errors.Unauthorized(
                f"no credentials: client certificate and key cannot be used: {error}"
            ) from error
