# SPDX-License-Identifier: Apache-2.0
"""The rate limit of a client: requests a second, with bursts.

A token bucket of `burst` tokens that refills at `qps`; requests wait in order
for a token. The bucket is one number, the time at which it is full again, so no
timer has to refill it.
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
        # Less than a microsecond is a rounding error.
        if wait > 1e-6:
            try:
                await self._clock.sleep(wait)
            except BaseException:
                self._full_at -= self._interval  # give the token back
                raise
