# SPDX-License-Identifier: Apache-2.0
"""A whole API server in this process, on a store in memory, reached over TCP.

For tests of what is between a socket and a verb: limits, metrics, logs and
the loop that all parts share. Time is real there, because sockets are.
"""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from refloat.apiserver import ApiServer
from refloat.apiserver.authentication import Tokens
from refloat.apiserver.identity import ADMIN
from refloat.apiserver.limits import Limits
from refloat.base.clock import RealClock
from refloat.base.gates import Gates
from refloat.base.rand import Rand
from refloat.store.memory import MemoryStore

TOKEN = "secret"


class ListeningServer(ApiServer):
    """A server whose parts a test may read, while clients go through `port`."""

    port = 0

    def count(self, name: str, **labels: str) -> float:
        """The value of a metric, 0 when there is none."""
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


@asynccontextmanager
async def serving(
    limits: Limits | None = None,
    *,
    store: MemoryStore | None = None,
    tokens: Tokens | None = None,
    to_nodes: ssl.SSLContext | None = None,
) -> AsyncIterator[ListeningServer]:
    """A server with the objects that every cluster has, until the end of the block."""
    store = store or MemoryStore()
    server = ListeningServer(store, RealClock(), Rand(1), Gates(), to_nodes=to_nodes)
    await server.start()
    server.port = await server.listen(
        "127.0.0.1", 0, tokens or Tokens({TOKEN: ADMIN}), limits=limits
    )
    try:
        yield server
    finally:
        await server.close()
        await store.close()
