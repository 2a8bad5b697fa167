# SPDX-License-Identifier: Apache-2.0
"""A cluster on which scenarios run: one client, and one watch of each kind.

All scenarios share the watches: sixty scenarios that each read their pods ten times a
second would measure the server instead of the controller.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from refloat.api import kinds
from refloat.api.meta import Object
from refloat.base.clock import Clock
from refloat.base.rand import Rand
from refloat.base.tasks import Tasks
from refloat.client import errors, kubeconfig
from refloat.client.contract import Client, EventType, Kind, Selector
from refloat.client.http import HttpClient
from refloat.client.settings import ClientSettings


def whole(plural: str, group: str = "") -> Kind[Object]:
    """A kind with whole objects: scenarios compare fields that no controller reads."""
    return Kind(kinds.of(plural, group), dict[str, Any])


JOBS = whole("jobs", "batch")
PODS = whole("pods")
NODES = whole("nodes")
NAMESPACES = whole("namespaces")
ACCOUNTS = whole("serviceaccounts")
EVENTS = whole("events", "events.k8s.io")

LABEL = "refloat.dev/scenario"
"""The label of the namespaces of scenarios."""

# Connections over TLS close a little after `close`, and the loop must not end before.
CLOSING_SECONDS = 0.5

# After a watch was cut.
RETRY_SECONDS = 0.2

Listener: TypeAlias = Callable[[str, EventType, Object], None]
"""Called with the plural of the kind, the type of the event, and the object."""


class NodeFaults(Protocol):
    """Makes nodes fail and return."""

    def fail(self, name: str, fault: Literal["crash", "freeze", "partition"]) -> None: ...

    def heal(self, name: str) -> None: ...


@dataclass
class ScenarioCluster:
    """The watches of a cluster, and the listeners of each namespace."""

    client: Client
    clock: Clock
    rand: Rand
    managed_by: str = ""
    """`spec.managedBy` of the Jobs; empty: none."""
    needs_account: bool = False
    """Whether the cluster refuses pods until a namespace has its service account."""
    faults: NodeFaults | None = None
    """Of a cluster whose nodes a scenario may silence."""
    _present: dict[tuple[str, str], Object] = field(default_factory=dict)
    """By plural and uid."""
    _listeners: dict[str, list[Listener]] = field(default_factory=dict)
    _tasks: Tasks = field(default_factory=Tasks)

    async def open(self, *more: Kind[Object]) -> None:
        """Watch Jobs, pods, nodes and more kinds; returns when all watches are up."""
        for kind in (JOBS, PODS, NODES, *more):
            ready = asyncio.Event()
            self._tasks.spawn(self._follow(kind, ready), name=f"follow {kind.resource.plural}")
            await ready.wait()

    async def close(self) -> None:
        await self._tasks.close()

    async def namespace(self, title: str) -> str:
        """A new namespace that is ready for pods."""
        name = f"{title.replace('_', '-')[:50].strip('-')}-{self.rand.suffix()}"
        body = {"metadata": {"name": name, "labels": {LABEL: "true"}}}
        await self.client.create(NAMESPACES, body)
        while self.needs_account:
            try:
                await self.client.get(ACCOUNTS, "default", namespace=name)
                break
            except errors.NotFound:
                await self.clock.sleep(RETRY_SECONDS)
        return name

    def listen(self, namespace: str, listener: Listener) -> None:
        """Call a listener with each present object as ADDED, and then with each event.

        Objects without a namespace, such as nodes, are in the namespace "".
        """
        for (plural, _), obj in self._present.items():
            if obj["metadata"].get("namespace", "") == namespace:
                listener(plural, "ADDED", obj)
        self._listeners.setdefault(namespace, []).append(listener)

    def leave(self, namespace: str) -> None:
        self._listeners.pop(namespace, None)

    async def _follow(self, kind: Kind[Object], ready: asyncio.Event) -> None:
        plural = kind.resource.plural
        while True:
            watch = self.client.watch(kind, initial_events=True)
            missing = {key: obj for key, obj in self._present.items() if key[0] == plural}
            try:
                async for event in watch:
                    if event.object is not None:
                        missing.pop((plural, event.object["metadata"]["uid"]), None)
                        self._pass_on(plural, event.type, event.object)
                    elif event.initial_end:
                        for obj in missing.values():  # deleted while the watch was cut
                            self._pass_on(plural, "DELETED", obj)
                        missing = {}
                        ready.set()
            except errors.ClientError:
                await self.clock.sleep(RETRY_SECONDS)
            finally:
                await watch.aclose()

    def _pass_on(self, plural: str, event: EventType, obj: Object) -> None:
        meta = obj["metadata"]
        self._present[plural, meta["uid"]] = obj
        if event == "DELETED":
            del self._present[plural, meta["uid"]]
        for listener in self._listeners.get(meta.get("namespace", ""), ()):
            listener(plural, event, obj)


@contextlib.asynccontextmanager
async def connected(
    file: Path, clock: Clock, rand: Rand, **options: Any
) -> AsyncIterator[ScenarioCluster]:
    """The cluster of a kubeconfig; `options` are fields of `ScenarioCluster`.

    The client has no limit of its own: scenarios wait only for the cluster.
    """
    settings = ClientSettings(component="scenarios", field_manager="scenarios", qps=0)
    client = HttpClient(kubeconfig.load([file]), clock=clock, rand=rand, settings=settings)
    cluster = ScenarioCluster(client, clock, rand, **options)
    try:
        await cluster.open()
        yield cluster
    finally:
        await cluster.close()
        await client.close()
        await clock.sleep(CLOSING_SECONDS)


async def delete_namespaces(cluster: ScenarioCluster) -> None:
    """Delete the namespaces of all scenarios.

    Last of all: the deletions keep a cluster busy for a while, and delay other scenarios.
    """
    async for page in cluster.client.list(NAMESPACES, selector=Selector(labels=LABEL)):
        for each in page.items:
            with contextlib.suppress(errors.NotFound, errors.Conflict):
                await cluster.client.delete(NAMESPACES, each["metadata"]["name"])
