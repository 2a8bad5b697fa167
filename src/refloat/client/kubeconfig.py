# SPDX-License-Identifier: Apache-2.0
"""Reads kubeconfig files as kubectl does, and merges them.

The first file that names a cluster, a user, a context or the current context
wins; entries are not mixed. A relative path counts from the file that contains
the path. An error comes before the first call, and names file and field. No
message contains a secret.
"""

import base64
import binascii
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from refloat.api import goyaml
from refloat.client import cluster_access
from refloat.client.errors import KubeconfigError

PLUGIN_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
INTERACTIVE_MODES = ("Never", "IfAvailable", "Always")
PROXY_SCHEMES = ("http", "https")

# The cluster's extension for credential plugins.
_PLUGIN_EXTENSION = "client.authentication.k8s.io/exec"

T = TypeVar("T")


class _Variable(msgspec.Struct, frozen=True):
    name: str
    value: str = ""


class _Exec(msgspec.Struct, rename="camel", frozen=True):
    command: str | None = None
    api_version: str | None = None
    args: list[str] | None = None
    env: list[_Variable] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool | None = None
    interactive_mode: str | None = None


class _Extension(msgspec.Struct, frozen=True):
    name: str
    extension: Any = None


class _Cluster(msgspec.Struct, rename="kebab", frozen=True):
    server: str | None = None
    tls_server_name: str | None = None
    insecure_skip_tls_verify: bool | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    proxy_url: str | None = None
    disable_compression: bool | None = None
    extensions: list[_Extension] | None = None


class _User(msgspec.Struct, rename="kebab", frozen=True):
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(default=None, name="tokenFile")
    as_: str | None = msgspec.field(default=None, name="as")
    as_uid: str | None = None
    as_groups: list[str] | None = None
    as_user_extra: dict[str, list[str] | None] | None = None
    username: str | None = None
    password: str | None = None
    auth_provider: Any = None
    exec: _Exec | None = None


class _Context(msgspec.Struct, frozen=True):
    cluster: str | None = None
    user: str | None = None
    namespace: str | None = None


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: _Cluster | None = None


class _NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: _User | None = None


class _NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: _Context | None = None


class _Document(msgspec.Struct, rename="kebab", frozen=True):
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str | None = None


class _Entry(msgspec.Struct, frozen=True):
    """A named cluster, user or context, and its file, for relative paths."""

    name: str
    value: Any
    file: Path

    def path(self, text: str | None) -> Path | None:
        return Path(os.path.abspath(self.file.parent / text)) if text else None  # noqa: PTH100

    def wrong(self, problem: str) -> KubeconfigError:
        return KubeconfigError(f"{self.file}: {self.name}: {problem}")

    def source(self, field: str) -> cluster_access.Source:
        """`field-data` if it is there, else the file that `field` names."""
        text = getattr(self.value, f"{field}_data")
        if not text:
            return cluster_access.Source(path=self.path(getattr(self.value, field)))
        try:
            data = base64.b64decode("".join(text.split()), validate=True)
        except binascii.Error as error:
            name = f"{field}_data".replace("_", "-")
            raise self.wrong(f"{name}: is not base64: {error}") from error
        return cluster_access.Source(data=data)


class _Merged:
    """The entries of several files."""

    def __init__(self, documents: Iterable[tuple[Path, _Document]]) -> None:
        self.clusters: dict[str, _Entry] = {}
        self.users: dict[str, _Entry] = {}
        self.contexts: dict[str, _Entry] = {}
        self.current = ""
        for file, document in documents:
            _add(self.clusters, document.clusters, file, "cluster", _Cluster)
            _add(self.users, document.users, file, "user", _User)
            _add(self.contexts, document.contexts, file, "context", _Context)
            self.current = self.current or document.current_context or ""


def _add(
    into: dict[str, _Entry],
    entries: list[Any] | None,
    file: Path,
    what: str,
    empty: Callable[[], T],
) -> None:
    names: set[str] = set()
    for each in entries or ():
        if each.name in names:
            raise KubeconfigError(f"{file}: two entries in {what}s are named {each.name!r}")
        names.add(each.name)
        value = getattr(each, what) or empty()
        into.setdefault(each.name, _Entry(f"{what} {each.name!r}", value, file))


def find(
    path: Path | None = None,
    *,
    context: str = "",
    environ: Mapping[str, str] = os.environ,
    service_account: Path = cluster_access.SERVICE_ACCOUNT,
) -> cluster_access.Access:
    """The access in the named file, in KUBECONFIG, of this pod, or in ~/.kube/config."""
    if path is not None:
        return load([path], context=context)
    if files := _environ_files(environ):
        return load(files, context=context, may_miss=True)
    if not context and (own := cluster_access.in_cluster(environ, service_account)) is not None:
        return own
    return load([_home_file(environ)], context=context)


def credential_files(
    path: Path | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = cluster_access.SERVICE_ACCOUNT,
) -> list[Path]:
    """Where `find` looks for credentials, for a process that hides these files from others."""
    if path is not None:
        return [path.absolute()]
    files = _environ_files(environ) or [service_account, _home_file(environ)]
    return [file.absolute() for file in files]


def _environ_files(environ: Mapping[str, str]) -> list[Path]:
    names = environ.get("KUBECONFIG", "").split(os.pathsep)
    return list(dict.fromkeys(Path(name) for name in names if name))


def _home_file(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or Path.home()) / ".kube" / "config"


def load(files: list[Path], *, context: str = "", may_miss: bool = False) -> cluster_access.Access:
    """The access that these files define for a context, or for the current context."""
    documents = [(file, _read(file)) for file in files if not may_miss or file.exists()]
    where = ", ".join(str(file) for file in files)
    if not documents:
        raise KubeconfigError(f"{where}: no such file")
    return _access(_Merged(documents), context, where)


def _read(file: Path) -> _Document:
    try:
        content, _ = goyaml.parse(file.read_bytes())
        return msgspec.convert(content if content is not None else {}, _Document)
    except OSError as error:
        raise KubeconfigError(f"{file}: cannot be read: {error.strerror}") from error
    except (ValueError, msgspec.ValidationError) as error:
        raise KubeconfigError(f"{file}: {error}") from error


def _access(merged: _Merged, name: str, where: str) -> cluster_access.Access:
    name = name or merged.current
    if not name:
        raise KubeconfigError(f"{where}: there is no current-context; name one with --context")
    context = _named(merged.contexts, name, f"{where}: context")
    value: _Context = context.value
    if not value.cluster:
        raise context.wrong("names no cluster")
    cluster = _named(merged.clusters, value.cluster, f"{context.file}: {context.name}: cluster")
    user = _Entry("no user", _User(), context.file)
    if value.user:
        user = _named(merged.users, value.user, f"{context.file}: {context.name}: user")
    return cluster_access.Access(_cluster(cluster), _user(user), value.namespace or "default")


def _named(entries: dict[str, _Entry], name: str, what: str) -> _Entry:
    if name not in entries:
        names = ", ".join(sorted(entries)) or "none"
        raise KubeconfigError(f"{what} {name!r} does not exist; there are: {names}")
    return entries[name]


def _cluster(entry: _Entry) -> cluster_access.ClusterEndpoint:
    value: _Cluster = entry.value
    authority = entry.source("certificate_authority")
    insecure = bool(value.insecure_skip_tls_verify)
    if insecure and authority:
        raise entry.wrong("insecure-skip-tls-verify excludes a certificate-authority")
    # For credential plugins, in the order of Kubernetes.
    info: dict[str, Any] = {
        "server": value.server,
        "tls-server-name": value.tls_server_name,
        "insecure-skip-tls-verify": value.insecure_skip_tls_verify,
        "certificate-authority-data": None,
        "proxy-url": value.proxy_url,
        "disable-compression": value.disable_compression,
    }
    for each in value.extensions or ():
        if each.name == _PLUGIN_EXTENSION:
            info["config"] = each.extension
    return cluster_access.ClusterEndpoint(
        _server(entry, bool(authority) or insecure),
        authority=authority,
        server_name=value.tls_server_name or "",
        insecure=insecure,
        proxy=_proxy(entry),
        info=info,
    )


def _server(entry: _Entry, is_secured: bool) -> str:
    server = (entry.value.server or "").rstrip("/")
    if server and "://" not in server:
        server = f"{'https' if is_secured else 'http'}://{server}"
    if not _is_url(server, ("http", "https")):
        raise entry.wrong(f"server: {entry.value.server!r}: expected https://host:port")
    return server


def _proxy(entry: _Entry) -> str:
    proxy: str = entry.value.proxy_url or ""
    if proxy and not _is_url(proxy, PROXY_SCHEMES):
        scheme = proxy.partition("://")[0]  # the rest may hold a password
        raise entry.wrong(f"proxy-url: {scheme}://...: expected http://host or https://host")
    return proxy


def _is_url(text: str, schemes: tuple[str, ...]) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _user(entry: _Entry) -> cluster_access.User:
    value: _User = entry.value
    if value.auth_provider:
        raise entry.wrong("auth-provider: no longer exists in Kubernetes; use exec")
    if (value.token or value.token_file) and (value.username or value.password):
        raise entry.wrong("a token and a username exclude each other")
    certificate, key = entry.source("client_certificate"), entry.source("client_key")
    if bool(certificate) != bool(key):
        missing = "client-key" if certificate else "client-certificate"
        raise entry.wrong(f"{missing} is missing: certificate and key go together")
    return cluster_access.User(
        certificate=certificate,
        key=key,
        token=value.token or "",
        token_file=entry.path(value.token_file),
        username=value.username or "",
        password=value.password or "",
        plugin=_plugin(entry, value.exec) if value.exec else None,
        impersonate=_impersonation(entry, value),
    )


def _impersonation(entry: _Entry, user: _User) -> cluster_access.Impersonation | None:
    extra = [
        (key, each) for key, values in (user.as_user_extra or {}).items() for each in values or ()
    ]
    if not user.as_:
        if user.as_uid or user.as_groups or extra:
            raise entry.wrong("as: is missing: as-uid, as-groups and as-user-extra need it")
        return None
    return cluster_access.Impersonation(
        user.as_, user.as_uid or "", tuple(user.as_groups or ()), tuple(extra)
    )


def _plugin(entry: _Entry, exec_: _Exec) -> cluster_access.Plugin:
    if not exec_.command:
        raise entry.wrong("exec.command: is missing")
    if exec_.api_version not in PLUGIN_VERSIONS:
        expected = " or ".join(PLUGIN_VERSIONS)
        raise entry.wrong(f"exec.apiVersion: {exec_.api_version!r}: expected {expected}")
    command = exec_.command
    if os.sep in command:  # a bare name is looked up in PATH
        command = str(entry.path(command))
    mode = exec_.interactive_mode
    if not mode and exec_.api_version != PLUGIN_VERSIONS[0]:
        mode = "IfAvailable"  # only v1 requires a mode
    if mode not in INTERACTIVE_MODES:
        expected = ", ".join(INTERACTIVE_MODES)
        raise entry.wrong(f"exec.interactiveMode: {mode!r}: expected one of {expected}")
    return cluster_access.Plugin(
        command,
        exec_.api_version,
        args=tuple(exec_.args or ()),
        env=tuple((each.name, each.value) for each in exec_.env or ()),
        install_hint=exec_.install_hint or "",
        wants_cluster=bool(exec_.provide_cluster_info),
        interactive=mode,
    )
