# SPDX-License-Identifier: Apache-2.0
"""Follows the objects of one kind on a server, through all failures.

First come all objects, then every change; after a cut the changes since the
position. The reflector passes them to a `Mirror`, and keeps the position only.

* All objects come as the initial events of a watch, or, if the server does not
  support that, as a list in chunks. Both are consistent reads of the present,
  never of a cache that lags. So no object is older than before, unless the
  server's own history went back.
* The position is set when all objects have come, and then by every event and
  bookmark. After a cut in the first part, the first part begins anew.
* If the server has forgotten the changes since the position (410, as answer or
  as event), the reflector lists everything anew.
* A server that was restored to an older state sends no error: no event comes
  until its resourceVersion has passed ours. So after every failure the reflector
  reads the present resourceVersion, and lists everything anew if this version, or
  that of an event, is smaller than the position.
* The reflector compares resourceVersions as numbers if they are numbers, as
  Kubernetes allows since 1.35; others are only equal or different.
"""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, cast

from refloat.base.clock import Clock
from refloat.base.rand import Rand
from refloat.client import errors
from refloat.client.contract import EVERYTHING, Client, Kind, ListPage, Selector, WatchEvent
from refloat.runtime.idle_timeout import IdleGuard

log = logging.getLogger(__name__)

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

# Objects that are handled in one turn of the event loop: about 5 ms, so that a long
# list does not block the loop.
PER_TURN = 100

# A watch that resumes so soon after the last event has missed nothing: some load balancers cut
# watches every half a minute. An outage of the server is longer.
RESUME_SECONDS = 5.0

# A larger power of 2 is above any cap, and soon above the largest float.
_LARGEST_EXPONENT = 62


@dataclass(frozen=True, slots=True)
class FollowSettings:
    """The waits and bounds of a reflector."""

    retry_seconds: float = 0.2
    """The wait after the first failure; doubles with each. Short, because most are restarts."""

    retry_cap_seconds: float = 30.0
    """The longest wait; what Kubernetes' clients have."""

    retry_jitter: float = 1.0
    """Waits are raised by up to this share, so that a thousand clients do not come back at once."""

    idle_seconds: float = 90.0
    """A watch without an event for so long is dead: servers send a bookmark every minute."""

    watch_seconds: float = 300.0
    """The least duration of a watch; the most is twice as long, as in Kubernetes' clients."""

    short_seconds: float = 1.0
    """A watch that ends earlier and without an event counts as a failure."""

    initial_events: bool = True
    """Request all objects as initial events of a watch, as long as the server supports that."""

    page_size: int = 250
    """Objects in a chunk of a list: 1.5 MB of pods, decoded in about 5 ms. The process keeps the
    memory that the decoding of a chunk needs."""


class Mirror(Protocol[T_contra]):
    """Keeps the objects."""

    def begin(self) -> None:
        """All objects come from now on, from the beginning."""
        ...

    def put(self, obj: T_contra) -> None:
        """An object exists, in this version."""
        ...

    def remove(self, obj: T_contra) -> None:
        """An object is gone."""
        ...

    def complete(self) -> None:
        """All objects have come; others do not exist."""
        ...


class Rewound(Exception):
    """The server's history went back; never leaves this module."""


class Reflector(Generic[T]):
    """Follows all objects of one kind, or the selected ones, for ever."""

    def __init__(
        self,
        client: Client,
        kind: Kind[T],
        mirror: Mirror[T],
        *,
        clock: Clock,
        rand: Rand,
        namespace: str = "",
        selector: Selector = EVERYTHING,
        settings: FollowSettings | None = None,
    ) -> None:
        self._client = client
        self._kind = kind
        self._mirror = mirror
        self._clock = clock
        self._rand = rand
        self._namespace = namespace
        self._selector = selector
        self._settings = settings or FollowSettings()
        # Whether the server can send all objects as initial events.
        self._streams = self._settings.initial_events
        self._position = ""  # empty: all objects have to be listed
        self._doubtful = False  # whether there was a failure since the position was set
        self._failures = 0  # in a row
        self._failed_at: float | None = None
        self._heard_at = clock.monotonic()  # the time of the server's last event
        self._is_cut_off = False
        self._taken = 0

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            started, position = self._clock.monotonic(), self._position
            error: Exception | None = None
            try:
                await self._follow()
            except Exception as failure:
                error = failure
            lasted = self._clock.monotonic() - started
            if error is None and (
                self._position == position and lasted < self._settings.short_seconds
            ):
                error = errors.Unavailable("the watch ended at once")
            if error is not None:
                await self._failed(error, lasted)

    @property
    def failed_at(self) -> float | None:
        """The end of the last time without the server, on the monotonic clock.

        A short cut after which the watch resumed does not count.
        """
        return self._clock.monotonic() if self._is_out else self._failed_at

    @property
    def _is_out(self) -> bool:
        return self._is_cut_off and self._clock.monotonic() - self._heard_at > RESUME_SECONDS

    def has_seen(self, version: str) -> bool:
        """Whether the mirror has everything up to this resourceVersion.

        False during a new list; true if the versions cannot be compared.
        """
        return bool(self._position) and not _is_older(self._position, version)

    async def _failed(self, error: Exception, lasted: float) -> None:
        """Decide how to go on, and wait."""
        if lasted >= self._settings.retry_cap_seconds:
            self._failures = 0  # the last try was long enough
        if isinstance(error, errors.Expired | Rewound):
            self._position = ""
        else:
            self._is_cut_off = True
        self._doubtful = True
        self._failures += 1
        settings = self._settings
        doubled = settings.retry_seconds * 2.0 ** min(self._failures - 1, _LARGEST_EXPONENT)
        wait = self._rand.jitter(min(settings.retry_cap_seconds, doubled), settings.retry_jitter)
        if isinstance(error, errors.ClientError):
            wait = max(wait, error.retry_after or 0.0)
        foreseen = isinstance(error, errors.ClientError | Rewound | TimeoutError)
        log.log(
            # The client logs once for all kinds that the server refuses the credentials.
            logging.INFO
            if isinstance(error, errors.Expired | errors.Unauthorized)
            else logging.WARNING,
            "%s: %s; again in %.1f s",
            self._kind.resource.plural,
            str(error) or type(error).__name__,
            wait,
            exc_info=None if foreseen else error,
        )
        await self._clock.sleep(wait)

    async def _follow(self) -> None:
        if self._position and self._doubtful:
            # A user with the right to watch but not to list has to trust the server.
            with suppress(errors.Forbidden):
                async with self._guard(), aclosing(self._pages(limit=1)) as pages:
                    page = await anext(pages)
                self._check(page.resource_version)
                self._answered()
        if not self._position and self._streams and await self._stream():
            return
        if not self._position:
            await self._list()
        await self._read(initial=False)

    def _answered(self) -> None:
        """The server answered with the present state: earlier failures are over."""
        if self._is_out:
            self._failed_at = self._clock.monotonic()
        self._is_cut_off = False
        self._heard_at = self._clock.monotonic()
        self._doubtful = False

    def _check(self, version: str) -> None:
        if _is_older(version, self._position):
            raise Rewound(f"resourceVersion went back from {self._position} to {version}")

    async def _stream(self) -> bool:
        """All objects and then their changes, in one watch, if the server supports that."""
        self._mirror.begin()
        try:
            await self._read(initial=True)
        except (errors.Timeout, TimeoutError):
            # Old servers do not know initial events and never send their end; some proxies
            # do not pass on streams.
            self._streams = bool(self._position)
            raise
        except errors.Invalid as error:
            if self._position:
                raise
            log.info("%s: no initial events: %s", self._kind.resource.plural, error)
            self._streams = False
        return self._streams

    async def _read(self, *, initial: bool) -> None:
        watch = self._client.watch(
            self._kind,
            namespace=self._namespace,
            selector=self._selector,
            resource_version=self._position,
            initial_events=initial,
            timeout_seconds=int(self._rand.jitter(self._settings.watch_seconds, 1.0)),
        )
        async with self._guard() as guard, aclosing(watch) as events:
            async for event in events:
                self._take(event)
                await self._give_way()
                guard.alive()
        if not self._position:
            raise errors.Unavailable("the watch ended before all objects had come")

    async def _list(self) -> None:
        self._mirror.begin()
        version = ""
        chunks = self._pages(limit=self._settings.page_size)
        async with self._guard() as guard, aclosing(chunks) as pages:
            async for page in pages:
                version = page.resource_version
                for obj in page.items:
                    self._mirror.put(obj)
                    await self._give_way()
                guard.alive()
        self._complete(version)

    def _guard(self) -> IdleGuard:
        return IdleGuard(self._clock, self._settings.idle_seconds)

    def _pages(self, *, limit: int) -> AsyncGenerator[ListPage[T], None]:
        pages = self._client.list(
            self._kind, namespace=self._namespace, selector=self._selector, limit=limit
        )
        # The caller closes the generator, because the garbage collector may be late.
        return cast("AsyncGenerator[ListPage[T], None]", pages)

    def _take(self, event: WatchEvent[T]) -> None:
        if not self._is_cut_off:
            self._heard_at = self._clock.monotonic()
        if not self._position:
            # Changes may be among the initial events; only the marked bookmark ends them.
            if event.object is not None:
                self._mirror_change(event, event.object)
            elif event.initial_end:
                self._complete(event.resource_version)
            return
        version = event.resource_version
        self._check(version)
        if version == self._position or not version:
            return  # a repeated or an empty event
        if event.object is not None:
            self._mirror_change(event, event.object)
        self._position = version
        self._failures = 0

    def _mirror_change(self, event: WatchEvent[T], obj: T) -> None:
        if event.type == "DELETED":
            self._mirror.remove(obj)
        else:
            self._mirror.put(obj)

    def _complete(self, version: str) -> None:
        if not version:
            raise errors.Unavailable("the server sent no resourceVersion")
        self._mirror.complete()
        self._position = version
        self._answered()

    async def _give_way(self) -> None:
        self._taken += 1
        if self._taken % PER_TURN == 0:
            await self._clock.sleep(0)


def _is_older(version: str, than: str) -> bool:
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)
