# SPDX-License-Identifier: Apache-2.0
"""Noticing that nothing comes any more.

A connection can die without a word, and a reader would wait for ever. A timer
for each read would cost more than many a read does, so there is one timer for
all, which looks when the last sign of life was.
"""

import asyncio
from types import TracebackType
from typing import Self

from refloat.base.clock import Clock, Handle


class IdleGuard:
    """Raises `TimeoutError` out of its block when it was not `alive` for too long."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._last = 0.0
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._alarm: Handle | None = None
        self._fired = False

    def alive(self) -> None:
        """Something came, and was dealt with: the wait begins now."""
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
        # Somebody else may have cancelled the task as well: that goes on.
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
