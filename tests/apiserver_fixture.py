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
    ApiServer,
    deletion,
    negotiation,
    options,
    routes,
    selection,
    storage_codec,
    watch_index,
)
from refloat.apiserver.http_request import Exchange
from refloat.apiserver.identity import ADMIN, Call
from refloat.apiserver.routes import Target
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


class ServerFixture:
    """Store, registry, watches and evictions, with time and chance in hand."""

    def __init__(
        self, *, seed: int = 1, jumps: bool = False, gates: dict[str, bool] | None = None
    ) -> None:
        self.clock = ManualClock(jumps=jumps)
        self.rand = Rand(seed)
        self.gates = Gates(gates)
        self.store = MemoryStore(Compaction(age=1e9))
        self.server = ApiServer(self.store, self.clock, self.rand, self.gates)
        self.registry = self.server.registry
        self.dispatcher = self.server.dispatcher

    def call(self, **more: Any) -> Call:
        return Call(ADMIN, self.clock.now(), **more)

    async def create(self, obj: Object, *, namespace: str = "default", **call: Any) -> Object:
        resource, body = _resource(obj), msgspec.json.encode(obj)
        context = self.call(**call)
        entry = await self.registry.create(
            context,
            resource,
            namespace if resource.namespaced else "",
            self.registry.decode(context, resource, body, "json"),
        )
        return storage_codec.unpack(resource, entry)

    def get(self, resource: kinds.Resource, name: str, *, namespace: str = "default") -> Object:
        return storage_codec.unpack(
            resource, self.registry.get(resource, _in(resource, namespace), name)
        )

    def exists(self, resource: kinds.Resource, name: str, *, namespace: str = "default") -> bool:
        return (
            self.store.get(storage_codec.key(resource, _in(resource, namespace), name)) is not None
        )

    async def replace(
        self, obj: Object, *, name: str = "", subresource: str = "", **call: Any
    ) -> tuple[Object, bool]:
        resource, context = _resource(obj), self.call(**call)
        body = msgspec.json.encode(obj)
        entry, created = await self.registry.replace(
            context,
            Target(
                resource, _in(resource, "default"), name or obj["metadata"]["name"], subresource
            ),
            lambda held: self.registry.decode(context, resource, body, "json", held),
        )
        return storage_codec.unpack(resource, entry), created

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

        target = Target(resource, _in(resource, "default"), name, subresource)
        entry = await self.registry.modify(self.call(**call), target, produce)
        return storage_codec.unpack(resource, entry)

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
        delete_options: deletion.Options | None = None,
        **call: Any,
    ) -> tuple[Object, bool]:
        entry, is_gone = await self.registry.delete(
            self.call(**call),
            Target(resource, _in(resource, "default"), name),
            delete_options or deletion.Options(),
        )
        return storage_codec.unpack(resource, entry), is_gone

    async def evict(
        self, name: str, delete_options: deletion.Options | None = None, **call: Any
    ) -> None:
        await self.server.evictions.evict(
            self.call(**call), Target(PODS, "default", name), delete_options or deletion.Options()
        )

    def watcher(
        self,
        resource: kinds.Resource,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        after: int | None = None,
        bookmarks: bool = False,
        encode: watch_index.Encode | None = None,
    ) -> watch_index.Watcher:
        """A watch from a revision on, by default from now on."""

        def plain(event_type: watch_index.EventType, entry: Entry) -> bytes:
            obj = negotiation.event_object(
                resource, entry, negotiation.PLAIN, self.clock.now(), headers=False
            )
            return b'{"type":"%s","object":%s}\n' % (event_type.encode(), obj)

        def bookmark(revision: int, initial_end: bool) -> bytes:
            return negotiation.bookmark(
                resource, negotiation.PLAIN, revision, now=self.clock.now(), initial_end=initial_end
            )

        return watch_index.Watcher(
            selection.select(resource, namespace, label_text=labels, field_text=fields),
            f"{resource.api_version}/plain",
            encode or plain,
            bookmark if bookmarks else None,
            self.store.revision if after is None else after,
        )

    @asynccontextmanager
    async def served(self) -> AsyncIterator["HttpCaller"]:
        """The verbs over HTTP; who asks is not asked."""

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            exchange = Exchange(request, request_id="id", clock=self.clock)
            exchange.parse_target()
            target = routes.parse(exchange.path)
            assert target is not None
            watch = options.flag(exchange.query, "watch")
            try:
                verb = routes.verb(request.method, target, watch=watch)
                return await self.server.resources.serve(exchange, ADMIN, verb, target)
            except errors.StatusError as error:
                return web.json_response(error.status(), status=error.code)

        server = web.Server(handle, access_log=None, handler_cancellation=True)
        runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port: int = runner.addresses[0][1]
        try:
            async with aiohttp.ClientSession() as session:
                yield HttpCaller(session, f"http://127.0.0.1:{port}")
        finally:
            await self.dispatcher.close()
            await runner.cleanup()


class HttpCaller:
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
            aclosing(_events(answer)) as events,
        ):
            yield events


async def _events(answer: aiohttp.ClientResponse) -> Any:
    async for line in answer.content:
        event = msgspec.json.decode(line)
        yield event["type"], event["object"]


async def started(**settings: Any) -> ServerFixture:
    """A world with the objects that every cluster begins with, and its watches running."""
    world = ServerFixture(**settings)
    await world.server.start()
    return world


async def drained(watcher: watch_index.Watcher, world: ServerFixture) -> list[tuple[str, str]]:
    """The events that a watcher has been given, as (type, name)."""
    return [(kind, obj["metadata"]["name"]) for kind, obj in await told(watcher, world)]


async def told(watcher: watch_index.Watcher, world: ServerFixture) -> list[tuple[str, Object]]:
    """The events that a watcher has been given, whole; it must not wait for any."""
    reading = asyncio.ensure_future(watcher.read(world.clock, 1.0))
    await world.clock.advance(1.0)
    chunk = await reading
    lines = (chunk or b"").splitlines()
    return [(each["type"], each["object"]) for each in map(msgspec.json.decode, lines)]


def query(text: str = "", **values: str) -> MultiDict[str]:
    """The query of an address, from `a=b&c=d` or by keyword."""
    pairs = [part.partition("=")[::2] for part in text.split("&") if part]
    return MultiDict([*pairs, *values.items()])


def _resource(obj: Object) -> kinds.Resource:
    return kinds.BY_KIND[obj["apiVersion"], obj["kind"]]


def _in(resource: kinds.Resource, namespace: str) -> str:
    return namespace if resource.namespaced else ""
