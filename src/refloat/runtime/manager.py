# SPDX-License-Identifier: Apache-2.0
"""Starts and stops the parts of a process of controllers, in the right order.

Up: endpoints, informers, their first sync, what has elections of its own,
leadership, recorders, controllers. Caches are filled before leadership is
sought, so a stand-by takes over at once. Down: controllers (what is worked on
may finish), recorders (what was told is written), the Leases (only now, when
nothing acts any more), informers, endpoints. When leadership is lost, everything that
writes is cancelled at once instead, and `run` raises: the process must end.

Composition only: it decides nothing and knows no kind of object.
"""

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from refloat.base.clock import Clock
from refloat.runtime.errors import LeadershipLost, SyncTimeout

log = logging.getLogger(__name__)

T = TypeVar("T")

# When a process that waits for its caches first says so; then after twice as long
# each time, up to the longest.
SAY_SECONDS, SAY_AT_MOST_SECONDS = 10.0, 600.0

# How often it looks whether they are filled: what is not noticed at start.
LOOK_SECONDS = 0.05


class Informer(Protocol):
    """A cache of one kind, kept up to date by a watch."""

    @property
    def name(self) -> str: ...

    def start(self) -> None: ...

    @property
    def has_synced(self) -> bool: ...

    async def close(self) -> None: ...


class Worker(Protocol):
    """What acts: a `controller.Controller`, or whatever starts and stops like one."""

    name: str

    def start(self) -> None: ...

    async def stop(self, drain_seconds: float = 0.0) -> bool:
        """Whether all of its work has ended."""
        ...


class Teller(Protocol):
    """What tells: a `recorder.Recorder`."""

    def start(self) -> None: ...

    async def stop(self, flush_seconds: float = 0.0) -> None: ...


class Leadership(Protocol):
    """What says who acts: an `election.Elector`."""

    @property
    def leads(self) -> bool: ...

    async def acquire(self) -> None: ...

    async def lost(self) -> LeadershipLost: ...

    async def release(self) -> None: ...

    async def close(self) -> None: ...


class Candidate(Protocol):
    """An election beside `leadership`, which may be lost and won again: `candidate.Candidate`."""

    controller: str

    def start(self) -> None: ...

    async def stop(self, *, release: bool) -> None: ...

    def describe(self) -> str: ...

    def why_unhealthy(self) -> str | None: ...


class Serving(Protocol):
    """Where its state can be asked for: `serving.Endpoints`."""

    def ready_when(self, name: str, check: Any, note: Any = None) -> None: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    """How long each phase may take, in seconds."""

    sync_seconds: float | None = None
    """For the first sync of the caches; None, the default, waits for an API server that is away."""

    drain_seconds: float = 10.0
    """For what is worked on at a stop; then it is cancelled. Well below the 30 s of a pod."""

    flush_seconds: float = 3.0
    """For events that are not yet written at a stop."""

    phase_seconds: float = 5.0
    """For each other phase of a stop: what takes longer is left behind, and said."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a manager runs."""

    informers: Sequence[Informer] = ()
    controllers: Sequence[Worker] = ()
    recorders: Sequence[Teller] = ()
    leadership: Leadership | None = None
    independent: Sequence[Worker] = ()
    """Controllers that need no `leadership`: they have a candidate, or write nothing shared."""
    independent_recorders: Sequence[Teller] = ()
    candidates: Sequence[Candidate] = ()
    serving: Serving | None = None


class Manager:
    """One process of controllers; `run` it once."""

    def __init__(
        self, parts: Parts, *, clock: Clock, settings: ManagerSettings | None = None
    ) -> None:
        self._parts = parts
        self._clock = clock
        self._settings = settings or ManagerSettings()
        self._stop = asyncio.Event()
        self._begun: list[Worker] = []
        self._told: list[Teller] = []
        self._led = False

    def stop(self) -> None:
        """Ask `run` to end; may be called from a signal's handler, and twice."""
        self._stop.set()

    @property
    def synced(self) -> bool:
        return all(informer.has_synced for informer in self._parts.informers)

    async def run(self) -> None:
        """Run until `stop`. Raises `LeadershipLost`, `SyncTimeout` or what fails at the start."""
        drain = flush = 0.0  # whoever lost the Lease, or failed, must not go on
        try:
            await self._start_serving()
            await self._until_stop(self._act())
            drain, flush = self._settings.drain_seconds, self._settings.flush_seconds
        finally:
            await self._wind_up(drain, flush)

    async def _act(self) -> None:
        """Everything from the caches up to leadership's end, which may be never."""
        for informer in self._parts.informers:
            informer.start()
        await self._sync()
        self._start_all(self._parts.independent_recorders, self._parts.independent)
        for candidate in self._parts.candidates:
            candidate.start()
        if self._parts.leadership is not None:
            self._led = True  # from the first try on there may be something to release
            await self._parts.leadership.acquire()
        self._start_all(self._parts.recorders, self._parts.controllers)
        if self._parts.leadership is not None:
            raise await self._parts.leadership.lost()
        await self._stop.wait()

    def _start_all(self, recorders: Sequence[Teller], controllers: Sequence[Worker]) -> None:
        for recorder in recorders:
            recorder.start()
            self._told.append(recorder)
        for controller in controllers:
            controller.start()
            self._begun.append(controller)
        if controllers:
            log.info("running %s", ", ".join(each.name for each in controllers))

    async def _start_serving(self) -> None:
        serving = self._parts.serving
        if serving is None:
            return
        serving.ready_when("informers", self._why_not_ready)
        serving.ready_when("shutdown", lambda: "stopping" if self._stop.is_set() else None)
        for each in self._parts.candidates:
            serving.ready_when(f"leader/{each.controller}", each.why_unhealthy, each.describe)
        await serving.start()

    async def _until_stop(self, work: Awaitable[None]) -> None:
        """Do it until it fails or `stop` is called."""
        doing = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((doing, stopping), return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                doing.result()
        finally:
            for task in (doing, stopping):
                task.cancel()
            await asyncio.gather(doing, stopping, return_exceptions=True)

    async def _sync(self) -> None:
        started = said = self._clock.monotonic()
        patience = SAY_SECONDS
        while not self.synced:
            await self._clock.sleep(LOOK_SECONDS)
            now, bound = self._clock.monotonic(), self._settings.sync_seconds
            if bound is not None and now - started >= bound:
                raise SyncTimeout(f"no first sync in {bound:g} s: {self._why_not_ready()}")
            if now - said >= patience:
                said, patience = now, min(2 * patience, SAY_AT_MOST_SECONDS)
                log.warning("waiting for the API server: %s", self._why_not_ready())

    def _why_not_ready(self) -> str | None:
        missing = [each.name for each in self._parts.informers if not each.has_synced]
        return f"not synced: {', '.join(missing)}" if missing else None

    async def _wind_up(self, drain: float, flush: float) -> None:
        """Stop in order, each phase with its bound; what fails does not keep the rest."""
        self._stop.set()
        spare = self._settings.phase_seconds
        stopped = [each.stop(drain) for each in self._begun]
        ended = all(await self._phase("controllers", stopped, drain + spare))
        await self._phase("events", [each.stop(flush) for each in self._told], flush + spare)
        stopped_candidates = [each.stop(release=ended) for each in self._parts.candidates]
        await self._phase("leadership", [self._resign(release=ended), *stopped_candidates], spare)
        await self._phase("informers", [each.close() for each in self._parts.informers], spare)
        if self._parts.serving is not None:
            await self._phase("endpoints", [self._parts.serving.close()], spare)

    async def _resign(self, *, release: bool) -> None:
        """Give the Lease to others, but only if nothing of ours can still act."""
        if self._parts.leadership is None:
            return
        if release and self._led:
            await self._parts.leadership.release()
        else:
            await self._parts.leadership.close()

    async def _phase(
        self, name: str, work: Sequence[Awaitable[T]], seconds: float
    ) -> Sequence[T | Literal[False]]:
        """What each of them answers; False for one that failed or took too long."""
        try:
            async with self._clock.timeout(seconds):
                answers = await asyncio.gather(*work, return_exceptions=True)
        except TimeoutError:
            log.error("stopping %s took longer than %g s; left behind", name, seconds)
            return [False]
        for answer in answers:
            if isinstance(answer, BaseException):
                log.error("stopping %s failed", name, exc_info=answer)
        return [False if isinstance(answer, BaseException) else answer for answer in answers]
