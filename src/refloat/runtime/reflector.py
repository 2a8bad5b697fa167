# SPDX-License-Identifier: Apache-2.0
"""Following the objects of one kind on a server, whatever the server does.

First all objects, then every change, and after a cut from where it was. It
tells a `Mirror`, which keeps them; nothing is kept here but the position.

* All objects come as the initial events of a watch; a server that cannot do
  that is asked for a list in chunks. Either way it is a consistent read of
  the present, never of a cache that may lag, so what comes is not older than
  what was seen before, unless the server's own history went back.
* The position is set only when the first part is complete, then by every
  event and bookmark. A cut within the first part begins it anew.
* When the server has forgotten the changes since the position (410, as
  answer or as event), everything is listed anew.
* A server that was set back to an older state does not say so: it is silent
  until its resourceVersion has passed ours. So after every failure its
  present one is asked for, and when it is smaller than the position, or an
  event's is, everything is listed anew.
* Resource versions are compared as numbers where they are numbers, as
  Kubernetes allows since 1.35; others are only told apart.
"""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, cast

from refloat.base.clock import Clock
from refloat.base.rand import Rand
from refloat.client import errors
from refloat.client.contract import EVERYTHING, Client, Kind, Page, Selector, WatchEvent
from refloat.runtime.idle import IdleGuard

log = logging.getLogger(__name__)

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

# Objects that are taken in one turn of the event loop: about 5 ms' worth, so
# that a long list does not hold up everybody else.
PER_TURN = 100

# A watch that goes on from its position so soon after its last event has missed nothing: some
# load balancers cut watches every half a minute. A server that was out is silent for longer.
RESUME_SECONDS = 5.0

# 2 to the power of more is beyond any cap, and soon beyond a float.
_LARGEST_EXPONENT = 62


@dataclass(frozen=True, slots=True)
class FollowSettings:
    """How a server is followed."""

    retry_seconds: float = 0.2
    """The wait after the first failure; it doubles with each. Short, because most are restarts."""

    retry_cap_seconds: float = 30.0
    """The longest wait; what Kubernetes' clients have."""

    retry_jitter: float = 1.0
    """Waits are raised by up to this share, so that a thousand clients do not come back at once."""

    idle_seconds: float = 90.0
    """A watch without any event is given up after this: servers send a bookmark every minute."""

    watch_seconds: float = 300.0
    """How long a watch is asked for, and up to twice as long; what Kubernetes' clients have."""

    short_seconds: float = 1.0
    """A watch that ends earlier without having brought anything counts as a failure."""

    initial_events: bool = True
    """Ask for all objects as initial events of a watch, as long as the server can do that."""

    page_size: int = 250
    """Objects in a chunk of a list: 1.5 MB of pods, decoded in about 5 ms. What a chunk takes
    while it is decoded stays with the process."""


class Mirror(Protocol[T_contra]):
    """Where what is followed is kept."""

    def begin(self) -> None:
        """All objects will be told, from the beginning."""
        ...

    def tell(self, obj: T_contra) -> None:
        """An object is there, in this version."""
        ...

    def tell_gone(self, obj: T_contra) -> None: ...

    def complete(self) -> None:
        """All objects were told; others do not exist."""
        ...


class Rewound(Exception):
    """The server's history went back; never leaves this module."""


class Reflector(Generic[T]):
    """Follows one kind, or those of its objects that are selected, for ever."""

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
        self._streams = (
            self._settings.initial_events
        )  # can the server send all objects as initial events?
        self._position = ""  # empty: all objects have to be listed
        self._doubtful = False  # has something failed since the position was set?
        self._failures = 0  # since something came of it
        self._failed_at: float | None = None
        self._heard_at = clock.monotonic()  # when the server last told anything
        self._is_cut_off = False
        self._taken = 0

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            started, position = self._clock.monotonic(), self._position
            error: Exception | None = None
            try:
                await self._follow()
            except Exception as caught:
                error = caught
            lasted = self._clock.monotonic() - started
            if error is None and (
                self._position == position and lasted < self._settings.short_seconds
            ):
                error = errors.Unavailable("the watch ended at once")
            if error is not None:
                await self._failed(error, lasted)

    @property
    def failed_at(self) -> float | None:
        """Until when the server last could not be followed, on the monotonic clock.

        A cut soon after which the watch went on does not count.
        """
        return self._clock.monotonic() if self._is_out else self._failed_at

    @property
    def _is_out(self) -> bool:
        return self._is_cut_off and self._clock.monotonic() - self._heard_at > RESUME_SECONDS

    def has_seen(self, version: str) -> bool:
        """Whether everything up to this resourceVersion was told.

        Never while all objects are listed anew; always where versions cannot
        be compared.
        """
        return bool(self._position) and not _is_older(self._position, version)

    async def _failed(self, error: Exception, lasted: float) -> None:
        """Note what is to be done about it, and wait."""
        if lasted >= self._settings.retry_cap_seconds:
            self._failures = 0  # it went well for long, or took long enough to fail
        if isinstance(error, errors.Expired | Rewound):
            self._position = ""
        else:
            self._is_cut_off = True
        self._doubtful = True
        self._failures += 1
        wait = self._wait(error)
        foreseen = isinstance(error, errors.ClientError | Rewound | TimeoutError)
        log.log(
            # That credentials are refused was said by the client, once for all kinds.
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

    def _wait(self, error: Exception) -> float:
        settings = self._settings
        doubled = settings.retry_seconds * 2.0 ** min(self._failures - 1, _LARGEST_EXPONENT)
        wait = self._rand.jitter(min(settings.retry_cap_seconds, doubled), settings.retry_jitter)
        asked = error.retry_after if isinstance(error, errors.ClientError) else None
        return max(wait, asked or 0.0)

    async def _follow(self) -> None:
        if self._position and self._doubtful:
            await self._check_history()
        if not self._position and self._streams and await self._stream():
            return
        if not self._position:
            await self._list()
        await self._read(initial=False)

    async def _check_history(self) -> None:
        """Raise if the server's present is older than what it told before."""
        try:
            async with self._guard(), aclosing(self._pages(limit=1)) as pages:
                page = await anext(pages)
        except errors.Forbidden:
            return  # whoever may watch but not list has to trust the server
        self._check(page.resource_version)
        self._answered()

    def _answered(self) -> None:
        """The server tells of its present: what failed before is over."""
        if self._is_out:
            self._failed_at = self._clock.monotonic()
        self._is_cut_off = False
        self._heard_at = self._clock.monotonic()
        self._doubtful = False

    def _check(self, version: str) -> None:
        if _is_older(version, self._position):
            raise Rewound(f"resourceVersion went back from {self._position} to {version}")

    async def _stream(self) -> bool:
        """All objects and then their changes, in one watch, if the server can do that."""
        self._mirror.begin()
        try:
            await self._read(initial=True)
        except (errors.Timeout, TimeoutError):
            # Old servers do not know initial events and never say that they are
            # over; some proxies keep streams to themselves.
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
        found = self._pages(limit=self._settings.page_size)
        async with self._guard() as guard, aclosing(found) as pages:
            async for page in pages:
                version = page.resource_version
                for obj in page.items:
                    self._mirror.tell(obj)
                    await self._give_way()
                guard.alive()
        self._complete(version)

    def _guard(self) -> IdleGuard:
        return IdleGuard(self._clock, self._settings.idle_seconds)

    def _pages(self, *, limit: int) -> AsyncGenerator[Page[T], None]:
        pages = self._client.list(
            self._kind, namespace=self._namespace, selector=self._selector, limit=limit
        )
        # Closed explicitly: nobody knows when a garbage collector would.
        return cast("AsyncGenerator[Page[T], None]", pages)

    def _take(self, event: WatchEvent[T]) -> None:
        if not self._is_cut_off:
            self._heard_at = self._clock.monotonic()
        if not self._position:
            self._take_initial(event)
            return
        version = event.resource_version
        self._check(version)
        if version == self._position or not version:
            return  # it was told twice, or says nothing
        if event.object is not None:
            self._tell(event, event.object)
        self._position = version
        self._failures = 0

    def _take_initial(self, event: WatchEvent[T]) -> None:
        """Changes may be among the initial events; only the marked bookmark ends them."""
        if event.object is not None:
            self._tell(event, event.object)
        elif event.initial_end:
            self._complete(event.resource_version)

    def _tell(self, event: WatchEvent[T], obj: T) -> None:
        if event.type == "DELETED":
            self._mirror.tell_gone(obj)
        else:
            self._mirror.tell(obj)

    def _complete(self, version: str) -> None:
        if not version:
            raise errors.Unavailable("the server does not say which resourceVersion this is")
        self._mirror.complete()
        self._position = version
        self._answered()

    async def _give_way(self) -> None:
        self._taken += 1
        if self._taken % PER_TURN == 0:
            await self._clock.sleep(0)


def _is_older(version: str, than: str) -> bool:
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)
