# SPDX-License-Identifier: Apache-2.0
"""The embedded cluster: store, API server and what keeps them going, in one process."""

import logging
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from refloat.apiserver import bootstrap, documents, identity, watching
from refloat.apiserver.admission import TOLERATION_SECONDS
from refloat.apiserver.authorization import Authorizer
from refloat.apiserver.eviction import Evictions
from refloat.apiserver.http import Server
from refloat.apiserver.identity import Identity
from refloat.apiserver.inprocess import InProcess
from refloat.apiserver.metrics import Metrics
from refloat.apiserver.registry import Registry
from refloat.apiserver.resources import Resources
from refloat.app import certificates, control, data_dir, faults, files, kubeconfig, tokens
from refloat.app.controllers import Chosen
from refloat.base import metrics
from refloat.base.clock import Clock
from refloat.base.gates import TAINT_FORCE_EVICTION, Gates
from refloat.base.rand import Rand
from refloat.base.stalls import StallMeter
from refloat.base.tasks import Tasks
from refloat.client.local import LocalClient
from refloat.config.load import Configuration
from refloat.store.contract import Store
from refloat.store.disk_space import SpaceSettings
from refloat.store.engine import LogStore
from refloat.store.sqlite import OpenSettings, SqliteStore

if TYPE_CHECKING:
    from refloat.app.actor_publisher import ActorPublisher
    from refloat.app.inside import Inside

log = logging.getLogger(__name__)

# How often the store is asked whether there is something to forget. At a
# thousand changes a second, what comes in between is a few megabytes.
MAINTENANCE_SECONDS = 1.0

# How long pods stay on a node that is lost, where waits are short (`timings`).
FAST_TOLERATION_SECONDS = 30


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
    configured: Configuration = field(default_factory=Configuration)
    """What the configuration file says; its gates are in `gates` already."""
    inside: Chosen = field(default_factory=Chosen)
    """Which controllers and how many simulated nodes run beside the API server."""
    accept_lost_writes: bool = False
    """Start although the store lacks writes that it acknowledged."""


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
        self._publisher: ActorPublisher | None = None
        self._control: control.Control | None = None
        self.agents: faults.Processes | None = None  # nodes that run beside it
        self.url = ""

    @property
    def kubeconfig(self) -> Path:
        return self._settings.data_dir / "kubeconfig"

    async def start(self) -> None:
        """Serve; everything that can be refused is refused before anything is changed."""
        folder = self._settings.data_dir
        data_dir.prepare(folder)
        how = OpenSettings(
            accept_lost_writes=self._settings.accept_lost_writes, space=SpaceSettings()
        )
        self._store = await SqliteStore.open(folder / "state.db", how)
        token = tokens.admin_token(folder)
        paths = certificates.ensure(folder / "pki", self._settings.bind_address, self._clock.now())
        tls = certificates.server_context(paths)
        await self._serve(self._store, tls)
        self.kubeconfig_written(paths.authority.read_bytes(), token)
        if self._inside is not None:
            self._inside.start()
        if self._publisher is not None:
            self._publisher.start()
        self._control = control.Control(folder, self._told)
        await self._control.start()
        self._tasks.spawn(self._maintain(self._store), name="store-maintenance")

    async def _serve(self, store: Store, tls: ssl.SSLContext) -> None:
        settings = self._settings
        registry = Registry(
            store,
            rand=self._rand,
            gates=settings.gates,
            toleration_seconds=(
                FAST_TOLERATION_SECONDS if settings.inside.fast else TOLERATION_SECONDS
            ),
        )
        await bootstrap.ensure(registry, self._clock)
        self._dispatcher = watching.Dispatcher(
            store, self._clock, self._metrics.dispatch_lag.observe
        )
        self._dispatcher.start()
        self._measure(store, self._dispatcher)
        evictions = Evictions(registry, self._clock, settings.gates)
        resources = Resources(
            registry,
            self._dispatcher,
            evictions,
            clock=self._clock,
            rand=self._rand,
            to_nodes=self._to_nodes(),
        )
        authorizer = Authorizer(store)
        self._join(resources, authorizer)
        host = (
            f"[{settings.bind_address}]" if ":" in settings.bind_address else settings.bind_address
        )
        port = settings.port or _last_port(settings.data_dir)
        pages = documents.Documents(
            f"{host}:{port}", self._metrics.registry, settings.gates, lambda: store.shortage
        )
        if self._inside is not None:
            pages.notes.update(self._inside.notes)
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

    def _to_nodes(self) -> ssl.SSLContext:
        """How the server asks nodes for logs."""
        folder = self._settings.data_dir / "pki"
        return certificates.client_context(*certificates.ensure_client(folder, self._clock.now()))

    def _join(self, resources: Resources, authorizer: Authorizer) -> None:
        """Make what runs inside, and its way to the server."""
        if not self._settings.inside:
            return
        # The API server alone starts sooner.
        from refloat.app import actor_publisher, timings  # noqa: PLC0415
        from refloat.app.inside import Inside  # noqa: PLC0415

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
            recovery=self._settings.configured.failure_recovery,
        )
        waits = timings.chosen(fast=self._settings.inside.fast)
        self._publisher = actor_publisher.embedded(
            connect(identity.ADMIN),
            self._settings.configured,
            self._settings.gates,
            self._clock,
            controllers=self._settings.inside.controllers,
            period=waits.recovery_period,
            node_grace=waits.node_grace,
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

    def _told(self, request: control.Object) -> control.Object:
        """Do what `refloat node` asks for."""
        fleet = self._inside.fleet if self._inside is not None else None
        if request.get("forceEvict") and not self._settings.gates.enabled(TAINT_FORCE_EVICTION):
            raise control.Refused(
                f"nobody force evicts nodes here: the gate {TAINT_FORCE_EVICTION} is off; "
                f"start the cluster with `refloat up --feature-gates {TAINT_FORCE_EVICTION}=true`"
            )
        return faults.obey(fleet, request, self.agents)

    async def _maintain(self, store: LogStore) -> None:
        while True:
            await self._clock.sleep(MAINTENANCE_SECONDS)
            await store.maintain(self._clock.monotonic())

    async def close(self) -> None:
        """Stop in order: who writes inside, new requests, watches, then the store."""
        self._stalls.stop()
        if self._control is not None:
            await self._control.close()
        if self._publisher is not None:
            await self._publisher.stop()
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
    try:
        text = files.read(folder / "port", secret=False).strip()
    except FileNotFoundError:
        return 0
    return int(text) if re.fullmatch(rb"[0-9]{1,5}", text) and int(text) < 65536 else 0
