# SPDX-License-Identifier: Apache-2.0
"""A cache of one kind that a watch keeps up to date, and the handlers of its changes.

Each handler gets a `Change`. The changes of one object form a possible history:
the object appears, changes and is gone, and `old` is always the `new` of the
change before. Several changes during a cut of the watch may arrive as one. An
object that was replaced by another of the same name is gone first. An object
that is gone is shown in its last cached version. While a handler runs, the
cache has the state of the change.

Handlers are called one after the other and must be quick: they add a key to a
queue and return. `reflector` follows the server.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from refloat.api.structs import ApiObject
from refloat.base.clock import Clock
from refloat.base.rand import Rand
from refloat.base.tasks import Tasks
from refloat.client.contract import EVERYTHING, Client, Kind, Selector
from refloat.runtime.cache import Cache, key_of
from refloat.runtime.compact_objects import Compactor
from refloat.runtime.index import Index
from refloat.runtime.reflector import FollowSettings, Reflector

log = logging.getLogger(__name__)

T = TypeVar("T", bound=ApiObject)


@dataclass(slots=True)
class Change(Generic[T]):
    """An object before and after a change; at least one of them is not None."""

    old: T | None
    """None when the object appears."""

    new: T | None
    """None when the object is gone."""

    @property
    def current(self) -> T:
        """The object after the change, or its last version if it is gone."""
        current = self.new if self.new is not None else self.old
        assert current is not None
        return current


Handler: TypeAlias = Callable[[Change[T]], object]


class Informer(Generic[T]):
    """All objects of a kind, or the selected ones, in their last known version."""

    def __init__(
        self,
        client: Client,
        kind: Kind[T],
        *,
        clock: Clock,
        rand: Rand,
        namespace: str = "",
        selector: Selector = EVERYTHING,
        indexes: Iterable[Index[T]] = (),
        settings: FollowSettings | None = None,
    ) -> None:
        self.name = kind.resource.plural
        self.cache: Cache[T] = Cache(indexes)
        self._mirror = _Mirror(self.cache, Compactor(kind.type))
        self._reflector = Reflector(
            client,
            kind,
            self._mirror,
            clock=clock,
            rand=rand,
            namespace=namespace,
            selector=selector,
            settings=settings,
        )
        self._tasks = Tasks()

    def add_handler(self, handler: Handler[T]) -> None:
        """Call the handler for each cached object, and then for every change."""
        self._mirror.add_handler(handler)

    def start(self) -> None:
        """Follow the server from now on, until `close`."""
        self._tasks.spawn(self._reflector.run(), name=f"informer/{self.name}")

    @property
    def has_synced(self) -> bool:
        """Whether the cache was complete once; before, a missing object may exist."""
        return self._mirror.synced.is_set()

    def has_seen(self, version: str) -> bool:
        """Whether the cache has all changes up to this resourceVersion."""
        return self._reflector.has_seen(version)

    @property
    def failed_at(self) -> float | None:
        """The end of the last time without the server, on the monotonic clock; None if never."""
        return self._reflector.failed_at

    async def wait_synced(self) -> None:
        await self._mirror.synced.wait()

    async def close(self) -> None:
        """Stop at once. The cache stays unchanged, and no handler is called any more."""
        await self._tasks.close()


class _Mirror(Generic[T]):
    """Puts the objects of the server into the cache, and calls the handlers."""

    def __init__(self, cache: Cache[T], compactor: Compactor[T]) -> None:
        self.synced = asyncio.Event()
        self._cache = cache
        self._compactor = compactor
        # Replaced, never changed: a handler may add another one.
        self._handlers: tuple[Handler[T], ...] = ()
        # The keys that were cached at `begin`, and have not come since.
        self._missing: dict[str, None] = {}

    def add_handler(self, handler: Handler[T]) -> None:
        self._handlers = (*self._handlers, handler)
        for obj in list(self._cache):
            _call(handler, Change(None, obj))

    def begin(self) -> None:
        self._missing = dict.fromkeys(self._cache.keys())

    def put(self, obj: T) -> None:
        key = key_of(obj)
        if self._missing:
            self._missing.pop(key, None)
        old = self._cache.get(key)
        self._compactor.compact(obj, old)
        if old is not None:
            if old.metadata.uid != obj.metadata.uid:
                self._remove(key, old)
                old = None
            elif old == obj:
                return  # compares everything: a restored server reuses resourceVersions
        self._cache.put(key, obj)
        self._call_all(old, obj)

    def remove(self, obj: T) -> None:
        key = key_of(obj)
        self._missing.pop(key, None)
        old = self._cache.get(key)
        if old is not None:  # else the object appeared and went during a cut
            self._remove(key, old)

    def complete(self) -> None:
        for key in self._missing:
            if (old := self._cache.get(key)) is not None:
                self._remove(key, old)
        self._missing = {}
        self.synced.set()

    def _remove(self, key: str, old: T) -> None:
        self._cache.remove(key)
        self._call_all(old, None)

    def _call_all(self, old: T | None, new: T | None) -> None:
        change = Change(old, new)
        for handler in self._handlers:
            _call(handler, change)


def _call(handler: Handler[T], change: Change[T]) -> None:
    try:
        handler(change)
    except Exception:
        log.exception("a handler failed on %s", key_of(change.current))
