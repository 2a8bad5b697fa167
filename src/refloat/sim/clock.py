# SPDX-License-Identifier: Apache-2.0
"""The clock of a simulation: the time of the virtual loop, from a fixed date on."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta

from refloat.base.clock import Handle

# Every history begins at this date, so that two histories of one seed are equal.
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class VirtualClock:
    """A `base.clock.Clock` on a loop of virtual time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, epoch: datetime = EPOCH) -> None:
        self._loop = loop
        self._epoch = epoch

    def now(self) -> datetime:
        return self._epoch + timedelta(seconds=self._loop.time())

    def set_ahead(self, seconds: float) -> None:
        """Set the wall clock ahead, or back. Durations and timers do not change."""
        self._epoch += timedelta(seconds=seconds)

    def monotonic(self) -> float:
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)  # noqa: TID251 - of the virtual loop

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        return asyncio.timeout(seconds)  # noqa: TID251 - of the virtual loop

    def call_at(self, when: float, callback: Callable[[], object]) -> Handle:
        return self._loop.call_at(when, callback)
