# SPDX-License-Identifier: Apache-2.0
"""A cluster on which scenarios run: one client, one watch of Jobs and one of pods.

Any client and any clock will do: `refloat up` over HTTP, a Kubernetes, or
`refloat.sim.Cluster` in virtual time. All scenarios share the watches: sixty
scenarios that each read their pods ten times a second would measure the server
instead of the controller.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from refloat.api import kinds
from refloat.api.meta import Object
from refloat.base.clock import Clock, RealClock
from refloat.base.rand import Rand
from refloat.base.tasks import Tasks
from refloat.client import errors
from refloat.client.contract import Client, EventType, Kind, Selector
from tests.scenarios import setting
from tests.scenarios.setting import Role, Setting

# Whole objects: the outcome has fields that no controller reads.
JOBS: Kind[Object] = Kind(kinds.of("jobs", "batch"), dict[str, Any])
PODS: Kind[Object] = Kind(kinds.of("pods"), dict[str, Any])
NODES: Kind[Object] = Kind(kinds.of("nodes"), dict[str, Any])
NAMESPACES: Kind[Object] = Kind(kinds.of("namespaces"), dict[str, Any])
ACCOUNTS: Kind[Object] = Kind(kinds.of("serviceaccounts"), dict[str, Any])
EVENTS: Kind[Object] = Kind(kinds.of("events", "events.k8s.io"), dict[str, Any])

ENDS = "REFLOAT_TEST_CLUSTER_ENDS"
"""The variable that is set for runs that need not clear up on a cluster."""

# The label of a namespace's namespace.
MADE_HERE = "refloat.dev/scenario"

# Connections over TLS close a little after `close`, and the loop
# must not end before.
CLOSING_SECONDS = 0.5

# After a watch was cut.
RETRY_SECONDS = 0.2

Listener = Callable[[str, EventType, Object], None]
"""Called with the plural of the kind, what happened, and the object."""


@dataclass
class ScenarioCluster:
    """A cluster with a role, and the listeners of its namespaces."""

    client: Client
    clock: Clock
    rand: Rand
    role: Role = "embedded"
    _listeners: dict[str, Listener] = field(default_factory=dict)
    _tasks: Tasks = field(default_factory=Tasks)

    @property
    def managed_by(self) -> str:
        """`spec.managedBy` of the Jobs; empty: none."""
        return setting.MANAGED_BY[self.role]

    async def open(self) -> None:
        """Follow Jobs and pods; returns when both watches are up."""
        ready = [asyncio.Event(), asyncio.Event()]
        for kind, event in zip((JOBS, PODS), ready, strict=True):
            self._tasks.spawn(self._follow(kind, event), name=f"follow {kind.resource.plural}")
        for event in ready:
            await event.wait()

    async def close(self) -> None:
        await self._tasks.close()

    async def namespace(self, title: str) -> str:
        """A new namespace that is ready for pods."""
        name = f"{title.replace('_', '-')[:50].strip('-')}-{self.rand.suffix()}"
        labels = {MADE_HERE: "true"}
        await self.client.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})
        while self.role != "embedded" and not await self._has_account(name):
            await self.clock.sleep(RETRY_SECONDS)
        return name

    async def _has_account(self, namespace: str) -> bool:
        """Kubernetes refuses all pods of a namespace until its controller has made the account."""
        try:
            await self.client.get(ACCOUNTS, "default", namespace=namespace)
        except errors.NotFound:
            return False
        return True

    def listen(self, namespace: str, listener: Listener) -> None:
        self._listeners[namespace] = listener

    def leave(self, namespace: str) -> None:
        self._listeners.pop(namespace, None)

    async def _follow(self, kind: Kind[Object], ready: asyncio.Event) -> None:
        while True:
            watch = self.client.watch(kind, initial_events=True)
            try:
                async for event in watch:
                    if event.object is not None:
                        self._tell(kind, event.type, event.object)
                    elif event.initial_end:
                        ready.set()
            except errors.ClientError:
                await self.clock.sleep(RETRY_SECONDS)
            finally:
                await watch.aclose()

    def _tell(self, kind: Kind[Object], what: EventType, obj: Object) -> None:
        listener = self._listeners.get(obj["metadata"]["namespace"])
        if listener is not None:
            listener(kind.resource.plural, what, obj)


async def sweep(on: Setting) -> None:
    """Delete the namespaces of all scenarios, unless the cluster ends with the run.

    Last of all, for emptying a namespace keeps a cluster busy for a while, and
    whatever else is played then is late.
    """
    if os.environ.get(ENDS):
        return
    client = on.connect()
    try:
        async for page in client.list(NAMESPACES, selector=Selector(labels=MADE_HERE)):
            for each in page.items:
                with contextlib.suppress(errors.NotFound, errors.Conflict):
                    await client.delete(NAMESPACES, each["metadata"]["name"])
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def opened(on: Setting) -> AsyncIterator[ScenarioCluster]:
    """The cluster of a setting, until the end of the block."""
    client = on.connect()
    cluster = ScenarioCluster(client, RealClock(), Rand(), on.role)
    try:
        await cluster.open()
        yield cluster
    finally:
        await cluster.close()
        await client.close()
        await asyncio.sleep(CLOSING_SECONDS)
