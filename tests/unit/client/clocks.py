# SPDX-License-Identifier: Apache-2.0
"""A clock that a test moves by hand, for code that talks to real sockets."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta

from refloat.base.clock import Handle

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class ManualClock:
    """Sleeping moves it and takes no time; else it moves when it is told to."""

    def __init__(self) -> None:
        self._passed = 0.0
        self._deadlines: dict[asyncio.Timeout, float] = {}
        self.slept: list[float] = []

    def now(self) -> datetime:
        return START + timedelta(seconds=self._passed)

    def monotonic(self) -> float:
        return self._passed

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.advance(seconds)
        await asyncio.sleep(0)

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        return self._timeout(seconds)

    @asynccontextmanager
    async def _timeout(self, seconds: float | None) -> AsyncIterator[object]:
        async with asyncio.timeout(None) as limit:
            if seconds is not None:
                self._deadlines[limit] = self._passed + seconds
            try:
                yield limit
            finally:
                self._deadlines.pop(limit, None)

    def call_at(self, when: float, callback: Callable[[], object]) -> Handle:
        raise NotImplementedError("nothing that is tested with this clock asks for it")

    async def has_waiter(self) -> None:
        """Returns once somebody is waiting with a deadline."""
        while not self._deadlines:
            await asyncio.sleep(0)

    def advance(self, seconds: float) -> None:
        """Let time pass; whoever waits for too long is told so."""
        self._passed += seconds
        for limit, deadline in self._deadlines.items():
            if deadline <= self._passed:
                limit.reschedule(asyncio.get_running_loop().time())
