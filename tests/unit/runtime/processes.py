# SPDX-License-Identifier: Apache-2.0
"""A process that can be frozen at any point, with clocks of its own.

While it is frozen time goes by, what it sent goes its way, and none of its
code runs: its sleeps, answers and timers come when it thaws.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any

from refloat.base.clock import Clock, Handle
from refloat.base.rand import Rand
from refloat.client.requests import Request
from refloat.runtime.election import ElectionSettings, Elector
from refloat.runtime.guard import Guard
from tests import clocks
from tests.unit.runtime.clusters import ClusterClient, RegistryCluster


class ProcessClock:
    """A `Clock` whose owner can be frozen, and whose wall time may jump."""

    def __init__(self, clock: Clock, *, offset: float = 0.0) -> None:
        self._clock = clock
        self._offset = offset  # of its monotonic time: nobody knows another's
        self.wall_offset = 0.0
        self.thaws_at = 0.0
        self.points = 0  # awaits that it came back from
        self.freezes: dict[int, float] = {}  # at which of them it freezes, and how long

    def now(self) -> datetime:
        return self._clock.now() + timedelta(seconds=self.wall_offset)

    def monotonic(self) -> float:
        return self._clock.monotonic() + self._offset

    async def point(self) -> None:
        """An await of the process: it may come back later than it thinks."""
        self.points += 1
        if (seconds := self.freezes.get(self.points)) is not None:
            self.freeze(seconds)
        while (wait := self.thaws_at - self._clock.monotonic()) > 0:
            await self._clock.sleep(wait)

    def freeze(self, seconds: float) -> None:
        self.thaws_at = self._clock.monotonic() + seconds

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        await self.point()

    def call_at(self, when: float, callback: Callable[[], object]) -> Handle:
        return _Timer(self, self._clock, when - self._offset, callback)

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        return clocks.limited(self, seconds)


class _Timer:
    def __init__(
        self, process: ProcessClock, clock: Clock, when: float, callback: Callable[[], object]
    ) -> None:
        self._process = process
        self._clock = clock
        self._callback = callback
        self._handle = clock.call_at(when, self._due)

    def _due(self) -> None:
        if self._process.thaws_at > self._clock.monotonic():
            self._handle = self._clock.call_at(self._process.thaws_at, self._due)
        else:
            self._callback()

    def cancel(self) -> None:
        self._handle.cancel()


class ProcessClient(ClusterClient):
    """The client of a process that freezes before it sends and before it has the answer."""

    def __init__(self, cluster: RegistryCluster, wire: Clock, process: ProcessClock) -> None:
        super().__init__(cluster.world, wire)
        self._process = process
        self.wrote: Callable[[], None] = lambda: None  # called where a write begins

    async def _call(self, request: Request) -> bytes:
        if request.method == "PATCH":
            self.wrote()
        await self._process.point()
        try:
            return await super()._call(request)
        finally:
            await self._process.point()


class ElectionProcess:
    """One contender, with a client for its election and one for its work."""

    def __init__(
        self, name: str, cluster: RegistryCluster, clock: Clock, rand: Rand, **settings: Any
    ) -> None:
        self.name = name
        self.clock = ProcessClock(clock, offset=1000.0 * rand.random())
        self.client = ProcessClient(cluster, clock, self.clock)
        self.elector = Elector(
            self.client,
            clock=self.clock,
            rand=rand,
            settings=ElectionSettings("kube-system", "refloat", name, **settings),
        )
        self.work_client = ProcessClient(cluster, clock, self.clock)
        self.guard = Guard(self.work_client, self.elector.check)
