# SPDX-License-Identifier: Apache-2.0
"""The one source of time.

Code that waits or reads the time receives a `Clock`. Hours of the simulator's clock
pass in seconds.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Protocol


class Handle(Protocol):
    """A scheduled call that can be cancelled."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Wall time, monotonic time, and every way to wait for either."""

    def now(self) -> datetime:
        """The wall time, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never steps back, nor stops while the machine sleeps."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        """Cancel the body after so many seconds and raise `TimeoutError`."""
        ...

    def call_at(self, when: float, callback: Callable[[], object]) -> Handle:
        """Call back when `monotonic()` reaches `when`."""
        ...


# The clock that continues while the machine sleeps: a leader must find its lease
# expired when the machine wakes. Linux's CLOCK_MONOTONIC stops then; on other
# systems that clock continues.
_UNSTOPPED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class RealClock:
    """The machine's own time."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.clock_gettime(_UNSTOPPED)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        return asyncio.timeout(seconds)

    def call_at(self, when: float, callback: Callable[[], object]) -> Handle:
        loop = asyncio.get_running_loop()
        return loop.call_later(max(0.0, when - self.monotonic()), callback)
