# SPDX-License-Identifier: Apache-2.0
"""Clients of a simulated API server that fail on request.

`FaultyClient` is for the writes of a controller: it can die at a write, lose
an answer or get a refusal. `LaggingClient` is for the caches of a controller:
its watches can be late and can break.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Container
from dataclasses import dataclass
from typing import Generic, TypeVar

from refloat.apiserver.local_server import LocalConnection
from refloat.client import errors
from refloat.client.contract import Kind, Watch, WatchEvent
from refloat.client.local import LocalClient
from refloat.client.requests import Request
from refloat.sim.run import Sim

T = TypeVar("T")


async def nothing(_: Request) -> None:
    """The default of `before` and `before_read`."""


class FaultyClient(LocalClient):
    """Fails at writes and reads. A client that died never answers again."""

    def __init__(self, server: LocalConnection) -> None:
        super().__init__(server, field_manager="job-controller")
        self.writes = 0
        """The number of writes so far."""
        self.fails_to_read = 0
        """How many of the next reads fail."""
        self.dies_at: int | None = None
        """The number of the write at which the client dies."""
        self.dies_after = False
        """True: after the write, not before."""
        self.dies_on: Callable[[Request], bool] = lambda _: False
        """The writes before which the client dies, whatever their number."""
        self.before: Callable[[Request], Awaitable[None]] = nothing
        """Runs before each write."""
        self.before_read: Callable[[Request], Awaitable[None]] = nothing
        """Runs before each read."""
        self.loses: Container[int] = ()
        """The numbers of the writes that happen, but whose answers are lost."""
        self.answers: Callable[[Request, Callable[[], Awaitable[bytes]]], Awaitable[bytes]] | None
        self.answers = None
        """Runs in place of each write: decides when to write and what to answer."""
        self.refuses: Callable[[Request, int], errors.ClientError | None] = lambda *_: None
        """The error that a write gets and that keeps the write from happening."""
        self.died = asyncio.Event()

    async def _call(self, request: Request) -> bytes:
        if self.died.is_set():
            await _never()
        if request.method == "GET":
            return await self._get(request)
        self.writes += 1
        number = self.writes
        await self.before(request)
        if (number == self.dies_at and not self.dies_after) or self.dies_on(request):
            await self._die()
        if (refusal := self.refuses(request, number)) is not None:
            raise refusal
        call = functools.partial(super()._call, request)
        answer = await (call() if self.answers is None else self.answers(request, call))
        if number == self.dies_at:
            await self._die()
        if number in self.loses:
            raise errors.Unavailable("the answer was lost")
        return answer

    async def _get(self, request: Request) -> bytes:
        if self.fails_to_read:
            self.fails_to_read -= 1
            raise errors.Unavailable("not now")
        await self.before_read(request)
        return await super()._call(request)

    async def _die(self) -> None:
        self.died.set()
        await _never()


async def _never() -> None:
    await asyncio.get_running_loop().create_future()


@dataclass(slots=True)
class WatchFaults:
    """How watches fail; a program may change it at any time."""

    lag: float = 0.0
    """The most seconds by which each event is late."""
    gaps: float = 0.0
    """How likely a watch expires in the place of an event, which is lost."""


class LaggingClient(LocalClient):
    """A client whose watches have `faults`."""

    def __init__(self, server: LocalConnection, sim: Sim, faults: WatchFaults) -> None:
        super().__init__(server, field_manager="reader")
        self._sim = sim
        self._faults = faults

    def _open(self, request: Request, kind: Kind[T]) -> Watch[T]:
        return _LaggingWatch(super()._open(request, kind), self._sim, self._faults)


class _LaggingWatch(Generic[T]):
    def __init__(self, watch: Watch[T], sim: Sim, faults: WatchFaults) -> None:
        self._watch = watch
        self._sim = sim
        self._faults = faults

    def __aiter__(self) -> "_LaggingWatch[T]":
        return self

    async def __anext__(self) -> WatchEvent[T]:
        event = await self._watch.__anext__()
        if self._faults.lag:
            await self._sim.clock.sleep(self._faults.lag * self._sim.rand.random())
        if self._faults.gaps and self._sim.rand.random() < self._faults.gaps:
            raise errors.Expired("too old resource version")
        return event

    async def aclose(self) -> None:
        await self._watch.aclose()
