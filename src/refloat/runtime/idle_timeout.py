# SPDX-License-Identifier: Apache-2.0
"""A timeout for a stream from which nothing arrives any more.

A connection can die silently, and a reader would wait for ever. A timer for each
read would often cost more than the read. So there is one timer for all reads,
which checks the time of the last one.
"""

import asyncio
from types import TracebackType
from typing import Self

from refloat.base.clock import Clock, Handle


class IdleGuard:
    """Raises `TimeoutError` out of its block if there is no call of `alive` for too long."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._last = 0.0
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._alarm: Handle | None = None
        self._fired = False

    def alive(self) -> None:
        """The reader has handled some input: the wait begins anew."""
        self._last = self._clock.monotonic()

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        assert self._task is not None
        self._cancelling = self._task.cancelling()
        self.alive()
        self._arm()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._alarm is not None
        assert self._task is not None
        self._alarm.cancel()
        # If another cancellation came too, that one goes on.
        if (
            self._fired
            and self._task.uncancel() <= self._cancelling
            and kind is asyncio.CancelledError
        ):
            raise TimeoutError(f"nothing came for {self._seconds:g} s") from error

    def _arm(self) -> None:
        self._alarm = self._clock.call_at(self._last + self._seconds, self._look)

    def _look(self) -> None:
        if self._clock.monotonic() < self._last + self._seconds:
            self._arm()
            return
        assert self._task is not None
        self._fired = True
        self._task.cancel()
