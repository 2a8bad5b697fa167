# SPDX-License-Identifier: Apache-2.0
"""Starts and stops the parts of a process of controllers, in the right order.

Up: endpoints, informers, their first sync, controllers with elections of their
own, leadership, recorders, controllers. The caches are full before the process
contends for leadership, so a standby takes over at once. Down: controllers
(running reconciles may finish), recorders (which write the waiting events), the
Leases (only now, when nothing acts any more), informers, endpoints. When the
process loses leadership, the manager cancels everything that writes at once, and
`run` raises: the process must end.

This module decides nothing else and knows no kind of object.
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

# A process that waits for the caches logs that after so long, then after twice as
# long each time, up to the longest.
LOG_SECONDS, LONGEST_LOG_SECONDS = 10.0, 600.0

# How often the manager checks whether the caches are full: a delay that no user notices.
CHECK_SECONDS = 0.05


class Informer(Protocol):
    """A cache of one kind, kept up to date by a watch."""

    @property
    def name(self) -> str: ...

    def start(self) -> None: ...

    @property
    def has_synced(self) -> bool: ...

    async def close(self) -> None: ...


class Worker(Protocol):
    """A `controller.Controller`, or another part that starts and stops like one."""

    name: str

    def start(self) -> None: ...

    async def stop(self, drain_seconds: float = 0.0) -> bool:
        """Stop; returns whether all of its work has ended."""
        ...


class EventRecorder(Protocol):
    """A `recorder.Recorder`."""

    def start(self) -> None: ...

    async def stop(self, flush_seconds: float = 0.0) -> None: ...


class Leadership(Protocol):
    """The election among managers: an `election.Elector`."""

    @property
    def leads(self) -> bool: ...

    async def acquire(self) -> None: ...

    async def lost(self) -> LeadershipLost: ...

    async def release(self) -> None: ...

    async def close(self) -> None: ...


class Candidate(Protocol):
    """Another election, which a process may win and lose many times: `candidate.Candidate`."""

    controller: str

    def start(self) -> None: ...

    async def stop(self, *, release: bool) -> None: ...

    def describe(self) -> str: ...

    def why_unhealthy(self) -> str | None: ...


class Serving(Protocol):
    """The pages for health and metrics: `health_server.Endpoints`."""

    def ready_when(self, name: str, check: Any, note: Any = None) -> None: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    """The bound of each phase, in seconds."""

    sync_seconds: float | None = None
    """For the first sync of the caches; None, the default, waits for an API server that is away."""

    drain_seconds: float = 10.0
    """For running reconciles at a stop, before they are cancelled. Well below the 30 s of a pod."""

    flush_seconds: float = 3.0
    """For waiting events at a stop."""

    phase_seconds: float = 5.0
    """For each other phase of a stop. The manager logs and leaves behind what takes longer."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a process of controllers."""

    informers: Sequence[Informer] = ()
    controllers: Sequence[Worker] = ()
    recorders: Sequence[EventRecorder] = ()
    leadership: Leadership | None = None
    independent: Sequence[Worker] = ()
    """Controllers that need no `leadership`: they have a candidate, or write nothing shared."""
    independent_recorders: Sequence[EventRecorder] = ()
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
        self._workers: list[Worker] = []  # those that run
        self._recorders: list[EventRecorder] = []
        self._contends = False

    def stop(self) -> None:
        """Let `run` end; may be called from a signal handler, and twice."""
        self._stop.set()

    @property
    def synced(self) -> bool:
        return all(informer.has_synced for informer in self._parts.informers)

    async def run(self) -> None:
        """Run until `stop`. Raises `LeadershipLost`, `SyncTimeout` or the error of a start."""
        drain = flush = 0.0  # without the Lease, or after a failure, no work may go on
        serving = self._parts.serving
        try:
            if serving is not None:
                serving.ready_when("informers", self._why_not_ready)
                serving.ready_when("shutdown", lambda: "stopping" if self._stop.is_set() else None)
                for each in self._parts.candidates:
                    serving.ready_when(
                        f"leader/{each.controller}", each.why_unhealthy, each.describe
                    )
                await serving.start()
            await self._until_stop(self._act())
            drain, flush = self._settings.drain_seconds, self._settings.flush_seconds
        finally:
            await self._wind_up(drain, flush)

    async def _act(self) -> None:
        """Everything from the caches to the end of leadership, which may never come."""
        for informer in self._parts.informers:
            informer.start()
        await self._sync()
        self._start_all(self._parts.independent_recorders, self._parts.independent)
        for candidate in self._parts.candidates:
            candidate.start()
        if self._parts.leadership is not None:
            self._contends = True  # from now on there may be a Lease to release
            await self._parts.leadership.acquire()
        self._start_all(self._parts.recorders, self._parts.controllers)
        if self._parts.leadership is not None:
            raise await self._parts.leadership.lost()
        await self._stop.wait()

    def _start_all(self, recorders: Sequence[EventRecorder], controllers: Sequence[Worker]) -> None:
        for recorder in recorders:
            recorder.start()
            self._recorders.append(recorder)
        for controller in controllers:
            controller.start()
            self._workers.append(controller)
        if controllers:
            log.info("running %s", ", ".join(each.name for each in controllers))

    async def _until_stop(self, work: Awaitable[None]) -> None:
        """Await `work` until it fails or `stop` is called."""
        running = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
        finally:
            for task in (running, stopping):
                task.cancel()
            await asyncio.gather(running, stopping, return_exceptions=True)

    async def _sync(self) -> None:
        started = last_log = self._clock.monotonic()
        patience = LOG_SECONDS
        while not self.synced:
            await self._clock.sleep(CHECK_SECONDS)
            now, bound = self._clock.monotonic(), self._settings.sync_seconds
            if bound is not None and now - started >= bound:
                raise SyncTimeout(f"no first sync in {bound:g} s: {self._why_not_ready()}")
            if now - last_log >= patience:
                last_log, patience = now, min(2 * patience, LONGEST_LOG_SECONDS)
                log.warning("waiting for the API server: %s", self._why_not_ready())

    def _why_not_ready(self) -> str | None:
        missing = [each.name for each in self._parts.informers if not each.has_synced]
        return f"not synced: {', '.join(missing)}" if missing else None

    async def _wind_up(self, drain: float, flush: float) -> None:
        """Stop in order, each phase with its bound; a failure does not stop the next phases."""
        self._stop.set()
        spare = self._settings.phase_seconds
        stops = [each.stop(drain) for each in self._workers]
        is_idle = all(await self._phase("controllers", stops, drain + spare))
        await self._phase("events", [each.stop(flush) for each in self._recorders], flush + spare)
        # Release a Lease only if nothing in this process can still act.
        ends: list[Awaitable[None]] = [
            each.stop(release=is_idle) for each in self._parts.candidates
        ]
        if (leadership := self._parts.leadership) is not None:
            release = is_idle and self._contends
            ends.append(leadership.release() if release else leadership.close())
        await self._phase("leadership", ends, spare)
        await self._phase("informers", [each.close() for each in self._parts.informers], spare)
        if self._parts.serving is not None:
            await self._phase("endpoints", [self._parts.serving.close()], spare)

    async def _phase(
        self, name: str, work: Sequence[Awaitable[T]], seconds: float
    ) -> Sequence[T | Literal[False]]:
        """The results of all parts; False for a failure or a timeout."""
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
