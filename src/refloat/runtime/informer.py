# SPDX-License-Identifier: Apache-2.0
"""A cache of one kind that a watch keeps up to date, and who is told of changes.

Handlers get what was and what is: (None, new) when an object appears, (old,
new) when it changes, (old, None) when it is gone. For each object they see a
history that could have been: it appears, changes, and is gone, and `old` is
always the `new` of before. Changes that followed each other while nobody
looked may be one; an object that was replaced by another one of its name is
gone first. An object that is gone is told as it was last seen, not as it was
when it went. While a handler runs, the cache is in the state that it is told.

Handlers are called one after the other and must be quick: they note a key
and leave the rest to a queue. How the server is followed is in `reflector`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Generic, TypeAlias, TypeVar

from refloat.api.structs import ApiObject
from refloat.base.clock import Clock
from refloat.base.rand import Rand
from refloat.base.tasks import Tasks
from refloat.client.contract import EVERYTHING, Client, Kind, Selector
from refloat.runtime.cache import Cache, key_of
from refloat.runtime.compact import Compactor
from refloat.runtime.index import Index
from refloat.runtime.reflector import FollowSettings, Reflector

log = logging.getLogger(__name__)

T = TypeVar("T", bound=ApiObject)

Handler: TypeAlias = Callable[[T | None, T | None], object]
"""Called with what was and what is; at least one of them is an object."""


class Informer(Generic[T]):
    """All objects of a kind, or those selected, as the server last told of them."""

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
        """Tell it of every change from now on, and first of all that is there."""
        self._mirror.add_handler(handler)

    def start(self) -> None:
        """Begin to follow the server, until `close`."""
        self._tasks.spawn(self._reflector.run(), name=f"informer/{self.name}")

    @property
    def has_synced(self) -> bool:
        """Has the cache been complete once? Before that it says nothing of what is missing."""
        return self._mirror.synced.is_set()

    def has_seen(self, version: str) -> bool:
        """Does the cache have all changes up to this resourceVersion?"""
        return self._reflector.has_seen(version)

    @property
    def failed_at(self) -> float | None:
        """Until when the server last could not be followed (monotonic clock); None if never."""
        return self._reflector.failed_at

    async def wait_synced(self) -> None:
        await self._mirror.synced.wait()

    async def close(self) -> None:
        """Stop at once. The cache stays as it is; no handler is called any more."""
        await self._tasks.close()


class _Mirror(Generic[T]):
    """Makes the cache what the server tells, and tells the handlers."""

    def __init__(self, cache: Cache[T], compactor: Compactor[T]) -> None:
        self.synced = asyncio.Event()
        self._cache = cache
        self._compactor = compactor
        # Replaced, never changed: a handler may add another one.
        self._handlers: tuple[Handler[T], ...] = ()
        # What was there when all objects began to be told and has not come yet.
        self._missing: dict[str, None] = {}

    def add_handler(self, handler: Handler[T]) -> None:
        self._handlers = (*self._handlers, handler)
        for obj in list(self._cache):
            _call(handler, None, obj)

    def begin(self) -> None:
        self._missing = dict.fromkeys(self._cache.keys())

    def tell(self, obj: T) -> None:
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
                return  # not by the version alone: a restored server gives them out again
        self._cache.put(key, obj)
        self._call_all(old, obj)

    def tell_gone(self, obj: T) -> None:
        key = key_of(obj)
        self._missing.pop(key, None)
        old = self._cache.get(key)
        if old is not None:  # else it came and went while nobody looked
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
        for handler in self._handlers:
            _call(handler, old, new)


def _call(handler: Handler[T], old: T | None, new: T | None) -> None:
    try:
        handler(old, new)
    except Exception:
        told = new if new is not None else old
        log.exception("a handler failed on %s", "" if told is None else key_of(told))
