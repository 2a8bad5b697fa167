# SPDX-License-Identifier: Apache-2.0
"""A whole API server in this process, on a store in memory, reached over TCP.

For tests of what is between a socket and a verb: limits, metrics, logs and
the loop that all of it shares. Time is real there, because sockets are.
"""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from refloat.apiserver import bootstrap, documents, limits, metrics, watching
from refloat.apiserver.authentication import Tokens
from refloat.apiserver.authorization import Authorizer
from refloat.apiserver.eviction import Evictions
from refloat.apiserver.http import Server
from refloat.apiserver.identity import ADMIN
from refloat.apiserver.registry import Registry
from refloat.apiserver.resources import Resources
from refloat.base.clock import RealClock
from refloat.base.gates import Gates
from refloat.base.rand import Rand
from refloat.store.memory import MemoryStore

TOKEN = "secret"


class Reachable:
    """What a test may look at, while clients go through `port`."""

    def __init__(
        self,
        bounds: limits.Limits,
        store: MemoryStore,
        tokens: Tokens,
        to_nodes: ssl.SSLContext | None = None,
    ) -> None:
        clock, rand, gates = RealClock(), Rand(1), Gates()
        self.store = store
        self.tokens = tokens
        self.registry = Registry(self.store, rand=rand, gates=gates)
        self.metrics = metrics.Metrics()
        self.dispatcher = watching.Dispatcher(self.store, clock, self.metrics.dispatch_lag.observe)
        self.resources = Resources(
            self.registry,
            self.dispatcher,
            Evictions(self.registry, clock, gates),
            clock=clock,
            rand=rand,
            to_nodes=to_nodes,
        )
        self.server = Server(
            self.resources,
            documents.Documents(
                "127.0.0.1:0", self.metrics.registry, gates, lambda: store.shortage
            ),
            tokens,
            Authorizer(self.store),
            clock=clock,
            rand=rand,
            counts=self.metrics,
            bounds=bounds,
        )
        self.port = 0

    def count(self, name: str, **labels: str) -> float:
        """The value of a metric, 0 when there is none."""
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


@asynccontextmanager
async def serving(
    bounds: limits.Limits | None = None,
    *,
    store: MemoryStore | None = None,
    tokens: Tokens | None = None,
    to_nodes: ssl.SSLContext | None = None,
) -> AsyncIterator[Reachable]:
    """A server with the objects that every cluster has, until the end of the block."""
    found = Reachable(
        bounds or limits.Limits(),
        store or MemoryStore(),
        tokens or Tokens({TOKEN: ADMIN}),
        to_nodes,
    )
    await bootstrap.ensure(found.registry, RealClock())
    found.metrics.read_store(found.store)
    found.metrics.read_watchers(lambda: found.dispatcher.watchers)
    found.dispatcher.start()
    found.port = await found.server.start("127.0.0.1", 0, None)
    try:
        yield found
    finally:
        await found.dispatcher.close()
        await found.server.close()
        await found.store.close()
