# SPDX-License-Identifier: Apache-2.0
"""An API server's core on a memory store, for tests below and above HTTP."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import aiohttp
import msgspec
from aiohttp import web
from multidict import MultiDict

from refloat.api import codec, errors, kinds
from refloat.api.meta import Object
from refloat.apiserver import (
    bootstrap,
    deletion,
    forms,
    options,
    selection,
    stored,
    targets,
    watching,
)
from refloat.apiserver.eviction import Evictions
from refloat.apiserver.exchange import Exchange
from refloat.apiserver.identity import ADMIN, Call
from refloat.apiserver.registry import Registry
from refloat.apiserver.resources import Resources
from refloat.base.gates import Gates
from refloat.base.rand import Rand
from refloat.store.compaction import Compaction
from refloat.store.contract import Entry
from refloat.store.memory import MemoryStore
from tests.clocks import ManualClock

PODS = kinds.of("pods")
JOBS = kinds.of("jobs", "batch")
NODES = kinds.of("nodes")
NAMESPACES = kinds.of("namespaces")
CONFIG_MAPS = kinds.of("configmaps")
EVENTS = kinds.of("events")
LEASES = kinds.of("leases", "coordination.k8s.io")
BUDGETS = kinds.of("poddisruptionbudgets", "policy")
PRIORITY_CLASSES = kinds.of("priorityclasses", "scheduling.k8s.io")


class World:
    """Store, registry, watches and evictions, with time and chance in hand."""

    def __init__(
        self, *, seed: int = 1, jumps: bool = False, gates: dict[str, bool] | None = None
    ) -> None:
        self.clock = ManualClock(jumps=jumps)
        self.rand = Rand(seed)
        self.gates = Gates(gates)
        self.store = MemoryStore(Compaction(age=1e9))
        self.registry = Registry(self.store, rand=self.rand, gates=self.gates)
        self.evictions = Evictions(self.registry, self.clock, self.gates)
        self.dispatcher = watching.Dispatcher(self.store, self.clock)

    def call(self, **more: Any) -> Call:
        return Call(ADMIN, self.clock.now(), **more)

    async def create(self, obj: Object, *, namespace: str = "default", **call: Any) -> Object:
        resource, made = _resource(obj), msgspec.json.encode(obj)
        context = self.call(**call)
        entry = await self.registry.create(
            context,
            resource,
            namespace if resource.namespaced else "",
            self.registry.decode(context, resource, made, "json"),
        )
        return stored.unpack(resource, entry)

    def get(self, resource: kinds.Resource, name: str, *, namespace: str = "default") -> Object:
        return stored.unpack(resource, self.registry.get(resource, _in(resource, namespace), name))

    def exists(self, resource: kinds.Resource, name: str, *, namespace: str = "default") -> bool:
        return self.store.get(stored.key(resource, _in(resource, namespace), name)) is not None

    async def replace(
        self, obj: Object, *, name: str = "", subresource: str = "", **call: Any
    ) -> tuple[Object, bool]:
        resource, context = _resource(obj), self.call(**call)
        body = msgspec.json.encode(obj)
        entry, created = await self.registry.replace(
            context,
            resource,
            _in(resource, "default"),
            name or obj["metadata"]["name"],
            lambda held: self.registry.decode(context, resource, body, "json", held),
            subresource=subresource,
        )
        return stored.unpack(resource, entry), created

    async def change(
        self,
        resource: kinds.Resource,
        name: str,
        change: Callable[[Object], object],
        *,
        subresource: str = "",
        **call: Any,
    ) -> Object:
        """Read, change in place, write."""

        def produce(old: Object) -> Object:
            new: Object = msgspec.json.decode(msgspec.json.encode(old))
            change(new)
            return new

        entry = await self.registry.modify(
            self.call(**call),
            resource,
            _in(resource, "default"),
            name,
            produce,
            subresource=subresource,
        )
        return stored.unpack(resource, entry)

    async def set_status(
        self, resource: kinds.Resource, name: str, *, dry_run: bool = False, **fields: Any
    ) -> Object:
        def change(obj: Object) -> None:
            obj["status"].update(fields)

        return await self.change(resource, name, change, subresource="status", dry_run=dry_run)

    async def delete(
        self,
        resource: kinds.Resource,
        name: str,
        wanted: deletion.Options | None = None,
        **call: Any,
    ) -> tuple[Object, bool]:
        entry, gone = await self.registry.delete(
            self.call(**call),
            resource,
            _in(resource, "default"),
            name,
            wanted or deletion.Options(),
        )
        return stored.unpack(resource, entry), gone

    async def evict(self, name: str, wanted: deletion.Options | None = None, **call: Any) -> None:
        await self.evictions.evict(self.call(**call), "default", name, wanted or deletion.Options())

    def watcher(
        self,
        resource: kinds.Resource,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        after: int | None = None,
        bookmarks: bool = False,
        encode: watching.Encode | None = None,
    ) -> watching.Watcher:
        """A watch from a revision on, by default from now on."""

        def plain(event_type: watching.EventType, entry: Entry) -> bytes:
            obj = forms.event_object(resource, entry, forms.PLAIN, self.clock.now(), headers=False)
            return b'{"type":"%s","object":%s}\n' % (event_type.encode(), obj)

        def bookmark(revision: int, initial_end: bool) -> bytes:
            return forms.bookmark(
                resource, forms.PLAIN, revision, now=self.clock.now(), initial_end=initial_end
            )

        return watching.Watcher(
            selection.select(resource, namespace, label_text=labels, field_text=fields),
            f"{resource.api_version}/plain",
            encode or plain,
            bookmark if bookmarks else None,
            self.store.revision if after is None else after,
        )

    @asynccontextmanager
    async def served(self) -> AsyncIterator["Face"]:
        """The verbs over HTTP; who asks is not asked."""
        resources = Resources(
            self.registry, self.dispatcher, self.evictions, clock=self.clock, rand=self.rand
        )

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            exchange = Exchange(request, request_id="id", clock=self.clock)
            exchange.read_head()
            target = targets.parse(exchange.path)
            assert target is not None
            watch = options.flag(exchange.query, "watch")
            try:
                verb = targets.verb(request.method, target, watch=watch)
                return await resources.serve(exchange, ADMIN, verb, target)
            except errors.StatusError as error:
                return web.json_response(error.status(), status=error.code)

        server = web.Server(handle, access_log=None, handler_cancellation=True)
        runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port: int = runner.addresses[0][1]
        try:
            async with aiohttp.ClientSession() as session:
                yield Face(session, f"http://127.0.0.1:{port}")
        finally:
            await self.dispatcher.close()
            await runner.cleanup()


class Face:
    """What a client sees of a world."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        media: str = "application/json",
        accept: str = "*/*",
    ) -> tuple[int, Any]:
        data = None if body is None else body if isinstance(body, bytes) else codec.encode(body)
        headers = {"Content-Type": media} if data is not None else {}
        headers["Accept"] = accept
        async with self._session.request(
            method, self._url + path, data=data, headers=headers
        ) as answer:
            return answer.status, msgspec.json.decode(await answer.read())

    @asynccontextmanager
    async def watch(self, path: str) -> AsyncIterator[AsyncIterator[tuple[str, Object]]]:
        """The events of a watch; `path` has the query."""
        async with (
            self._session.get(self._url + path) as answer,
            aclosing(_events(answer)) as found,
        ):
            yield found


async def _events(answer: aiohttp.ClientResponse) -> Any:
    async for line in answer.content:
        told = msgspec.json.decode(line)
        yield told["type"], told["object"]


async def started(**settings: Any) -> World:
    """A world with the objects that every cluster begins with, and its watches running."""
    world = World(**settings)
    await bootstrap.ensure(world.registry, world.clock)
    world.dispatcher.position = world.store.revision
    world.dispatcher.start()
    return world


async def drained(watcher: watching.Watcher, world: World) -> list[tuple[str, str]]:
    """The events that a watcher has been given, as (type, name)."""
    return [(kind, obj["metadata"]["name"]) for kind, obj in await told(watcher, world)]


async def told(watcher: watching.Watcher, world: World) -> list[tuple[str, Object]]:
    """The events that a watcher has been given, whole; it must not wait for any."""
    read = asyncio.ensure_future(watcher.read(world.clock, 1.0))
    await world.clock.advance(1.0)
    found = await read
    lines = (found or b"").splitlines()
    return [(each["type"], each["object"]) for each in map(msgspec.json.decode, lines)]


def query(text: str = "", **values: str) -> MultiDict[str]:
    """The query of an address, from `a=b&c=d` or by keyword."""
    pairs = [part.partition("=")[::2] for part in text.split("&") if part]
    return MultiDict([*pairs, *values.items()])


def _resource(obj: Object) -> kinds.Resource:
    return kinds.BY_KIND[obj["apiVersion"], obj["kind"]]


def _in(resource: kinds.Resource, namespace: str) -> str:
    return namespace if resource.namespaced else ""
