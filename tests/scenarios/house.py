# SPDX-License-Identifier: Apache-2.0
"""One cluster that many stages share: one client, one watch of Jobs and one of pods.

Sixty scenarios that each ask for their pods ten times a second would measure
the server instead of the controller; here each change arrives once and goes to
the stage whose namespace it is in.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from refloat.api import kinds
from refloat.api.meta import Object
from refloat.base.rand import Rand
from refloat.base.tasks import Tasks
from refloat.client import errors
from refloat.client.contract import EventType, Kind, Selector
from refloat.client.http import HttpClient
from tests.scenarios.setting import Setting

# Whole objects: the outcome has fields that no controller reads.
JOBS: Kind[Object] = Kind(kinds.of("jobs", "batch"), dict[str, Any])
PODS: Kind[Object] = Kind(kinds.of("pods"), dict[str, Any])
NODES: Kind[Object] = Kind(kinds.of("nodes"), dict[str, Any])
NAMESPACES: Kind[Object] = Kind(kinds.of("namespaces"), dict[str, Any])
ACCOUNTS: Kind[Object] = Kind(kinds.of("serviceaccounts"), dict[str, Any])
EVENTS: Kind[Object] = Kind(kinds.of("events", "events.k8s.io"), dict[str, Any])

ENDS = "REFLOAT_TEST_CLUSTER_ENDS"
"""The variable that is set for whoever need not clear up on a cluster."""

# The label of a stage's namespace.
MADE_HERE = "refloat.dev/stage"

# Connections over TLS are closed a little after they were told to, and the loop
# must not end before.
CLOSING_SECONDS = 0.5

# After a watch was cut.
RETRY_SECONDS = 0.2

Listener = Callable[[str, EventType, Object], None]
"""Called with the plural of the kind, what happened, and the object."""


@dataclass
class House:
    """A connection to one setting, and who listens in which namespace."""

    setting: Setting
    client: HttpClient
    rand: Rand = field(default_factory=Rand)
    _listeners: dict[str, Listener] = field(default_factory=dict)
    _tasks: Tasks = field(default_factory=Tasks)

    async def open(self) -> None:
        """Follow Jobs and pods; returns when both watches are up."""
        ready = [asyncio.Event(), asyncio.Event()]
        for kind, event in zip((JOBS, PODS), ready, strict=True):
            self._tasks.spawn(self._follow(kind, event), name=f"follow {kind.resource.plural}")
        for event in ready:
            await event.wait()

    async def close(self) -> None:
        await self._tasks.close()
        await self.client.close()
        await asyncio.sleep(CLOSING_SECONDS)

    async def namespace(self, title: str) -> str:
        """A new namespace that is ready for pods."""
        name = f"{title.replace('_', '-')[:50].strip('-')}-{self.rand.suffix()}"
        labels = {MADE_HERE: "true"}
        await self.client.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})
        while self.setting.name != "embedded" and not await self._has_account(name):
            await asyncio.sleep(RETRY_SECONDS)
        return name

    async def _has_account(self, namespace: str) -> bool:
        """Kubernetes refuses all pods of a namespace until its controller has made this."""
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
                await asyncio.sleep(RETRY_SECONDS)
            finally:
                await watch.aclose()

    def _tell(self, kind: Kind[Object], what: EventType, obj: Object) -> None:
        listener = self._listeners.get(obj["metadata"]["namespace"])
        if listener is not None:
            listener(kind.resource.plural, what, obj)


async def sweep(setting: Setting) -> None:
    """Have all namespaces of all stages deleted, unless their cluster ends with the run.

    Last of all, for emptying a namespace keeps a cluster busy for a while, and
    whatever else is played then is late.
    """
    if os.environ.get(ENDS):
        return
    client = setting.connect()
    try:
        async for page in client.list(NAMESPACES, selector=Selector(labels=MADE_HERE)):
            for each in page.items:
                with contextlib.suppress(errors.NotFound, errors.Conflict):
                    await client.delete(NAMESPACES, each["metadata"]["name"])
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def opened(setting: Setting) -> AsyncIterator[House]:
    """A house until the end of the block."""
    house = House(setting, setting.connect())
    try:
        await house.open()
        yield house
    finally:
        await house.close()
