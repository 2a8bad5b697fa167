# SPDX-License-Identifier: Apache-2.0
"""Where a cluster is and as which user to use it; all file paths are absolute.

`kubeconfig` makes an `Access` from files, `in_cluster` from the files and
variables that Kubernetes gives every pod. This module opens no connection and
reads no secret: `reloading_files` reads the files later, because they change.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Source:
    """Some bytes: literal, or in a file that may change."""

    data: bytes = field(default=b"", repr=False)
    path: Path | None = None

    def __bool__(self) -> bool:
        return bool(self.data) or self.path is not None


NOTHING = Source()


@dataclass(frozen=True, slots=True)
class ClusterEndpoint:
    """An API server and how to connect."""

    server: str
    authority: Source = NOTHING
    server_name: str = ""
    insecure: bool = False
    proxy: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)
    """The cluster information for credential plugins, without the authority."""

    @property
    def is_encrypted(self) -> bool:
        return self.server.startswith("https://")


@dataclass(frozen=True, slots=True)
class Plugin:
    """A command that prints credentials."""

    command: str
    api_version: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    install_hint: str = ""
    wants_cluster: bool = False
    interactive: str = "IfAvailable"


@dataclass(frozen=True, slots=True)
class Impersonation:
    """The user and groups to act as."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class User:
    """The credentials; all optional."""

    certificate: Source = NOTHING
    key: Source = NOTHING
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    plugin: Plugin | None = None
    impersonate: Impersonation | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """A cluster, a user there, and the default namespace."""

    cluster: ClusterEndpoint
    user: User
    namespace: str = "default"


def in_cluster(environ: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> Access | None:
    """The access of the pod that this process runs in; None outside of a cluster."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    token = folder / "token"
    if not host or not port or not token.is_file():
        return None
    authority, namespace = folder / "ca.crt", folder / "namespace"
    return Access(
        ClusterEndpoint(
            f"https://{bracketed(host)}:{port}",
            authority=Source(path=authority) if authority.is_file() else NOTHING,
        ),
        User(token_file=token),
        namespace.read_text().strip() if namespace.is_file() else "default",
    )


def bracketed(host: str) -> str:
    """A host in the form for URLs."""
    try:
        return f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
    except ValueError:
        return host
