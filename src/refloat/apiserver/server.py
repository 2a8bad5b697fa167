# SPDX-License-Identifier: Apache-2.0
"""`ApiServer`: the parts of the API server, assembled on a store.

Only this module joins them. Clients in the process use `client` or `connect`, others
HTTP (`listen`).
"""

import ssl
from collections.abc import Callable, Mapping

from refloat.apiserver import bootstrap, watch_index
from refloat.apiserver.admission import TOLERATION_SECONDS
from refloat.apiserver.authentication import Tokens
from refloat.apiserver.authorization import Authorizer
from refloat.apiserver.eviction import PodEvictions
from refloat.apiserver.http import HttpServer
from refloat.apiserver.identity import Identity
from refloat.apiserver.limits import Limits
from refloat.apiserver.local_server import LocalConnection
from refloat.apiserver.metrics import Metrics
from refloat.apiserver.nonresource import NonResourceHandlers
from refloat.apiserver.registry import Registry
from refloat.apiserver.resources import ResourceHandlers
from refloat.base.clock import Clock
from refloat.base.gates import Gates
from refloat.base.rand import Rand
from refloat.client.local import LocalClient
from refloat.store.contract import Store


class ApiServer:
    """An API server on a store. The caller opens and closes the store."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        rand: Rand,
        gates: Gates,
        *,
        metrics: Metrics | None = None,
        dispatcher: watch_index.Dispatcher | None = None,
        toleration_seconds: int = TOLERATION_SECONDS,
        to_nodes: ssl.SSLContext | None = None,
    ) -> None:
        """`dispatcher` is that of another server on this store, to share its watches.

        `to_nodes` is the TLS context for requests to nodes (logs).
        """
        self.store = store
        self.metrics = metrics or Metrics()
        self.registry = Registry(
            store, rand=rand, gates=gates, toleration_seconds=toleration_seconds
        )
        self.dispatcher = dispatcher or watch_index.Dispatcher(
            store, clock, self.metrics.dispatch_lag.observe
        )
        self.metrics.read_store(store)
        self.metrics.read_watchers(lambda: self.dispatcher.watchers)
        self.evictions = PodEvictions(self.registry, clock, gates)
        self.resources = ResourceHandlers(
            self.registry,
            self.dispatcher,
            self.evictions,
            clock=clock,
            rand=rand,
            to_nodes=to_nodes,
        )
        self.authorizer = Authorizer(store)
        self._http: HttpServer | None = None
        self._clock = clock
        self._rand = rand
        self._gates = gates

    async def start(self) -> None:
        """Create the objects that every cluster has, and start to serve watches."""
        await bootstrap.ensure(self.registry, self._clock)
        self.dispatcher.position = self.store.revision
        self.dispatcher.start()

    def connect(self, user: Identity) -> LocalConnection:
        """Requests of this user as encoded JSON, without HTTP."""
        return LocalConnection(self.resources, self.authorizer, user)

    def client(self, user: Identity, *, field_manager: str = "") -> LocalClient:
        """The in-process client of this user; its field manager is by default the user's name."""
        manager = field_manager or user.name.rpartition(":")[2]
        return LocalClient(self.connect(user), field_manager=manager)

    async def listen(
        self,
        address: str,
        port: int,
        tokens: Tokens,
        *,
        tls: ssl.SSLContext | None = None,
        limits: Limits | None = None,
        notes: Mapping[str, Callable[[], str]] | None = None,
    ) -> int:
        """Serve HTTP at this address and return the port; port 0 takes a free one.

        `notes` are the lines that the verbose `/readyz` adds, by the name of the check.
        """
        host = f"[{address}]" if ":" in address else address
        store = self.store
        documents = NonResourceHandlers(self.metrics.registry, self._gates, lambda: store.shortage)
        documents.notes.update(notes or {})
        http = HttpServer(
            self.resources,
            documents,
            tokens,
            self.authorizer,
            clock=self._clock,
            rand=self._rand,
            counts=self.metrics,
            bounds=limits,
        )
        port = await http.start(address, port, tls)
        documents.address = f"{host}:{port}"
        self._http = http
        return port

    @property
    def http(self) -> HttpServer:
        """The HTTP server, once it listens."""
        assert self._http is not None
        return self._http

    async def close(self) -> None:
        """End the watches, then the HTTP connections."""
        await self.dispatcher.close()
        if self._http is not None:
            await self._http.close()
