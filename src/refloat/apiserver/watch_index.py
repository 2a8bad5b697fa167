# SPDX-License-Identifier: Apache-2.0
"""Watches: one cursor on the store, and an index of watchers.

The dispatcher follows the store's log and offers a change only to watchers of the
same namespace, name or node. The server encodes a change once for all watchers of a
form. A watcher's buffer has a bound in bytes: the server ends the watch of a client
that does not read, and the client continues later. Past changes come from the log,
piece by piece, without a buffer.
"""

import asyncio
import math
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from refloat.api import kinds
from refloat.apiserver import listing, selection, storage_codec
from refloat.apiserver.identity import Hold, Offload, hold_nothing, run_inline
from refloat.base.clock import Clock
from refloat.base.tasks import Tasks
from refloat.store.contract import Entry, Event, Store
from refloat.store.yielding import give_way

EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]

Encode: TypeAlias = Callable[[EventType, Entry], bytes]
"""Makes the line of an event in the form of a watcher."""

# Four seconds of 1,000 changes/s at 2.5 KB each, and more than the largest
# object: a client that is further behind does not read.
MAX_BUFFER_BYTES = 10 * 1024 * 1024

# The part of a buffer that the server sends at once: sent bytes are a copy, while
# watchers share the lines in their buffers.
READ_BYTES = 256 * 1024

# Entries to encode in one turn of the loop: 200 objects take about a millisecond,
# 200 rows of a Table ten.
PIECE = 200

# Past changes that a watcher examines in one turn of the loop.
PAST = 1000

# Offers of changes to watchers in one turn of the loop: about two milliseconds.
OFFERS = 2000

# Kubernetes sends a bookmark about once a minute, and one shortly before the end of
# the watch, from which the client continues.
BOOKMARK_SECONDS = 60.0
LAST_BOOKMARK_SECONDS = 2.0


@dataclass(slots=True, eq=False)
class StoreChange:
    """A change of the store, with its encoded lines."""

    event: Event
    _lines: dict[tuple[str, EventType], bytes] = field(default_factory=dict)

    def line(self, form: str, event_type: EventType, entry: Entry, encode: Encode) -> bytes:
        """The encoded event; the first watcher of a form encodes it."""
        data = self._lines.get((form, event_type))
        if data is None:
            data = self._lines[form, event_type] = encode(event_type, entry)
        return data


@dataclass(slots=True, eq=False)
class Watcher:
    """One client's watch: the selection, and unread changes."""

    selection: selection.Selection
    form: str  # watchers of equal form share encoded lines
    encode: Encode
    bookmark: Callable[[int, bool], bytes] | None  # (revision, end of initial events)
    after: int  # changes up to this revision do not count
    needs_columns: bool = False  # the next line is the first of a Table
    # Makes the next piece of past changes; None as soon as the dispatcher offers the rest.
    past: Callable[[], bytes] | None = None
    joined: bool = False  # the dispatcher offers changes
    _buffer: deque[bytes] = field(default_factory=deque)
    _buffered: int = 0
    _waiter: asyncio.Future[None] | None = None
    _closed: bool = False

    def offer(self, change: StoreChange) -> None:
        """Buffer a change that the selection matches."""
        event = change.event
        if event.revision <= self.after or self._closed:
            return
        if line := self.line(change):
            self._buffer.append(line)
            self._buffered += len(line)
            if self._buffered > MAX_BUFFER_BYTES:
                self.close()
            self._wake()

    def line(self, change: StoreChange) -> bytes:
        """The line for a change: the edges of the selection add and delete; empty outside."""
        scope, new, old = self.selection, change.event.entry, change.event.previous
        before = old is not None and (scope.everything or scope.matches(old))
        event_type: EventType = "DELETED"
        if new is not None and (scope.everything or scope.matches(new)):
            event_type = "MODIFIED" if before else "ADDED"
        elif old is not None and before:
            new = Entry(old.key, old.value, old.created, change.event.revision)
        else:
            return b""
        # Watchers share their first lines too.
        form = f"{self.form}/with-columns" if self.needs_columns else self.form
        data = change.line(form, event_type, new, self.encode)
        self.needs_columns = False  # also if another watcher encoded the line
        return data

    def begin(self) -> bool:
        """Whether the next line has columns; the lines after it do not."""
        has_columns, self.needs_columns = self.needs_columns, False
        return has_columns

    @property
    def has_all(self) -> bool:
        """Whether the client has all changes."""
        return self.past is None and not self._buffer

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """End the watch, also for a waiting reader."""
        self._closed = True
        self._buffer.clear()
        self._wake()

    async def read(self, clock: Clock, seconds: float) -> bytes | None:
        """Some unread changes, or nothing after so many seconds; None at the end."""
        while self.past is not None and not self._closed:
            piece = self.past()
            await give_way()
            if piece:
                return piece
        if not self._buffer and not self._closed:
            self._waiter = asyncio.get_running_loop().create_future()
            timer = clock.call_at(clock.monotonic() + seconds, self._wake)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        if self._closed:
            return None
        return self._taken()

    def _taken(self) -> bytes:
        """The first buffered lines."""
        lines: list[bytes] = []
        size = 0
        while self._buffer and size < READ_BYTES:
            lines.append(self._buffer.popleft())
            size += len(lines[-1])
        self._buffered -= size
        return b"".join(lines)


class _Index:
    """The watchers of one kind, by name, node or namespace."""

    def __init__(self) -> None:
        self._by_pin: dict[tuple[str, str], dict[int, Watcher]] = defaultdict(dict)

    @staticmethod
    def _pin(watcher: Watcher) -> tuple[str, str]:
        scope = watcher.selection
        if name := scope.pinned("metadata.name"):
            return "name", name
        if node := scope.pinned("spec.nodeName"):
            return "node", node
        return ("namespace", scope.namespace) if scope.namespace else ("", "")

    def add(self, watcher: Watcher) -> None:
        self._by_pin[self._pin(watcher)][id(watcher)] = watcher

    def remove(self, watcher: Watcher) -> None:
        pin = self._pin(watcher)
        self._by_pin[pin].pop(id(watcher), None)
        if not self._by_pin[pin]:
            del self._by_pin[pin]

    def offer(self, resource: kinds.Resource, event: Event) -> int:
        """Offer a change to the watchers that it concerns; returns their number."""
        namespace, _, name = event.key.partition("/")[2].rpartition("/")
        pins = [("", ""), ("namespace", namespace), ("name", name)]
        if resource.kind == "Pod":
            versions = (entry for entry in (event.entry, event.previous) if entry is not None)
            nodes = dict.fromkeys(
                selection.attributes(resource, entry).fields["spec.nodeName"] for entry in versions
            )
            pins += [("node", node) for node in nodes if node]
        change, offers = StoreChange(event), 0
        for pin in pins:
            for watcher in self._by_pin.get(pin, {}).values():
                if watcher.selection.namespace in ("", namespace):
                    watcher.offer(change)
                    offers += 1
        return offers

    def __len__(self) -> int:
        return sum(len(watchers) for watchers in self._by_pin.values())

    def all(self) -> list[Watcher]:
        return [each for watchers in self._by_pin.values() for each in watchers.values()]


class Dispatcher:
    """Follows the store and offers each change to the watchers."""

    def __init__(
        self, store: Store, clock: Clock, observe_lag: Callable[[float], object] | None = None
    ) -> None:
        """`observe_lag` receives the seconds until all watchers had a change."""
        self._store = store
        self._clock = clock
        self._observe_lag = observe_lag
        self._indexes: dict[str, _Index] = defaultdict(_Index)
        self._resources = {each.stored_as: each for each in reversed(kinds.RESOURCES)}
        self._tasks = Tasks()
        self.position = store.revision  # the watchers have changes up to here

    def start(self) -> None:
        self._tasks.spawn(self._follow(), name="watch-dispatcher")

    async def close(self) -> None:
        await self._tasks.close()
        for index in self._indexes.values():
            for watcher in index.all():
                watcher.close()

    @property
    def watchers(self) -> int:
        return sum(len(index) for index in self._indexes.values())

    async def _follow(self) -> None:
        cursor = self._store.watch("", after=self.position)
        try:
            since: float | None = None  # of the first change that not all watchers have
            async for events in cursor:
                since = self._clock.monotonic() if since is None else since
                offers = 0
                for event in events:
                    stored_as = event.key.partition("/")[0]
                    self.position = event.revision
                    offers += 1
                    if index := self._indexes.get(stored_as):
                        offers += index.offer(self._resources[stored_as], event)
                    if offers >= OFFERS:
                        offers = 0
                        await give_way()
                if self._observe_lag is not None:
                    self._observe_lag(self._clock.monotonic() - since)
                if self.position == self._store.revision:
                    since = None
        finally:
            cursor.close()

    def open(self, watcher: Watcher) -> None:
        """Start a watch: past changes come from the log, later ones by dispatch.

        Raises the store's `Compacted` if the log no longer has the past; a later read of a
        slow client may raise it too. A second call changes nothing.
        """
        if watcher.past is not None or watcher.joined:
            return
        if watcher.after < self.position:
            self._store.events("", after=watcher.after, until=watcher.after)  # raises if compacted
            scope = watcher.selection
            within = storage_codec.prefix(scope.resource, scope.namespace)

            def past() -> bytes:
                """The next piece of past changes; at the end the watcher joins the index."""
                until = min(watcher.after + PAST, self.position)
                missed = self._store.events(within, after=watcher.after, until=until)
                data = b"".join([watcher.line(StoreChange(event)) for event in missed])
                watcher.after = until
                if until == self.position:
                    watcher.past = None
                    self._join(watcher)
                return data

            watcher.past = past
        else:
            self._join(watcher)

    def _join(self, watcher: Watcher) -> None:
        watcher.joined = True
        self._indexes[watcher.selection.resource.stored_as].add(watcher)

    def remove(self, watcher: Watcher) -> None:
        self._indexes[watcher.selection.resource.stored_as].remove(watcher)


async def lines(
    watcher: Watcher,
    initial: list[Entry] | None,
    dispatcher: Dispatcher,
    clock: Clock,
    *,
    seconds: float,
    offload: Offload = run_inline,
    hold: Hold = hold_nothing,
) -> AsyncGenerator[bytes, None]:
    """The stream of a watch, until the timeout, a full buffer or the client's end.

    Raises the store's `Compacted` as `Dispatcher.open` does.
    """
    deadline = clock.monotonic() + seconds
    if initial is not None:
        for entries in listing.pieces(initial, PIECE, READ_BYTES):
            size = sum(len(entry.value) for entry in entries)
            release = await hold(size)
            try:
                if piece := await offload(size, _added, entries, watcher):
                    yield piece
            finally:
                release()
            await give_way()
        if watcher.bookmark is not None:
            yield watcher.bookmark(watcher.after, True)
    dispatcher.open(watcher)  # not sooner, so that the buffer stays empty until here
    due = _bookmark_due(clock.monotonic(), deadline)
    while (now := clock.monotonic()) < deadline:
        data = await watcher.read(clock, max(0.0, min(due, deadline) - now))
        if data is None:
            return
        # The changes are complete up to here: there is no await in between.
        complete = max(dispatcher.position, watcher.after) if watcher.has_all else 0
        if data:
            yield data
        if complete and clock.monotonic() >= due:
            due = _bookmark_due(clock.monotonic(), deadline)
            if watcher.bookmark is not None:
                yield watcher.bookmark(complete, False)


def _bookmark_due(now: float, deadline: float) -> float:
    """The time of the next bookmark; infinite after the last one."""
    last = deadline - LAST_BOOKMARK_SECONDS
    return min(now + BOOKMARK_SECONDS, last) if now < last else math.inf


def _added(entries: list[Entry], watcher: Watcher) -> bytes:
    """The lines of the entries that the selection matches."""
    scope, encode = watcher.selection, watcher.encode
    if not scope.everything:
        entries = [entry for entry in entries if scope.matches(entry)]
    return b"".join([encode("ADDED", entry) for entry in entries])
