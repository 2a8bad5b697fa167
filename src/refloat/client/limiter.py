# SPDX-License-Identifier: Apache-2.0
"""A bound on the requests that this process sends: so many a second, with bursts.

A bucket of `burst` tokens that is filled at `qps`; who finds it empty waits
for its turn, first come, first served. Kept as one number, the time at which
the bucket would be full again, so that nothing ticks.
"""

from refloat.base.clock import Clock


class Limiter:
    """The bucket of one client."""

    def __init__(self, clock: Clock, *, qps: float, burst: int) -> None:
        self._clock = clock
        self._interval = 1.0 / qps if qps > 0 else 0.0
        self._depth = max(burst, 1) * self._interval
        self._full_at = 0.0

    async def acquire(self) -> None:
        """Take a token, or wait for one."""
        if not self._interval:
            return
        now = self._clock.monotonic()
        self._full_at = max(self._full_at, now) + self._interval
        wait = self._full_at - self._depth - now
        # Less than a microsecond is what adding up fractions leaves behind.
        if wait > 1e-6:
            await self._wait(wait)

    async def _wait(self, seconds: float) -> None:
        try:
            await self._clock.sleep(seconds)
        except BaseException:
            self._full_at -= self._interval  # it did not ask after all
            raise
