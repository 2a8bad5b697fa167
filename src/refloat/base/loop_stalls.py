# SPDX-License-Identifier: Apache-2.0
"""Measures how long the event loop stalls.

The loop calls a tick every few milliseconds, and other work waits as long as the
tick is late. The delay alone would also count other load of the machine. So the
meter also measures the processor time of the loop's thread, which is Refloat's
part of a stall.
"""

import asyncio
import time
from collections.abc import Callable

# Short against 50 ms, the longest permitted stall. The 100 calls a second cost about a
# thousandth of a core.
TICK_SECONDS = 0.010

# A shorter delay is the timer's resolution, not a stall.
NOTED_SECONDS = 0.005


class StallMeter:
    """Measures the running loop, from `start` to `stop`."""

    def __init__(self, observe: Callable[[float], object] | None = None) -> None:
        """`observe` receives the seconds of every stall."""
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
