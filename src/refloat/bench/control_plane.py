# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes control plane on loopback ports, until a block ends.

etcd, kube-apiserver, kube-controller-manager and kube-scheduler run from a folder
of binaries, with TLS, RBAC, the Node authorizer, service accounts, and separate
credentials for each program. The control plane has no nodes. Benchmarks and tests
of Refloat on Kubernetes use this control plane.
"""

import contextlib
import os
import re
import secrets
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from refloat.app import certificates, kubeconfig, private_files
from refloat.base.errors import UsageError
from refloat.bench.daemons import Daemon, Probe
from refloat.bench.results import Progress

ETCD, APISERVER = "etcd", "kube-apiserver"
CONTROLLER_MANAGER, SCHEDULER = "kube-controller-manager", "kube-scheduler"
PROGRAMS = (ETCD, APISERVER, CONTROLLER_MANAGER, SCHEDULER)

ADMIN = "admin"

# user name -> group; each user has a token and a kubeconfig
_USERS = {
    ADMIN: "system:masters",
    "system:kube-controller-manager": "",
    "system:kube-scheduler": "",
}

# A node is lost after 24 s instead of 50 s, and the rate of taints is high, so that
# tests do not wait long. 24 s is still more than two heartbeats of 10 s.
_NODE_TIMINGS = (
    "--node-monitor-period=1s",
    "--node-monitor-grace-period=24s",
    "--node-startup-grace-period=16s",
    "--node-eviction-rate=10",
    "--secondary-node-eviction-rate=10",
)


@dataclass(frozen=True, slots=True)
class ControlPlaneSettings:
    """The programs to run, and their folder."""

    binaries: Path
    """A folder with the four programs."""
    folder: Path
    """The folder for data, logs, certificates and kubeconfigs."""
    port: int = 0
    """The port of the API server; 0 for a free one."""
    api_only: bool = False
    """Run no controllers, so that only tests write objects."""
    more: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """More flags for a program; they override the others."""


@dataclass(frozen=True, slots=True)
class KubernetesControlPlane:
    """A running control plane."""

    settings: ControlPlaneSettings
    url: str
    kubeconfig: Path
    """The kubeconfig of the administrator, of mode 0600."""
    daemons: Mapping[str, Daemon]
    """The daemons by the name of the program."""

    def pid(self, program: str) -> int:
        return self.daemons[program].pid


def find_binaries() -> Path:
    """The folder in KUBEBUILDER_ASSETS, or the newest build of the tests."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    folders = [Path(assets)] if assets else sorted(cache().glob("kubernetes-*"), key=_version)
    for folder in reversed(folders):
        if all((folder / program).exists() for program in PROGRAMS):
            return folder
    where = f"{assets!r} (KUBEBUILDER_ASSETS)" if assets else f"{cache()}"
    raise UsageError(
        f"no {', '.join(PROGRAMS)} in {where}; `make test-kubernetes` in a clone of Refloat "
        "builds them, or set KUBEBUILDER_ASSETS to a folder with the programs"
    )


def cache() -> Path:
    """The folder of the builds."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "refloat"


def _version(folder: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", folder.name)]


@contextmanager
def running(
    settings: ControlPlaneSettings, progress: Progress = lambda _: None
) -> Iterator[KubernetesControlPlane]:
    """Start a control plane, wait until all programs are ready, and stop them at the end."""
    _check(settings)
    settings.folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        yield _Start(settings, progress, stack).run()


def _check(settings: ControlPlaneSettings) -> None:
    """Refuse missing programs and a port in use, before anything runs."""
    programs = (ETCD, APISERVER) if settings.api_only else PROGRAMS
    missing = [name for name in programs if not (settings.binaries / name).exists()]
    if missing:
        raise UsageError(f"no {', '.join(missing)} in {settings.binaries}")
    try:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", settings.port))
    except OSError as error:
        raise UsageError(
            f"port {settings.port} of 127.0.0.1: {error.strerror}; choose another, or 0"
        ) from error


class _Start:
    """The start of one control plane, step by step."""

    def __init__(
        self, settings: ControlPlaneSettings, progress: Progress, stack: contextlib.ExitStack
    ) -> None:
        self._settings = settings
        self._folder = settings.folder
        self._progress = progress
        self._stack = stack
        self._daemons: dict[str, Daemon] = {}
        etcd, peer, port, manager, scheduler = free_ports(5)
        self._peer = peer
        self._ports = {
            ETCD: etcd,
            APISERVER: settings.port or port,
            CONTROLLER_MANAGER: manager,
            SCHEDULER: scheduler,
        }
        self._url = f"https://127.0.0.1:{self._ports[APISERVER]}"
        now = datetime.now(UTC)
        self._pki = certificates.ensure(self._folder / "pki", "127.0.0.1", now)
        self._kubelet_client = certificates.ensure_client(self._folder / "pki", now)
        self._context = ssl.create_default_context(cafile=self._pki.authority)
        self._tokens = {user: secrets.token_urlsafe(32) for user in _USERS}
        self._keys = self._folder / "service-accounts.key"

    def run(self) -> KubernetesControlPlane:
        # The older of the two formats, from which the API server can read the public key too.
        account_key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
        private_files.write(self._keys, account_key)
        tokens = [f'{self._tokens[user]},{user},{user},"{group}"' for user, group in _USERS.items()]
        private_files.write(self._folder / "tokens.csv", "\n".join([*tokens, ""]).encode())
        client_url = f"http://127.0.0.1:{self._ports[ETCD]}"
        etcd_flags = [
            f"--data-dir={self._folder / 'etcd'}",
            # The data need not survive a crash of the machine.
            "--unsafe-no-fsync",
            f"--listen-client-urls={client_url}",
            f"--advertise-client-urls={client_url}",
            f"--listen-peer-urls=http://127.0.0.1:{self._peer}",
        ]
        self._daemon(ETCD, etcd_flags, Probe(self._ports[ETCD], "/health"))
        certificate, key = self._kubelet_client
        apiserver_flags = [
            *self._serving(APISERVER),
            f"--etcd-servers={client_url}",
            f"--client-ca-file={self._pki.authority}",
            f"--token-auth-file={self._folder / 'tokens.csv'}",
            # For requests for logs; nodes sign their own certificates.
            f"--kubelet-client-certificate={certificate}",
            f"--kubelet-client-key={key}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._keys}",
            f"--service-account-signing-key-file={self._keys}",
            "--service-cluster-ip-range=10.0.0.0/24",
        ]
        if self._settings.api_only:  # without controllers the plugin has no service accounts
            apiserver_flags.append("--disable-admission-plugins=ServiceAccount")
        self._daemon(APISERVER, apiserver_flags, self._probe(APISERVER, "/readyz", ADMIN))
        if not self._settings.api_only:
            self._controllers()
        admin = _kubeconfig(self._folder, "kubeconfig", self._url, self._tokens[ADMIN])
        return KubernetesControlPlane(self._settings, self._url, admin, self._daemons)

    def _controllers(self) -> None:
        probe = self._probe
        manager_flags = [
            *self._component(CONTROLLER_MANAGER),
            "--use-service-account-credentials",
            f"--service-account-private-key-file={self._keys}",
            f"--root-ca-file={self._pki.authority}",
            *_NODE_TIMINGS,
        ]
        self._daemon(CONTROLLER_MANAGER, manager_flags, probe(CONTROLLER_MANAGER, "/healthz"))
        self._daemon(SCHEDULER, self._component(SCHEDULER), probe(SCHEDULER, "/healthz"))
        # Without this account the API server refuses all pods.
        account = probe(APISERVER, "/api/v1/namespaces/default/serviceaccounts/default", ADMIN)
        self._daemons[CONTROLLER_MANAGER].wait_until(account, "service account")

    def _daemon(self, program: str, flags: list[str], ready: Probe) -> None:
        port = self._ports[program]
        self._progress(f"waiting for {program} at 127.0.0.1:{port}")
        log = self._folder / f"{program}.log"
        flags = [*flags, *self._settings.more.get(program, ())]
        daemon = Daemon([self._settings.binaries / program, *flags], log)
        self._stack.callback(daemon.stop)
        self._daemons[program] = daemon
        daemon.wait_until(ready, f"answer at 127.0.0.1:{port}{ready.path}")

    def _probe(self, program: str, path: str, user: str = "") -> Probe:
        return Probe(self._ports[program], path, self._context, self._tokens.get(user, ""))

    def _serving(self, program: str) -> list[str]:
        return [
            "--bind-address=127.0.0.1",
            f"--secure-port={self._ports[program]}",
            f"--tls-cert-file={self._pki.server}",
            f"--tls-private-key-file={self._pki.server_key}",
        ]

    def _component(self, program: str) -> list[str]:
        token = self._tokens[f"system:{program}"]
        access = _kubeconfig(self._folder, f"{program}.kubeconfig", self._url, token)
        return [
            *self._serving(program),
            f"--kubeconfig={access}",
            f"--authentication-kubeconfig={access}",
            f"--authorization-kubeconfig={access}",
            "--leader-elect=false",
        ]


def _kubeconfig(folder: Path, name: str, url: str, token: str) -> Path:
    authority = certificates.Paths.below(folder / "pki").authority.read_bytes()
    path = folder / name
    private_files.write(path, kubeconfig.render(server=url, authority=authority, token=token))
    return path


def free_ports(count: int) -> list[int]:
    """Different loopback ports without a listener."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [int(listener.getsockname()[1]) for listener in sockets]
