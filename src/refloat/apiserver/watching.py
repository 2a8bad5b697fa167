# SPDX-License-Identifier: Apache-2.0
"""Watches: one cursor on the store, and an index of who wants which change.

The dispatcher follows the store's log and offers each change to those
watchers only whose namespace, name or node it can concern. A change is
encoded once for all who see it in the same form. A watcher's buffer is
bounded in bytes: one that does not read is cut off and must list anew.
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from refloat.api import kinds
from refloat.apiserver import selection, stored
from refloat.base.clock import Clock
from refloat.base.tasks import Tasks
from refloat.store.contract import Entry, Event, Store

EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]

Encode: TypeAlias = Callable[[EventType, Entry], bytes]
"""Makes the line of an event in the form that a watcher asked for."""

# Four seconds of 1,000 changes/s at 2.5 KB each, and more than the largest
# object: who is further behind than this is not reading.
MAX_BUFFER_BYTES = 10 * 1024 * 1024

# How many entries are encoded before the loop gets its turn.
PIECE = 200

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
    overflown: bool = False
    _buffer: list[bytes] = field(default_factory=list)
    _buffered: int = 0
    _waiter: asyncio.Future[None] | None = None
    _closed: bool = False

    def offer(self, change: Change) -> None:
        """Take a change into the buffer if the selection has to do with it."""
        event = change.event
        if event.revision <= self.after or self._closed:
            return
        seen = _transition(self.selection, event)
        if seen is not None:
            self._push(change.line(self.form, *seen, self.encode))

    def _push(self, line: bytes) -> None:
        self._buffer.append(line)
        self._buffered += len(line)
        if self._buffered > MAX_BUFFER_BYTES:
            self.overflown = True
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
        """What has come, at the latest after so many seconds; None at the end."""
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
        lines, self._buffer, self._buffered = self._buffer, [], 0
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

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
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
            async for events in cursor:
                for event in events:
                    self._dispatch(event)
        finally:
            cursor.close()

    def _dispatch(self, event: Event) -> None:
        stored_as = event.key.partition("/")[0]
        index = self._indexes.get(stored_as)
        self.position = event.revision
        if not index:
            return
        change = Change(event)
        for watcher in index.concerned(self._resources[stored_as], event):
            watcher.offer(change)

    def open(self, watcher: Watcher) -> None:
        """Start a watch: what is past comes from the log, the rest by dispatch.

        Raises the store's `Compacted` when the past is forgotten.
        """
        wanted = watcher.selection
        if watcher.after < self.position:
            within = stored.prefix(wanted.resource, wanted.namespace)
            missed = self._store.events(within, after=watcher.after, until=self.position)
            for event in missed:
                watcher.offer(Change(event))
        self._indexes[wanted.resource.stored_as].add(watcher)

    def shut(self, watcher: Watcher) -> None:
        self._indexes[watcher.selection.resource.stored_as].remove(watcher)


async def lines(
    watcher: Watcher,
    initial: Iterable[Entry] | None,
    dispatcher: Dispatcher,
    clock: Clock,
    *,
    seconds: float,
) -> AsyncIterator[bytes]:
    """The stream of a watch until it times out, is cut off, or its reader leaves."""
    deadline = clock.monotonic() + seconds
    if initial is not None:
        for piece in _pieces(initial, watcher.encode):
            yield piece
            await clock.sleep(0)
        if watcher.bookmark is not None:
            yield watcher.bookmark(watcher.after, True)
    due = _bookmark_due(clock.monotonic(), deadline)
    while (now := clock.monotonic()) < deadline:
        read = await watcher.read(clock, max(0.0, min(due, deadline) - now))
        if read is None:
            return
        # What was read is complete up to here: nothing is awaited in between.
        complete = max(dispatcher.position, watcher.after)
        if read:
            yield read
        if clock.monotonic() >= due:
            due = _bookmark_due(clock.monotonic(), deadline)
            if watcher.bookmark is not None:
                yield watcher.bookmark(complete, False)


def _bookmark_due(now: float, deadline: float) -> float:
    """When the next bookmark is to be sent; never again after the last one."""
    last = deadline - LAST_BOOKMARK_SECONDS
    return min(now + BOOKMARK_SECONDS, last) if now < last else math.inf


def _pieces(entries: Iterable[Entry], encode: Encode) -> Iterator[bytes]:
    piece: list[bytes] = []
    for entry in entries:
        piece.append(encode("ADDED", entry))
        if len(piece) == PIECE:
            yield b"".join(piece)
            piece.clear()
    if piece:
        yield b"".join(piece)
