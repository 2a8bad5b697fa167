# SPDX-License-Identifier: Apache-2.0
"""A server that can be followed, and that fails on command.

The server knows only what an informer asks of one: lists in chunks, watches from a
resourceVersion, initial events, bookmarks. A test can forget, rewind and cut off
can forget, rewind and cut off. It behaves as Kubernetes does where that
matters: a watch from a future resourceVersion is silent, and an object is
decoded anew for every reader.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import msgspec

from refloat.api.meta import Object
from refloat.base.clock import Clock
from refloat.client import contract, errors
from refloat.client.contract import EVERYTHING, Client, Kind, ListPage, Selector, WatchEvent

T = TypeVar("T")

BOOKMARK_SECONDS = 60.0


@dataclass(frozen=True)
class HistoryEntry:
    """One entry of the history."""

    version: int
    type: Any
    key: str
    sent: bytes


@dataclass
class OpenWatch:
    """What a test can do to an open watch."""

    position: int
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    failure: Exception | None = None
    over: bool = False
    closed: bool = False

    def fail(self, failure: Exception) -> None:
        self.failure = failure
        self.woken.set()

    def end(self) -> None:
        self.over = True
        self.woken.set()


class FakeServer:
    """The truth, its history, and the ways in which it can be hidden."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.version = 100
        self.forgotten = 0  # changes up to this version are not known any more
        self.objects: dict[str, bytes] = {}
        self.history: list[HistoryEntry] = []
        self.calls: list[str] = []
        self.watches: list[OpenWatch] = []
        self.failures: list[Exception] = []  # one for each of the next calls
        self.knows_initial_events = True
        self.bookmarks = True
        self.bookmark_version: Callable[[int], str] = str
        self.silent = False  # nothing comes, and nothing ends
        self.page_pause = 0.0  # how long the next chunk of a list takes
        self.initial_pause = 0.0  # how long the next initial event takes
        self.changes_among_initial = False  # do they come before the end of the initial events?
        self._uids = 0
        self._restarts = 0

    # What happens to objects

    def put(self, name: str, *, namespace: str = "default", **parts: Any) -> None:
        """Create or change an object."""
        key = f"{namespace}/{name}"
        present = self.objects.get(key)
        self._uids += not present
        uid = msgspec.json.decode(present)["metadata"]["uid"] if present else f"uid-{self._uids}"
        self.version += 1
        metadata = {"name": name, "namespace": namespace, "uid": uid, **parts.pop("metadata", {})}
        metadata["resourceVersion"] = str(self.version)
        self._note("MODIFIED" if present else "ADDED", key, {"metadata": metadata, **parts})

    def drop(self, name: str, *, namespace: str = "default") -> None:
        key = f"{namespace}/{name}"
        last: Object = msgspec.json.decode(self.objects[key])
        self.version += 1
        last["metadata"]["resourceVersion"] = str(self.version)
        self._note("DELETED", key, last)

    def _note(self, kind: str, key: str, obj: Object) -> None:
        body = msgspec.json.encode(obj)
        self.history.append(HistoryEntry(self.version, kind, key, body))
        if kind == "DELETED":
            del self.objects[key]
        else:
            self.objects[key] = body
        self._wake()

    def _wake(self) -> None:
        for watch in self.watches:
            watch.woken.set()

    # What happens to the server

    def cut(self) -> None:
        """Break all connections."""
        for watch in list(self.watches):
            watch.fail(errors.Unavailable("it was cut"))

    def end_watches(self) -> None:
        """End all watches in order."""
        for watch in list(self.watches):
            watch.end()

    def forget(self) -> None:
        """Forget all history; open watches get no event about that."""
        self.forgotten = self.version

    def expire_watches(self) -> None:
        """Forget all history, and end open watches with 410."""
        self.forget()
        for watch in list(self.watches):
            watch.fail(errors.Expired("too old resource version", code=410))

    def rewind(self, version: int) -> None:
        """Restore an older state, as from a backup, and restart."""
        self._restarts += 1
        self.history = [each for each in self.history if each.version <= version]
        self.version = version
        self.objects = {}
        for each in self.history:
            if each.type == "DELETED":
                self.objects.pop(each.key, None)
            else:
                self.objects[each.key] = each.sent
        self.cut()

    # What clients ask

    def _called(self, call: str) -> None:
        self.calls.append(call)
        if self.failures:
            raise self.failures.pop(0)

    async def list(
        self,
        kind: Kind[T],
        *,
        namespace: str = "",
        selector: Selector = EVERYTHING,
        limit: int = 500,
        resource_version: str = "",
    ) -> AsyncIterator[ListPage[T]]:
        self._called("probe" if limit == 1 else "list")
        version, present, restarts = self.version, list(self.objects.values()), self._restarts
        for start in range(0, max(1, len(present)), limit):
            if start:
                self._called("next page")
                await self.clock.sleep(self.page_pause)
                if restarts != self._restarts:
                    raise errors.Unavailable("it was cut")
                if version < self.forgotten:
                    raise errors.Expired("the continue token is too old", code=410)
            items = [kind.decoder.decode(each) for each in present[start : start + limit]]
            yield ListPage(items, str(version), last=start + limit >= len(present))

    def watch(
        self,
        kind: Kind[T],
        *,
        namespace: str = "",
        selector: Selector = EVERYTHING,
        resource_version: str = "",
        initial_events: bool = False,
        timeout_seconds: int | None = None,
    ) -> contract.Watch[T]:
        events = self._watch(kind, resource_version, initial_events=initial_events)
        return cast("contract.Watch[T]", events)

    async def _watch(
        self, kind: Kind[T], resource_version: str, *, initial_events: bool
    ) -> AsyncGenerator[WatchEvent[T], None]:
        self._called(f"watch {resource_version}" if resource_version else "stream")
        if initial_events and not self.knows_initial_events:
            raise errors.Invalid("sendInitialEvents is forbidden for watch", code=422)
        if resource_version and int(resource_version) < self.forgotten:
            raise errors.Expired("too old resource version", code=410)
        watch = OpenWatch(int(resource_version or self.version))
        self.watches.append(watch)
        try:
            if initial_events:
                async with aclosing(self._initial(kind, watch)) as initial:
                    async for event in initial:
                        yield event
            async with aclosing(self._changes(kind, watch)) as changes:
                async for event in changes:
                    yield event
        finally:
            watch.closed = True
            self.watches.remove(watch)

    async def _initial(
        self, kind: Kind[T], watch: OpenWatch
    ) -> AsyncGenerator[WatchEvent[T], None]:
        for body in list(self.objects.values()):
            await self._pause(watch)
            version = msgspec.json.decode(body)["metadata"]["resourceVersion"]
            yield WatchEvent("ADDED", kind.decoder.decode(body), version)
        await self._pause(watch)
        for change in list(self.history) if self.changes_among_initial else []:
            if change.version > watch.position:
                watch.position = change.version
                yield WatchEvent(change.type, kind.decoder.decode(change.sent), str(change.version))
        yield WatchEvent("BOOKMARK", None, str(watch.position), initial_end=True)

    async def _pause(self, watch: OpenWatch) -> None:
        await self.clock.sleep(self.initial_pause)
        if watch.failure is not None:
            raise watch.failure

    async def _changes(
        self, kind: Kind[T], watch: OpenWatch
    ) -> AsyncGenerator[WatchEvent[T], None]:
        while True:
            for change in [] if self.silent or watch.failure else list(self.history):
                if change.version > watch.position:
                    watch.position = change.version
                    obj = kind.decoder.decode(change.sent)
                    yield WatchEvent(change.type, obj, str(change.version))
            if watch.failure is not None:
                raise watch.failure
            if watch.over:
                return
            if not await self._woken(watch) and self._has_bookmark(watch):
                watch.position = self.version
                yield WatchEvent("BOOKMARK", None, self.bookmark_version(self.version))

    def _has_bookmark(self, watch: OpenWatch) -> bool:
        if not self.bookmarks or self.silent or watch.position > self.version:
            return False
        return all(change.version <= watch.position for change in self.history)

    async def _woken(self, watch: OpenWatch) -> bool:
        watch.woken.clear()
        try:
            async with self.clock.timeout(BOOKMARK_SECONDS):
                await watch.woken.wait()
        except TimeoutError:
            return False
        return True


class FollowedClient(FakeServer):
    """The server as a `Client` that can read; writing is not asked for."""

    async def _never(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("an informer only lists and watches")

    get = create = patch = delete = evict = bind = finalize = log = _never

    async def close(self) -> None:
        pass


def _is_a_client(server: FollowedClient) -> Client:
    return server
