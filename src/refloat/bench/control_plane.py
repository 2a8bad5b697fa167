# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes control plane on loopback ports, until a block ends.

etcd, kube-apiserver, kube-controller-manager and kube-scheduler from a folder
of binaries, set up as a cluster is: TLS, RBAC, the Node authorizer, service
accounts, credentials of its own for each program. What Refloat promises on
Kubernetes is measured and tested on this; it has no nodes of its own.
"""

import contextlib
import os
import re
import secrets
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from refloat.app import certificates, files, kubeconfig
from refloat.base.errors import UsageError
from refloat.bench.daemons import Daemon, Probe

ETCD, APISERVER = "etcd", "kube-apiserver"
CONTROLLER_MANAGER, SCHEDULER = "kube-controller-manager", "kube-scheduler"
PROGRAMS = (ETCD, APISERVER, CONTROLLER_MANAGER, SCHEDULER)

ADMIN = "admin"

# user name -> group; each gets a token and a kubeconfig of its own
_USERS = {
    ADMIN: "system:masters",
    "system:kube-controller-manager": "",
    "system:kube-scheduler": "",
}

# A node is away after 24 s instead of 50, looked at each second, and nodes are
# tainted as fast as they fail: a failure is over within a test's patience. It is
# still more than two beats of ten seconds.
_NODE_TIMINGS = (
    "--node-monitor-period=1s",
    "--node-monitor-grace-period=24s",
    "--node-startup-grace-period=16s",
    "--node-eviction-rate=10",
    "--secondary-node-eviction-rate=10",
)

Tell = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Settings:
    """What to run, and where."""

    binaries: Path
    """A folder with the four programs."""
    folder: Path
    """Where data, logs, certificates and kubeconfigs go."""
    port: int = 0
    """The API server's; 0 is a free one."""
    api_only: bool = False
    """Leave out all controllers: what a test writes stays as it is."""
    more: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Flags for a program, over those given here."""


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """A running control plane."""

    settings: Settings
    url: str
    kubeconfig: Path
    """The administrator's, of mode 0600."""
    daemons: Mapping[str, Daemon]
    """By the name of the program."""

    def pid(self, program: str) -> int:
        return self.daemons[program].pid


def find_binaries() -> Path:
    """The folder that KUBEBUILDER_ASSETS names, or the newest that the tests have built."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    found = [Path(assets)] if assets else sorted(cache().glob("kubernetes-*"), key=_version)
    for folder in reversed(found):
        if all((folder / program).exists() for program in PROGRAMS):
            return folder
    where = f"{assets!r} (KUBEBUILDER_ASSETS)" if assets else f"{cache()}"
    raise UsageError(
        f"no {', '.join(PROGRAMS)} in {where}; `make test-kubernetes` in a clone of Refloat "
        "builds them, or let KUBEBUILDER_ASSETS name a folder that has them"
    )


def cache() -> Path:
    """Where what was built is kept."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "refloat"


def _version(folder: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", folder.name)]


@contextmanager
def running(settings: Settings, tell: Tell = lambda _: None) -> Iterator[ControlPlane]:
    """Start it, wait until all of it is ready, and stop it when the block ends."""
    _check(settings)
    settings.folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        started = _Start(settings, tell, stack)
        yield started.run()


def _check(settings: Settings) -> None:
    """Refuse what cannot become a control plane before anything runs."""
    needed = (ETCD, APISERVER) if settings.api_only else PROGRAMS
    missing = [each for each in needed if not (settings.binaries / each).exists()]
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

    def __init__(self, settings: Settings, tell: Tell, stack: contextlib.ExitStack) -> None:
        self._settings = settings
        self._folder = settings.folder
        self._tell = tell
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
        self._to_nodes = certificates.ensure_client(self._folder / "pki", now)
        self._context = ssl.create_default_context(cafile=self._pki.authority)
        self._tokens = {user: secrets.token_urlsafe(32) for user in _USERS}
        self._keys = self._folder / "service-accounts.key"

    def run(self) -> ControlPlane:
        files.write(self._keys, _private_key())
        files.write(self._folder / "tokens.csv", self._token_file())
        self._daemon(ETCD, self._etcd(), Probe(self._ports[ETCD], "/health"))
        self._daemon(APISERVER, self._apiserver(), self._probe(APISERVER, "/readyz", ADMIN))
        if not self._settings.api_only:
            self._controllers()
        admin = _kubeconfig(self._folder, "kubeconfig", self._url, self._tokens[ADMIN])
        return ControlPlane(self._settings, self._url, admin, self._daemons)

    def _controllers(self) -> None:
        manager, scheduler = self._controller_manager(), self._component(SCHEDULER)
        probe = self._probe
        self._daemon(CONTROLLER_MANAGER, manager, probe(CONTROLLER_MANAGER, "/healthz"))
        self._daemon(SCHEDULER, scheduler, probe(SCHEDULER, "/healthz"))
        # Without it the API server refuses every pod.
        account = probe(APISERVER, "/api/v1/namespaces/default/serviceaccounts/default", ADMIN)
        self._daemons[CONTROLLER_MANAGER].wait_until(account, "service account")

    def _daemon(self, program: str, flags: list[str], ready: Probe) -> None:
        port = self._ports[program]
        self._tell(f"waiting for {program} at 127.0.0.1:{port}")
        log = self._folder / f"{program}.log"
        flags = [*flags, *self._settings.more.get(program, ())]
        daemon = Daemon([self._settings.binaries / program, *flags], log)
        self._stack.callback(daemon.stop)
        self._daemons[program] = daemon
        daemon.wait_until(ready, f"answer at 127.0.0.1:{port}{ready.path}")

    def _probe(self, program: str, path: str, user: str = "") -> Probe:
        return Probe(self._ports[program], path, self._context, self._tokens.get(user, ""))

    def _token_file(self) -> bytes:
        lines = [f'{self._tokens[user]},{user},{user},"{group}"' for user, group in _USERS.items()]
        return "\n".join([*lines, ""]).encode()

    def _etcd(self) -> list[str]:
        client = f"http://127.0.0.1:{self._ports[ETCD]}"
        return [
            f"--data-dir={self._folder / 'etcd'}",
            # Nothing here outlives a crash of the machine.
            "--unsafe-no-fsync",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls=http://127.0.0.1:{self._peer}",
        ]

    def _serving(self, program: str) -> list[str]:
        return [
            "--bind-address=127.0.0.1",
            f"--secure-port={self._ports[program]}",
            f"--tls-cert-file={self._pki.server}",
            f"--tls-private-key-file={self._pki.server_key}",
        ]

    def _apiserver(self) -> list[str]:
        # Nobody makes the service accounts that it would ask for.
        accounts = ["--disable-admission-plugins=ServiceAccount"] if self._settings.api_only else []
        certificate, key = self._to_nodes
        return [
            *self._serving(APISERVER),
            *accounts,
            f"--etcd-servers=http://127.0.0.1:{self._ports[ETCD]}",
            f"--client-ca-file={self._pki.authority}",
            f"--token-auth-file={self._folder / 'tokens.csv'}",
            # It asks nodes for logs with this; theirs they sign themselves.
            f"--kubelet-client-certificate={certificate}",
            f"--kubelet-client-key={key}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._keys}",
            f"--service-account-signing-key-file={self._keys}",
            "--service-cluster-ip-range=10.0.0.0/24",
        ]

    def _controller_manager(self) -> list[str]:
        return [
            *self._component(CONTROLLER_MANAGER),
            "--use-service-account-credentials",
            f"--service-account-private-key-file={self._keys}",
            f"--root-ca-file={self._pki.authority}",
            *_NODE_TIMINGS,
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
    files.write(path, kubeconfig.render(server=url, authority=authority, token=token))
    return path


def _private_key() -> bytes:
    """In the older of the two forms: of it the API server can read the public key too."""
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens at just now, all different."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in held]
