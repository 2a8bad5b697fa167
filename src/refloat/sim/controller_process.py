# SPDX-License-Identifier: Apache-2.0
"""A process of some controllers in virtual time, on clients that can fail.

The controllers have the environment of `app`, but no elections: the process acts at
once. Their events go to an `EventLog`.
"""

from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry

from refloat.apiserver import identity
from refloat.apiserver.identity import Identity
from refloat.apiserver.local_server import LocalConnection
from refloat.app.controller_env import EmbeddedEnv
from refloat.app.controller_names import ControllerSelection
from refloat.base.clock import Clock
from refloat.base.gates import Gates
from refloat.client.contract import Client
from refloat.client.local import LocalClient
from refloat.runtime.controller_env import Build
from refloat.runtime.elections import ElectedController, Elections
from refloat.runtime.recorder import Sink
from refloat.sim.faulty_client import FaultyClient
from refloat.sim.run import Sim


class SoleActor(ElectedController):
    """The elected controller of a cluster without another process."""

    def __init__(self, elections: Elections, controller: str) -> None:
        super().__init__(elections, controller)
        self._leads = self.acts = True

    def guard(self, client: Client) -> Client:
        return client


class ProcessEnv(EmbeddedEnv):
    """The environment of `app` for its controllers, with one sink for all events."""

    sink: Sink

    def election(self, controller: str) -> ElectedController:
        return SoleActor(self._elections, controller)

    def recorder(
        self, client: Client, component: str, *, sourced: bool = False, queued: int = 0
    ) -> Sink:
        return self.sink


class ControllerProcess:
    """One life of some controllers."""

    def __init__(
        self,
        sim: Sim,
        server: LocalConnection,
        build: Build,
        *,
        sink: Sink,
        gates: Gates | None = None,
        settings: Iterable[object] = (),
        controllers: tuple[str, ...] = (),
        clock: Clock | None = None,
        reader: Client | None = None,
        client: FaultyClient | None = None,
        **faults: Any,
    ) -> None:
        """`reader` fills the caches. `faults` are attributes of `FaultyClient`, by name.

        `controllers` are the names of the controllers that this process claims to run.
        """
        self.client = client or FaultyClient(server)
        for name, value in faults.items():
            assert hasattr(self.client, name), name
            setattr(self.client, name, value)
        self._reader = reader or LocalClient(server, field_manager="reader")
        self.registry = CollectorRegistry()
        self.env = ProcessEnv(
            self._connect,
            ControllerSelection(controllers),
            gates=gates or Gates(),
            clock=clock or sim.clock,
            rand=sim.rand,
            registry=self.registry,
        )
        self.env.sink = sink
        self.env.update(*settings)
        self.workers = build(self.env)

    def _connect(self, user: Identity) -> Client:
        """Caches read as administrator; controllers write under their own names."""
        return self._reader if user == identity.ADMIN else self.client

    async def start(self) -> None:
        for informer in self.env.informers:
            informer.start()
            await informer.wait_synced()
        for worker in self.workers:
            worker.start()

    async def stop(self) -> None:
        for worker in self.workers:
            await worker.stop()
        for informer in self.env.informers:
            await informer.close()
