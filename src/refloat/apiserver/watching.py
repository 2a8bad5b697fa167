# SPDX-License-Identifier: Apache-2.0
"""Watches: one cursor on the store, and an index of who wants which change.

The dispatcher follows the store's log and offers each change to those
watchers only whose namespace, name or node it can concern. A change is
encoded once for all who see it in the same form. A watcher's buffer is
bounded in bytes: one that does not read is cut off, and goes on from where it
was. What is past is read from the log piece by piece and never buffered.
"""

import asyncio
import math
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias

from refloat.api import kinds
from refloat.apiserver import listing, selection, stored
from refloat.apiserver.identity import Aside, Hold, directly, freely
from refloat.base.clock import Clock
from refloat.base.tasks import Tasks
from refloat.store.contract import Entry, Event, Store
from refloat.store.turns import give_way

EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]

Encode: TypeAlias = Callable[[EventType, Entry], bytes]
"""Makes the line of an event in the form that a watcher asked for."""

# Four seconds of 1,000 changes/s at 2.5 KB each, and more than the largest
# object: who is further behind than this is not reading.
MAX_BUFFER_BYTES = 10 * 1024 * 1024

# How much of its buffer a watcher is sent at once: what is being sent is a
# copy of its own, what is in a buffer is shared by all who wait for it.
READ_BYTES = 256 * 1024

# How many entries are encoded before the loop gets its turn: 200 objects take
# about a millisecond, 200 rows of a Table ten.
PIECE = 200

# How many changes of the past a watcher looks at before the loop gets its turn.
PAST = 1000

# How often changes are offered to watchers before the loop gets its turn:
# about two milliseconds.
OFFERS = 2000

# Kubernetes sends a bookmark about once a minute, and one shortly before the
# watch times out, from where its client goes on.
BOOKMARK_SECONDS = 60.0
LAST_BOOKMARK_SECONDS = 2.0


@dataclass(slots=True, eq=False)
class Change:
    """A change of the store on its way to the watchers."""

    event: Event
    _lines: dict[tuple[str, EventType], bytes] = field(default_factory=dict)

    def line(self, form: str, event_type: EventType, entry: Entry, encode: Encode) -> bytes:
        """The encoded event, made once for each form."""
        found = self._lines.get((form, event_type))
        if found is None:
            found = self._lines[form, event_type] = encode(event_type, entry)
        return found


@dataclass(slots=True, eq=False)
class Watcher:
    """One client's watch: what it wants, and what it has not read yet."""

    selection: selection.Selection
    form: str  # watchers of equal form share encoded lines
    encode: Encode
    bookmark: Callable[[int, bool], bytes] | None  # (revision, end of initial events)
    after: int  # changes up to this revision are not for it
    # While it reads the past: makes the next piece of it, and in the end None
    # of this, when the rest comes by dispatch.
    past: Callable[[], bytes] | None = None
    joined: bool = False  # changes are offered to it
    _buffer: deque[bytes] = field(default_factory=deque)
    _buffered: int = 0
    _waiter: asyncio.Future[None] | None = None
    _closed: bool = False

    def offer(self, change: Change) -> None:
        """Take a change into the buffer if the selection has to do with it."""
        event = change.event
        if event.revision <= self.after or self._closed:
            return
        if line := self.line(change):
            self._push(line)

    def line(self, change: Change) -> bytes:
        """What a change is for this watcher; empty when it is nothing."""
        seen = _transition(self.selection, change.event)
        return b"" if seen is None else change.line(self.form, *seen, self.encode)

    @property
    def has_all(self) -> bool:
        """Has everything been read that there was for it?"""
        return self.past is None and not self._buffer

    def _push(self, line: bytes) -> None:
        self._buffer.append(line)
        self._buffered += len(line)
        if self._buffered > MAX_BUFFER_BYTES:
            self.close()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """End the watch, also for a reader that is waiting."""
        self._closed = True
        self._buffer.clear()
        self._wake()

    async def read(self, clock: Clock, seconds: float) -> bytes | None:
        """Some of what has come, at the latest after so many seconds; None at the end."""
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
        """The first of the buffered lines, at least one if there is any."""
        lines: list[bytes] = []
        size = 0
        while self._buffer and size < READ_BYTES:
            lines.append(self._buffer.popleft())
            size += len(lines[-1])
        self._buffered -= size
        return b"".join(lines)


def _transition(wanted: selection.Selection, event: Event) -> tuple[EventType, Entry] | None:
    """What a change is in the eyes of a selection: its edges add and delete."""
    before = event.previous is not None and (wanted.everything or wanted.matches(event.previous))
    after = event.entry is not None and (wanted.everything or wanted.matches(event.entry))
    if after:
        assert event.entry is not None
        return ("MODIFIED" if before else "ADDED"), event.entry
    if not before:
        return None
    assert event.previous is not None
    gone = event.previous
    return "DELETED", Entry(gone.key, gone.value, gone.created, event.revision)


class _Index:
    """The watchers of one kind, by what they are pinned to."""

    def __init__(self) -> None:
        self._by_pin: dict[tuple[str, str], dict[int, Watcher]] = defaultdict(dict)

    @staticmethod
    def _pin(watcher: Watcher) -> tuple[str, str]:
        wanted = watcher.selection
        if name := wanted.pinned("metadata.name"):
            return "name", name
        if node := wanted.pinned("spec.nodeName"):
            return "node", node
        return ("namespace", wanted.namespace) if wanted.namespace else ("", "")

    def add(self, watcher: Watcher) -> None:
        self._by_pin[self._pin(watcher)][id(watcher)] = watcher

    def remove(self, watcher: Watcher) -> None:
        pin = self._pin(watcher)
        self._by_pin[pin].pop(id(watcher), None)
        if not self._by_pin[pin]:
            del self._by_pin[pin]

    def concerned(self, resource: kinds.Resource, event: Event) -> Iterator[Watcher]:
        namespace, _, name = event.key.partition("/")[2].rpartition("/")
        pins = [("", ""), ("namespace", namespace), ("name", name)]
        if resource.kind == "Pod":
            versions = (entry for entry in (event.entry, event.previous) if entry is not None)
            nodes = dict.fromkeys(
                selection.attributes(resource, entry).fields["spec.nodeName"] for entry in versions
            )
            pins += [("node", node) for node in nodes if node]
        for pin in pins:
            for watcher in self._by_pin.get(pin, {}).values():
                if watcher.selection.namespace in ("", namespace):
                    yield watcher

    def __len__(self) -> int:
        return sum(len(watchers) for watchers in self._by_pin.values())

    def all(self) -> list[Watcher]:
        return [each for watchers in self._by_pin.values() for each in watchers.values()]


class Dispatcher:
    """Follows the store and hands each change to whom it concerns."""

    def __init__(
        self, store: Store, clock: Clock, observe_lag: Callable[[float], object] | None = None
    ) -> None:
        """`observe_lag` is told how long changes took to get to all watchers."""
        self._store = store
        self._clock = clock
        self._observe_lag = observe_lag
        self._indexes: dict[str, _Index] = defaultdict(_Index)
        self._resources = {each.stored_as: each for each in reversed(kinds.RESOURCES)}
        self._tasks = Tasks()
        self.position = store.revision  # changes up to here were handed out

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
            since: float | None = None  # when there began to be something to hand out
            async for events in cursor:
                since = self._clock.monotonic() if since is None else since
                await self._hand_out(events)
                if self._observe_lag is not None:
                    self._observe_lag(self._clock.monotonic() - since)
                if self.position == self._store.revision:
                    since = None
        finally:
            cursor.close()

    async def _hand_out(self, events: list[Event]) -> None:
        offers = 0
        for event in events:
            offers += self._dispatch(event)
            if offers >= OFFERS:
                offers = 0
                await give_way()

    def _dispatch(self, event: Event) -> int:
        """Offer a change to whom it concerns; how many are they?"""
        stored_as = event.key.partition("/")[0]
        index = self._indexes.get(stored_as)
        self.position = event.revision
        if not index:
            return 1
        change = Change(event)
        offers = 1
        for watcher in index.concerned(self._resources[stored_as], event):
            watcher.offer(change)
            offers += 1
        return offers

    def open(self, watcher: Watcher) -> None:
        """Start a watch: what is past comes from the log, the rest by dispatch.

        Raises the store's `Compacted` when the past is forgotten; so does a
        later read, when its reader is so slow that the past is forgotten meanwhile.
        To open it again changes nothing.
        """
        if watcher.past is not None or watcher.joined:
            return
        if watcher.after < self.position:
            self._store.events("", after=watcher.after, until=watcher.after)  # is it still known?
            watcher.past = partial(self._next_of_past, watcher)
        else:
            self._join(watcher)

    def _next_of_past(self, watcher: Watcher) -> bytes:
        """The next piece of what a watcher missed; it joins the others when nothing is left."""
        wanted = watcher.selection
        within = stored.prefix(wanted.resource, wanted.namespace)
        until = min(watcher.after + PAST, self.position)
        missed = self._store.events(within, after=watcher.after, until=until)
        found = b"".join([watcher.line(Change(event)) for event in missed])
        watcher.after = until
        if until == self.position:
            watcher.past = None
            self._join(watcher)
        return found

    def _join(self, watcher: Watcher) -> None:
        watcher.joined = True
        self._indexes[watcher.selection.resource.stored_as].add(watcher)

    def shut(self, watcher: Watcher) -> None:
        self._indexes[watcher.selection.resource.stored_as].remove(watcher)


async def lines(
    watcher: Watcher,
    initial: list[Entry] | None,
    dispatcher: Dispatcher,
    clock: Clock,
    *,
    seconds: float,
    aside: Aside = directly,
    hold: Hold = freely,
) -> AsyncGenerator[bytes, None]:
    """The stream of a watch until it times out, is cut off, or its reader leaves.

    Raises the store's `Compacted` as `Dispatcher.open` does.
    """
    deadline = clock.monotonic() + seconds
    if initial is not None:
        for entries in listing.pieces(initial, PIECE, READ_BYTES):
            size = sum(len(entry.value) for entry in entries)
            release = await hold(size)
            try:
                if piece := await aside(size, _added, entries, watcher):
                    yield piece
            finally:
                release()
            await give_way()
        if watcher.bookmark is not None:
            yield watcher.bookmark(watcher.after, True)
    dispatcher.open(watcher)  # not sooner: nothing has to wait in a buffer until here
    due = _bookmark_due(clock.monotonic(), deadline)
    while (now := clock.monotonic()) < deadline:
        read = await watcher.read(clock, max(0.0, min(due, deadline) - now))
        if read is None:
            return
        # What was read is complete up to here: nothing is awaited in between.
        complete = max(dispatcher.position, watcher.after) if watcher.has_all else 0
        if read:
            yield read
        if complete and clock.monotonic() >= due:
            due = _bookmark_due(clock.monotonic(), deadline)
            if watcher.bookmark is not None:
                yield watcher.bookmark(complete, False)


def _bookmark_due(now: float, deadline: float) -> float:
    """When the next bookmark is to be sent; never again after the last one."""
    last = deadline - LAST_BOOKMARK_SECONDS
    return min(now + BOOKMARK_SECONDS, last) if now < last else math.inf


def _added(entries: list[Entry], watcher: Watcher) -> bytes:
    """The entries that a watcher wants, as lines."""
    wanted, encode = watcher.selection, watcher.encode
    if not wanted.everything:
        entries = [entry for entry in entries if wanted.matches(entry)]
    return b"".join([encode("ADDED", entry) for entry in entries])
