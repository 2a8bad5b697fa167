# SPDX-License-Identifier: Apache-2.0
"""The embedded cluster: store, API server, controllers and nodes in one process."""

import contextlib
import logging
import re
import ssl
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from refloat.apiserver import ApiServer, identity
from refloat.apiserver.admission import TOLERATION_SECONDS
from refloat.apiserver.metrics import Metrics
from refloat.app import (
    certificates,
    control_socket,
    data_dir,
    kubeconfig,
    node_faults,
    private_files,
    tokens,
)
from refloat.app.controller_names import ControllerSelection
from refloat.base import metrics
from refloat.base.clock import Clock
from refloat.base.gates import TAINT_FORCE_EVICTION, Gates
from refloat.base.loop_stalls import StallMeter
from refloat.base.rand import Rand
from refloat.base.tasks import Tasks
from refloat.config.load import Configuration
from refloat.store.contract import Store
from refloat.store.disk_space import SpaceSettings
from refloat.store.sqlite import OpenSettings, SqliteStore
from refloat.store.store import LogStore

if TYPE_CHECKING:
    from refloat.app.actor_publisher import ActorPublisher
    from refloat.app.embedded_controllers import EmbeddedControllers

log = logging.getLogger(__name__)

# How often the store drops old revisions. At a thousand changes a second, a few
# megabytes come in between.
MAINTENANCE_SECONDS = 1.0

# How long pods stay on a lost node in a cluster with short waits (`timings`).
FAST_TOLERATION_SECONDS = 30


@dataclass(frozen=True, slots=True)
class EmbeddedSettings:
    """The settings of an embedded cluster."""

    data_dir: Path
    """Everything that outlives a restart, and the kubeconfig."""
    port: int = 0
    """The API server's port; 0 keeps the last one, or takes a free one."""
    bind_address: str = "127.0.0.1"
    """The address to listen at; loopback, because pods run this machine's processes."""
    gates: Gates = field(default_factory=Gates)
    configured: Configuration = field(default_factory=Configuration)
    """The configuration file; its gates are in `gates` already."""
    selection: ControllerSelection = field(default_factory=ControllerSelection)
    """The controllers and the number of simulated nodes."""
    accept_lost_writes: bool = False
    """Start although the store lacks writes that it acknowledged."""


class EmbeddedCluster:
    """A running embedded cluster."""

    def __init__(self, settings: EmbeddedSettings, clock: Clock, chance: Rand) -> None:
        self._settings = settings
        self._clock = clock
        self._rand = chance
        self._tasks = Tasks()
        self._metrics = Metrics(metrics.process_registry())
        self._stalls = StallMeter(self._metrics.stalls.observe)
        self._store: LogStore | None = None
        self._server: ApiServer | None = None
        self._embedded: EmbeddedControllers | None = None
        self._publisher: ActorPublisher | None = None
        self._control: control_socket.Control | None = None
        self._started_at = clock.now()
        self.agents: node_faults.Processes | None = None  # nodes that run beside it
        self.url = ""

    @property
    def kubeconfig(self) -> Path:
        return self._settings.data_dir / "kubeconfig"

    async def start(self) -> None:
        """Serve; all checks come before the first change."""
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
        if self._embedded is not None:
            self._embedded.start()
        if self._publisher is not None:
            self._publisher.start()
        self._control = control_socket.Control(folder, self._execute)
        await self._control.start()
        self._tasks.spawn(self._maintain(self._store), name="store-maintenance")

    async def _serve(self, store: Store, tls: ssl.SSLContext) -> None:
        settings = self._settings
        self._server = server = ApiServer(
            store,
            self._clock,
            self._rand,
            settings.gates,
            metrics=self._metrics,
            toleration_seconds=(
                FAST_TOLERATION_SECONDS if settings.selection.fast else TOLERATION_SECONDS
            ),
            to_nodes=certificates.client_context(
                *certificates.ensure_client(settings.data_dir / "pki", self._clock.now())
            ),
        )
        await server.start()
        self._stalls.start()
        self._join(server)
        port = await self._listen(server, tls)
        address = settings.bind_address
        self.url = f"https://[{address}]:{port}" if ":" in address else f"https://{address}:{port}"

    def _join(self, server: ApiServer) -> None:
        """Make the controllers and the publisher."""
        if not self._settings.selection:
            return
        # The API server alone starts sooner.
        from refloat.app import actor_publisher  # noqa: PLC0415
        from refloat.app.controller_env import EmbeddedEnv  # noqa: PLC0415
        from refloat.app.embedded_controllers import EmbeddedControllers  # noqa: PLC0415

        env = EmbeddedEnv(
            server.client,
            self._settings.selection,
            gates=self._settings.gates,
            clock=self._clock,
            rand=self._rand,
            registry=self._metrics.registry,
            recovery=self._settings.configured.failure_recovery,
            attempt_logs=self._settings.configured.attempt_logs,
        )
        self._embedded = EmbeddedControllers(env)
        self._publisher = actor_publisher.embedded(
            server.client(identity.ADMIN),
            self._settings.configured,
            self._settings.gates,
            self._clock,
            controllers=self._settings.selection.controllers,
            period=env.timings.recovery_period,
            node_grace=env.timings.node_grace,
            delays=env.timings.job.pods.delays,
        )

    async def _listen(self, server: ApiServer, tls: ssl.SSLContext) -> int:
        """Listen at the configured port, else at the port of the last run, else at any."""
        settings = self._settings
        listen = partial(
            server.listen,
            settings.bind_address,
            tokens=tokens.accepted(settings.data_dir),
            tls=tls,
            notes=self._embedded.notes if self._embedded is not None else None,
        )
        port = settings.port
        if not port:
            # The last port keeps a kubeconfig valid over restarts.
            with contextlib.suppress(FileNotFoundError):
                text = private_files.read(settings.data_dir / "port", secret=False).strip()
                is_port = re.fullmatch(rb"[0-9]{1,5}", text) and int(text) < 65536
                port = int(text) if is_port else 0
        try:
            return await listen(port)
        except OSError:
            if settings.port or not port:
                raise
            return await listen(0)

    def kubeconfig_written(self, authority: bytes, token: str) -> None:
        """Write the kubeconfig once the server answers."""
        content = kubeconfig.render(server=self.url, authority=authority, token=token)
        private_files.write(self.kubeconfig, content)
        private_files.write(self._settings.data_dir / "port", self.url.rpartition(":")[2].encode())

    async def wait_for_nodes(self) -> list[str]:
        """Wait until all nodes are Ready; the nodes that are not after a bounded time."""
        fleet = self._embedded.fleet if self._embedded is not None else None
        names = [name for nodes in (self.agents, fleet) if nodes for name in nodes.names()]
        if not names:
            return []
        from refloat.app import node_readiness  # noqa: PLC0415 - loaded only with nodes

        assert self._server is not None
        client = self._server.client(identity.ADMIN)
        since = self._started_at
        return await node_readiness.wait_until_ready(client, names, self._clock, since=since)

    def _execute(self, request: control_socket.Object) -> control_socket.Object:
        """Carry out a request of `refloat node`."""
        fleet = self._embedded.fleet if self._embedded is not None else None
        if request.get("forceEvict") and not self._settings.gates.enabled(TAINT_FORCE_EVICTION):
            raise control_socket.Refused(
                f"force eviction is off, because the gate {TAINT_FORCE_EVICTION} is off; "
                f"start the cluster with `refloat up --feature-gates {TAINT_FORCE_EVICTION}=true`"
            )
        return node_faults.execute(fleet, request, self.agents)

    async def _maintain(self, store: LogStore) -> None:
        while True:
            await self._clock.sleep(MAINTENANCE_SECONDS)
            await store.maintain(self._clock.monotonic())

    async def close(self) -> None:
        """Stop in order: controllers and nodes, new requests, watches, then the store."""
        self._stalls.stop()
        if self._control is not None:
            await self._control.close()
        if self._publisher is not None:
            await self._publisher.stop()
        if self._embedded is not None:
            await self._embedded.close()
        await self._tasks.close()
        if self._server is not None:
            await self._server.close()
        if self._store is not None:
            await self._store.close()
