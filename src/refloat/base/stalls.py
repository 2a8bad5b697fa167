# SPDX-License-Identifier: Apache-2.0
"""How long the event loop is held up by what runs on it.

A tick asks to be called every few milliseconds; how late it comes is how long
everybody else had to wait too. Lateness alone would blame this process for a
machine that is busy with other things, so the processor time that the loop's
thread used meanwhile is measured beside it: a stall is ours only as far as
that goes.
"""

import asyncio
import time
from collections.abc import Callable

# Short against the 50 ms that nothing may hold the loop, and yet one hundred
# wake-ups a second, which cost about a thousandth of a core.
TICK_SECONDS = 0.010

# What is below this is the timer's own grain, not a stall.
NOTED_SECONDS = 0.005


class StallMeter:
    """Measures the loop that it is started on, until it is stopped."""

    def __init__(self, observe: Callable[[float], object] | None = None) -> None:
        """`observe` is given the seconds of every stall that is noted."""
        self._observe = observe
        self._handle: asyncio.TimerHandle | None = None
        self._since = 0.0
        self._used = 0.0
        self.worst = 0.0  # the longest stall, in seconds of the wall's clock
        self.worst_busy = 0.0  # the longest that this thread was busy throughout

    def start(self) -> None:
        self._arm(asyncio.get_running_loop())

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        self._since = time.monotonic()
        self._used = time.thread_time()
        self._handle = loop.call_later(TICK_SECONDS, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        late = time.monotonic() - self._since - TICK_SECONDS
        if late >= NOTED_SECONDS:
            self.worst = max(self.worst, late)
            self.worst_busy = max(self.worst_busy, min(late, time.thread_time() - self._used))
            if self._observe is not None:
                self._observe(late)
        self._arm(loop)
