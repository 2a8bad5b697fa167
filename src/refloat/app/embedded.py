# SPDX-License-Identifier: Apache-2.0
"""The embedded cluster: store, API server and what keeps them going, in one process."""

import logging
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from refloat.apiserver import bootstrap, documents, watching
from refloat.apiserver.authorization import Authorizer
from refloat.apiserver.eviction import Evictions
from refloat.apiserver.http import Server
from refloat.apiserver.identity import Identity
from refloat.apiserver.inprocess import InProcess
from refloat.apiserver.metrics import Metrics
from refloat.apiserver.registry import Registry
from refloat.apiserver.resources import Resources
from refloat.app import certificates, files, kubeconfig, tokens
from refloat.app.controllers import Chosen
from refloat.base import metrics
from refloat.base.clock import Clock
from refloat.base.gates import Gates
from refloat.base.rand import Rand
from refloat.base.stalls import StallMeter
from refloat.base.tasks import Tasks
from refloat.client.local import LocalClient
from refloat.store.contract import Store
from refloat.store.engine import LogStore
from refloat.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from refloat.app.inside import Inside

log = logging.getLogger(__name__)

# How often the store is asked whether there is something to forget. At a
# thousand changes a second, what comes in between is a few megabytes.
MAINTENANCE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Where and how an embedded cluster runs."""

    data_dir: Path
    """Everything that outlives a restart, and the kubeconfig."""
    port: int = 0
    """The API server's port; 0 keeps the last one, or takes a free one."""
    bind_address: str = "127.0.0.1"
    """The address to listen at; loopback, because pods run this machine's processes."""
    gates: Gates = field(default_factory=Gates)
    inside: Chosen = field(default_factory=Chosen)
    """Which controllers and how many simulated nodes run beside the API server."""


class Cluster:
    """A running embedded cluster."""

    def __init__(self, settings: Settings, clock: Clock, chance: Rand) -> None:
        self._settings = settings
        self._clock = clock
        self._rand = chance
        self._tasks = Tasks()
        self._metrics = Metrics(metrics.process_registry())
        self._stalls = StallMeter(self._metrics.stalls.observe)
        self._store: LogStore | None = None
        self._dispatcher: watching.Dispatcher | None = None
        self._server: Server | None = None
        self._inside: Inside | None = None
        self.url = ""

    @property
    def kubeconfig(self) -> Path:
        return self._settings.data_dir / "kubeconfig"

    async def start(self) -> None:
        """Serve; everything that can be refused is refused before anything is changed."""
        folder = self._settings.data_dir
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._store = await SqliteStore.open(folder / "state.db")
        token = tokens.admin_token(folder)
        paths = certificates.ensure(folder / "pki", self._settings.bind_address, self._clock.now())
        tls = certificates.server_context(paths)
        await self._serve(self._store, tls)
        self.kubeconfig_written(paths.authority.read_bytes(), token)
        if self._inside is not None:
            self._inside.start()
        self._tasks.spawn(self._maintain(self._store), name="store-maintenance")

    async def _serve(self, store: Store, tls: ssl.SSLContext) -> None:
        settings = self._settings
        registry = Registry(store, rand=self._rand, gates=settings.gates)
        await bootstrap.ensure(registry, self._clock)
        self._dispatcher = watching.Dispatcher(
            store, self._clock, self._metrics.dispatch_lag.observe
        )
        self._dispatcher.start()
        self._measure(store, self._dispatcher)
        evictions = Evictions(registry, self._clock, settings.gates)
        resources = Resources(
            registry, self._dispatcher, evictions, clock=self._clock, rand=self._rand
        )
        authorizer = Authorizer(store)
        self._join(resources, authorizer)
        host = (
            f"[{settings.bind_address}]" if ":" in settings.bind_address else settings.bind_address
        )
        port = settings.port or _last_port(settings.data_dir)
        pages = documents.Documents(f"{host}:{port}", self._metrics.registry)
        self._server = Server(
            resources,
            pages,
            tokens.accepted(settings.data_dir),
            authorizer,
            clock=self._clock,
            rand=self._rand,
            counts=self._metrics,
        )
        port = await self._listen(self._server, port, tls)
        self.url = f"https://{host}:{port}"

    def _join(self, resources: Resources, authorizer: Authorizer) -> None:
        """Make what runs inside, and its way to the server."""
        if not self._settings.inside:
            return
        from refloat.app.inside import Inside  # noqa: PLC0415 - the API server alone starts sooner

        def connect(user: Identity) -> LocalClient:
            way = InProcess(resources, authorizer, user)
            return LocalClient(way, field_manager=user.name.rpartition(":")[2])

        self._inside = Inside(
            connect,
            self._settings.inside,
            gates=self._settings.gates,
            clock=self._clock,
            rand=self._rand,
            registry=self._metrics.registry,
        )

    def _measure(self, store: Store, dispatcher: watching.Dispatcher) -> None:
        self._metrics.read_store(store)
        self._metrics.read_watchers(lambda: dispatcher.watchers)
        self._stalls.start()

    async def _listen(self, server: Server, port: int, tls: ssl.SSLContext) -> int:
        """Listen at the port of the last time, or at any if nobody insists."""
        address = self._settings.bind_address
        try:
            return await server.start(address, port, tls)
        except OSError:
            if self._settings.port or not port:
                raise
            return await server.start(address, 0, tls)

    def kubeconfig_written(self, authority: bytes, token: str) -> None:
        """Write the kubeconfig once the server answers."""
        content = kubeconfig.render(server=self.url, authority=authority, token=token)
        files.write(self.kubeconfig, content)
        files.write(self._settings.data_dir / "port", self.url.rpartition(":")[2].encode())

    async def _maintain(self, store: LogStore) -> None:
        while True:
            await self._clock.sleep(MAINTENANCE_SECONDS)
            await store.maintain(self._clock.monotonic())

    async def close(self) -> None:
        """Stop in order: who writes inside, new requests, watches, then the store."""
        self._stalls.stop()
        if self._inside is not None:
            await self._inside.close()
        await self._tasks.close()
        if self._dispatcher is not None:
            await self._dispatcher.close()
        if self._server is not None:
            await self._server.close()
        if self._store is not None:
            await self._store.close()


def _last_port(folder: Path) -> int:
    """The port of the last time, so that a kubeconfig stays true over restarts."""
    path = folder / "port"
    text = path.read_text().strip() if path.exists() else ""
    return int(text) if text.isdigit() else 0
