# SPDX-License-Identifier: Apache-2.0
"""Cursors on the log.

A reader that lags reads the log itself, so there is no queue and a slow reader delays
no other. A reader that has caught up waits in a group with those of the same prefix.
A change of another prefix does not wake the group and costs nothing there, and
compaction does not outrun the group.
"""

import asyncio
from collections.abc import AsyncIterator

from refloat.store.contract import Event
from refloat.store.log import Log
from refloat.store.yielding import give_way

# Changes that a lagging reader looks at in one piece: about half a
# millisecond, so that many of them at once do not hold the loop.
PIECE = 4096


class Watches:
    """All readers of one log that wait for something to come."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.closed = False
        # By prefix; dictionaries for their order, which is that of arrival.
        self._waiting: dict[str, dict[LogWatch, None]] = {}

    def open(self, prefix: str, *, after: int) -> "LogWatch":
        self.log.check(after)
        return LogWatch(self, prefix, after)

    def publish(self, events: list[Event]) -> None:
        """Hand changes, which the log has already, to those who wait for them."""
        for prefix in list(self._waiting):
            matches = [event for event in events if event.key.startswith(prefix)]
            if matches:
                for watch in self._waiting.pop(prefix):
                    watch.wake(matches)

    def join(self, watch: "LogWatch") -> None:
        self._waiting.setdefault(watch.prefix, {})[watch] = None

    def leave(self, watch: "LogWatch") -> None:
        group = self._waiting.get(watch.prefix)
        if group is not None:
            group.pop(watch, None)
            if not group:
                del self._waiting[watch.prefix]

    def close(self) -> None:
        """End the iteration of every reader."""
        self.closed = True
        groups, self._waiting = self._waiting, {}
        for group in groups.values():
            for watch in group:
                watch.close()


class LogWatch:
    """One reader: everything up to revision `after` has been read."""

    def __init__(self, watches: Watches, prefix: str, after: int) -> None:
        self.prefix = prefix
        self._watches = watches
        self._log = watches.log
        self._after = after
        self._closed = False
        self._batch: list[Event] | None = None  # handed over, not yet read
        self._wakeup: asyncio.Future[None] | None = None

    def __aiter__(self) -> AsyncIterator[list[Event]]:
        return self

    async def __anext__(self) -> list[Event]:
        while not (self._closed or self._watches.closed):
            if self._after == self._log.revision:
                if batch := await self._wait():
                    return batch
                continue
            until = min(self._after + PIECE, self._log.revision)
            batch = self._log.events(self.prefix, after=self._after, until=until)
            self._after = until
            if batch:
                return batch
            await give_way()
        raise StopAsyncIteration

    async def _wait(self) -> list[Event] | None:
        """The next batch, or None when there will be none.

        A waiting reader can be cancelled and go on reading later. Between the
        cancellation and the moment when this code learns of it a batch may
        be handed over: `_batch` has the batch, whatever the future's state,
        and the cursor goes back to before the batch.
        """
        if self._wakeup is not None:
            raise RuntimeError("a watch has one reader at a time")
        self._wakeup = asyncio.get_running_loop().create_future()
        self._watches.join(self)
        try:
            await self._wakeup
        except BaseException:
            batch = self._batch
            self._after = batch[0].revision - 1 if batch else self._log.revision
            raise
        else:
            if batch := self._batch:
                self._after = batch[-1].revision
            return batch
        finally:
            self._watches.leave(self)
            self._batch = self._wakeup = None

    def wake(self, batch: list[Event] | None) -> None:
        self._batch = batch
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    def close(self) -> None:
        self._closed = True
        if self._batch is None:
            self.wake(None)
