# SPDX-License-Identifier: Apache-2.0
"""The store itself: preconditions, group commit, visibility, compaction.

A store is this class with a `Journal`, which only makes batches of changes
durable. What a write goes through:

1. A caller submits it and waits for its future.
2. The flusher, a task that lives while there is work, takes all that is
   queued as one batch. Each write is judged by the durable state plus the
   writes before it in the batch, and gets the next revision or an error.
3. The journal makes the batch durable. No reader sees any of the batch yet.
4. The batch becomes visible, watches wake, and only then are all its callers
   answered; also those who lost, for what they lost against can now be read.

One batch is in flight at a time, so the next one forms meanwhile. When step 3
fails, all writes of the batch fail, and neither state nor revisions moved.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from refloat.store import errors
from refloat.store.compaction import Compaction, Policy
from refloat.store.contract import Entry, Event, Page
from refloat.store.log import Log
from refloat.store.watch import LogWatch, Watches

# A batch holds the loop while it is judged and applied: 256 writes take about
# 1 ms. The queue itself is bounded by the callers, each of whom waits.
BATCH_WRITES = 256

# A batch is one transaction: at this size a commit still takes only some
# milliseconds. One larger write makes a batch of its own.
BATCH_BYTES = 4 * 1024 * 1024

# Changes forgotten in one piece, between two batches of writes: less than a
# millisecond of the loop.
FORGET_CHANGES = 1000


class Journal(Protocol):
    """How changes become durable. Called by one task, one call at a time."""

    @property
    def size(self) -> int | None:
        """Bytes on disk; None when there is no disk."""
        ...

    @property
    def shortage(self) -> str:
        """Why the disk is too full for most writes; empty while there is room."""
        ...

    async def append(self, events: list[Event]) -> None:
        """Return when these are durable, all or none; `WriteFailed` when none is."""
        ...

    async def forget(self, events: list[Event]) -> None:
        """Compact these changes, the oldest there are; `WriteFailed` as above."""
        ...

    async def maintain(self) -> None:
        """Do what need not be done for each write; called every few seconds."""
        ...

    async def close(self) -> None: ...


@dataclass(slots=True, eq=False)
class _Write:
    """A write that waits for its turn; its caller may have gone."""

    key: str
    value: bytes | None  # None deletes
    expected: int | None  # None creates
    future: asyncio.Future[Entry]

    def answer(self, result: Entry | errors.StoreError) -> None:
        if self.future.done():
            return
        if isinstance(result, Entry):
            self.future.set_result(result)
        else:
            self.future.set_exception(result)


class LogStore:
    """A `contract.Store` on a log in memory and a journal."""

    def __init__(self, log: Log, journal: Journal, compaction: Compaction) -> None:
        self._log = log
        self._journal = journal
        self._policy = Policy(compaction)
        self._watches = Watches(log)
        self._queue: deque[_Write] = deque()
        self._in_flight: list[_Write] = []
        self._forget_to = 0
        self._forgetters: list[tuple[int, asyncio.Future[None]]] = []
        self._flusher: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def revision(self) -> int:
        return self._log.revision

    @property
    def compacted(self) -> int:
        return self._log.compacted

    @property
    def size(self) -> int:
        on_disk = self._journal.size
        return self._log.live_bytes + self._log.superseded_bytes if on_disk is None else on_disk

    @property
    def shortage(self) -> str:
        return self._journal.shortage

    def get(self, key: str) -> Entry | None:
        return self._log.get(key)

    def page(
        self, prefix: str, *, revision: int | None = None, after: str = "", limit: int = 0
    ) -> Page:
        return self._log.page(prefix, revision=revision, after=after, limit=limit)

    def events(self, prefix: str, *, after: int, until: int | None = None) -> list[Event]:
        return self._log.events(prefix, after=after, until=until)

    def watch(self, prefix: str, *, after: int) -> LogWatch:
        return self._watches.open(prefix, after=after)

    async def create(self, key: str, value: bytes) -> Entry:
        return await self._submit(key, value, None)

    async def update(self, key: str, value: bytes, *, expected: int) -> Entry:
        return await self._submit(key, value, expected)

    async def delete(self, key: str, *, expected: int) -> Entry:
        return await self._submit(key, None, expected)

    async def compact(self, revision: int) -> None:
        if revision > self.revision:
            raise errors.FutureRevision(revision, self.revision)
        if revision <= self.compacted:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._start()
        self._forget_to = max(self._forget_to, revision)
        self._forgetters.append((revision, future))
        await future

    async def maintain(self, now: float) -> None:
        if not self._closed:
            await self._journal.maintain()
        await self.compact(self._policy.due(now, self._log))

    async def close(self) -> None:
        self._closed = True
        self._end_forgetting(errors.StoreError("the store is closed"))
        if self._flusher is not None:
            await asyncio.wait([self._flusher])
        self._watches.close()
        await self._journal.close()

    def _submit(self, key: str, value: bytes | None, expected: int | None) -> asyncio.Future[Entry]:
        if not key.isascii():
            key.encode()  # one that cannot be written must not reach a batch
        future: asyncio.Future[Entry] = asyncio.get_running_loop().create_future()
        self._start()
        self._queue.append(_Write(key, value, expected, future))
        return future

    def _start(self) -> None:
        if self._closed:
            raise errors.StoreError("the store is closed")
        if self._flusher is None:
            work = self._run()
            self._flusher = asyncio.get_running_loop().create_task(work, name="store flusher")

    async def _run(self) -> None:
        """Work until nothing is left; a write or a compaction in turn."""
        try:
            while self._queue or self._forgetters:
                if self._queue:
                    self._in_flight = self._take()
                    await self._flush(self._in_flight)
                if self._forgetters:
                    await self._forget_piece()
        except BaseException:
            self._abandon()
            raise
        finally:
            self._flusher = None

    def _abandon(self) -> None:
        """Stop for good: the flusher was cancelled with its loop, or is wrong.

        Writes in flight may be durable or not; the next start shows which.
        """
        self._closed = True
        stopped = errors.StoreError("the store stopped in the middle of its work")
        for write in (*self._in_flight, *self._queue):
            write.answer(stopped)
        self._queue.clear()
        self._end_forgetting(stopped)

    def _take(self) -> list[_Write]:
        """The next batch, at least one write."""
        batch: list[_Write] = []
        room = BATCH_BYTES
        while self._queue and len(batch) < BATCH_WRITES:
            room -= len(self._queue[0].value or b"")
            if room < 0 and batch:
                break
            batch.append(self._queue.popleft())
        return batch

    async def _flush(self, batch: list[_Write]) -> None:
        events, answers = self._judge(batch)
        if events:
            try:
                await self._journal.append(events)
            except errors.WriteFailed as error:
                for write in batch:
                    write.answer(errors.WriteFailed(*error.args))
                return
            self._log.apply(events)
            self._watches.publish(events)
        for write, answer in zip(batch, answers, strict=True):
            write.answer(answer)

    def _judge(self, batch: list[_Write]) -> tuple[list[Event], list[Entry | errors.StoreError]]:
        """The changes of the batch, and an answer for each write."""
        events: list[Event] = []
        answers: list[Entry | errors.StoreError] = []
        changed: dict[str, Entry | None] = {}
        revision = self._log.revision
        for write in batch:
            key = write.key
            current = changed[key] if key in changed else self._log.get(key)
            if (refusal := _refusal(write, current)) is not None:
                answers.append(refusal)
                continue
            revision += 1
            event, answer = _change(write, current, revision)
            changed[key] = event.entry
            events.append(event)
            answers.append(answer)
        return events, answers

    async def _forget_piece(self) -> None:
        compacted = self._log.compacted
        until = min(compacted + FORGET_CHANGES, self._forget_to)
        try:
            await self._journal.forget(self._log.events("", after=compacted, until=until))
        except errors.WriteFailed as error:
            self._end_forgetting(error)
            return
        self._log.forget(until)
        waiting, self._forgetters = self._forgetters, []
        for revision, future in waiting:
            if revision > until:
                self._forgetters.append((revision, future))
            elif not future.done():
                future.set_result(None)

    def _end_forgetting(self, error: errors.StoreError) -> None:
        waiting, self._forgetters = self._forgetters, []
        self._forget_to = 0
        for _, future in waiting:
            if not future.done():
                future.set_exception(type(error)(*error.args))


def _refusal(write: _Write, current: Entry | None) -> errors.StoreError | None:
    if write.expected is None:
        return None if current is None else errors.Exists(write.key)
    actual = None if current is None else current.revision
    if actual == write.expected:
        return None
    return errors.Conflict(write.key, expected=write.expected, actual=actual)


def _change(write: _Write, current: Entry | None, revision: int) -> tuple[Event, Entry]:
    """The change of a write, and the answer for the caller."""
    if current is None:
        assert write.value is not None
        entry = Entry(write.key, write.value, revision, revision)
        return Event(revision, write.key, entry, None), entry
    key = current.key  # all versions share one string
    if write.value is None:
        last = Entry(key, current.value, current.created, revision)
        return Event(revision, key, None, current), last
    entry = Entry(key, write.value, current.created, revision)
    return Event(revision, key, entry, current), entry
