# SPDX-License-Identifier: Apache-2.0
"""The API server of a simulation, on a store in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from refloat.apiserver import ApiServer, identity
from refloat.apiserver.local_server import LocalConnection
from refloat.base.gates import Gates
from refloat.base.tasks import Tasks
from refloat.sim.run import Sim
from refloat.store.compaction import Compaction
from refloat.store.memory import MemoryStore

# As `refloat up` does, in seconds.
MAINTENANCE_PERIOD = 10


class SimulatedServer(LocalConnection):
    """An administrator's connection to an API server whose gates can change."""

    def __init__(self, sim: Sim, server: ApiServer) -> None:
        self._sim = sim
        self._server = server
        super().__init__(server.resources, server.authorizer, identity.ADMIN)

    def use(self, gates: Gates) -> None:
        """Replace the server by one with these gates. Watches continue."""
        last = self._server
        self._server = ApiServer(
            last.store, self._sim.clock, self._sim.rand, gates, dispatcher=last.dispatcher
        )
        self._resources = self._server.resources

    def as_user(self, user: identity.Identity) -> LocalConnection:
        """The connection of another user, with the present gates."""
        return self._server.connect(user)


@asynccontextmanager
async def serve(sim: Sim) -> AsyncIterator[SimulatedServer]:
    """An API server with the objects of every new cluster, until the end of the block."""
    store = MemoryStore(Compaction(age=60.0))
    server = ApiServer(store, sim.clock, sim.rand, Gates())
    await server.start()
    tasks = Tasks()
    tasks.spawn(_maintain(sim, store), name="maintenance")
    try:
        yield SimulatedServer(sim, server)
    finally:
        await tasks.close()
        await server.close()
        await store.close()


async def _maintain(sim: Sim, store: MemoryStore) -> None:
    while True:
        await sim.clock.sleep(MAINTENANCE_PERIOD)
        await store.maintain(sim.clock.monotonic())
