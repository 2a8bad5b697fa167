# SPDX-License-Identifier: Apache-2.0
"""Time that passes only when a test says so."""

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta

from refloat.base.clock import Clock
from refloat.store.yielding import give_way

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

# Turns of the loop after which whatever a test set off has come to rest.
TURNS = 20


class ManualTimer:
    """A call that waits for its time."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """A `Clock` that stands still between calls of `advance`.

    One that jumps passes the time of every sleep at once, and records the sleep.
    """

    def __init__(self, start: datetime = START, *, jumps: bool = False) -> None:
        self._start = start
        self._elapsed = 0.0
        self._jumps = jumps
        self._timers: list[tuple[float, int, ManualTimer]] = []
        self._order = itertools.count()
        self.sleeps: list[float] = []

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        if seconds > 0:
            self.sleeps.append(seconds)
            if not self._jumps:
                await self._wait(seconds)
            else:
                self._elapsed += seconds
        await give_way()

    async def _wait(self, seconds: float) -> None:
        due: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_at(self._elapsed + seconds, lambda: due.set_result(None))
        try:
            await due
        finally:
            timer.cancel()

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        return limited(self, seconds)

    def call_at(self, when: float, callback: Callable[[], object]) -> ManualTimer:
        timer = ManualTimer(callback)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    async def advance(self, seconds: float) -> None:
        """Let so much time pass, timer by timer, and everything come to rest."""
        end = self._elapsed + seconds
        await rest()
        while self._timers and self._timers[0][0] <= end:
            when, _, timer = heapq.heappop(self._timers)
            self._elapsed = max(self._elapsed, when)
            if timer.callback is not None:
                timer.callback()
                await rest()
        self._elapsed = end


async def rest() -> None:
    """Let everything run that is ready."""
    for _ in range(TURNS):
        await give_way()


@asynccontextmanager
async def limited(clock: Clock, seconds: float | None) -> AsyncIterator[None]:
    """`Clock.timeout`, made of a clock's own timers."""
    task = asyncio.current_task()
    assert task is not None
    fired = False

    def cancel() -> None:
        nonlocal fired
        fired = task.cancel()

    timer = None if seconds is None else clock.call_at(clock.monotonic() + seconds, cancel)
    try:
        yield
    except asyncio.CancelledError:
        if fired and not task.uncancel():
            raise TimeoutError from None
        raise
    finally:
        if timer is not None:
            timer.cancel()
