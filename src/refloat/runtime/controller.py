# SPDX-License-Identifier: Apache-2.0
"""Workers that take keys from a queue and reconcile them.

This module decides what becomes of a key after a reconcile: again after a while,
again with back-off, or again after a change. A reconcile that hangs is cancelled
after a bound and tried again. The manager starts and stops the controllers.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from refloat.base.clock import Clock
from refloat.base.errors import RefloatError
from refloat.base.tasks import Tasks
from refloat.client.errors import ClientError, Unauthorized
from refloat.runtime import queue_metrics
from refloat.runtime import reconcile_metrics as measures
from refloat.runtime.errors import LeadershipLost, Retry, ShutDown, Terminal
from refloat.runtime.queue import Backoff, Queue
from refloat.runtime.reconcile import Reconciler

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The bounds of one controller."""

    workers: int = 5
    """Keys worked on at once; 5 is what Kubernetes has for Jobs (behaviour A1.9)."""

    backoff: Backoff = field(default_factory=Backoff)
    """How long a key waits after a failure; what Kubernetes has for Jobs (behaviour A1.3)."""

    reconcile_seconds: float = 300.0
    """A reconcile that takes longer hangs; the controller cancels and repeats it. 500 creates at
    20 requests per second take a tenth of this time. The end of a Job with thousands of pods, which
    deletes all of them, may take longer; the next reconcile deletes the rest."""

    cancel_seconds: float = 3.0
    """A stop waits so long for cancelled workers, and leaves behind those that still run."""


@dataclass(frozen=True, slots=True)
class Instruments:
    """The metrics of a controller."""

    reconciles: measures.ReconcileMetrics
    queues: queue_metrics.QueueMetrics


class Controller(Generic[K]):
    """A queue, its workers, and the reconciler that they call."""

    def __init__(
        self,
        name: str,
        reconciler: Reconciler[K],
        *,
        clock: Clock,
        instruments: Instruments,
        settings: ControllerSettings | None = None,
        rank: Callable[[K], int] | None = None,
    ) -> None:
        """With a `rank`, keys of the lowest rank are reconciled first."""
        self.name = name
        self._reconciler = reconciler
        self._clock = clock
        self._settings = settings or ControllerSettings()
        self.queue: Queue[K] = Queue(name, clock=clock, backoff=self._settings.backoff, rank=rank)
        instruments.queues.watch(self.queue)
        self._metrics = instruments.reconciles.of(name)
        self._metrics.workers.set(self._settings.workers)
        self._tasks = Tasks()
        self._workers: list[asyncio.Task[None]] = []
        self._stopping = False

    def start(self) -> None:
        """Start the workers. Keys may have been added before."""
        self._workers = [
            self._tasks.spawn(self._work(), name=f"{self.name}/worker-{n}")
            for n in range(self._settings.workers)
        ]

    async def stop(self, drain_seconds: float = 0.0) -> bool:
        """End the workers: a running reconcile has so long to finish, waiting keys stay.

        Keys that stay are no loss: the next process reconciles every key. Returns
        whether all workers have ended; a worker may ignore its cancellation.
        """
        self._stopping = True
        self.queue.shut_down()
        if drain_seconds > 0 and await self._ended(drain_seconds):
            return True
        for worker in self._workers:
            worker.cancel()
        if await self._ended(self._settings.cancel_seconds):
            return True
        log.error("controller %s: a worker ignores that it was cancelled", self.name)
        return False

    async def _ended(self, seconds: float) -> bool:
        if not self._workers:
            return True
        try:
            async with self._clock.timeout(seconds):
                await asyncio.wait(self._workers)
        except TimeoutError:
            return False
        return True

    async def _work(self) -> None:
        while not self._stopping:
            try:
                key = await self.queue.get()
            except ShutDown:
                return
            self._metrics.active.inc()
            try:
                await self._process(key)
            finally:
                self._metrics.active.dec()
                self.queue.done(key)
            # A reconcile that never waits must not block the event loop.
            await self._clock.sleep(0)

    async def _process(self, key: K) -> None:
        started = self._clock.monotonic()
        try:
            async with self._clock.timeout(self._settings.reconcile_seconds):
                result = await self._reconciler.reconcile(key)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # The cancelled task is one that the reconcile awaits, not the worker.
            self._failed(key, error)
        except Exception as error:
            bound = self._settings.reconcile_seconds
            if isinstance(error, TimeoutError) and self._clock.monotonic() - started >= bound:
                self._metrics.timeouts.inc()
                self._failed(key, Retry(f"took longer than {bound:g} s and was cancelled"))
            else:
                self._failed(key, error)
        else:
            self.queue.forget(key)
            if result.requeue_after is None:
                self._metrics.results[measures.SUCCESS].inc()
            else:
                self._metrics.results[measures.REQUEUE_AFTER].inc()
                self.queue.add_after(key, result.requeue_after)
        self._metrics.time.observe(self._clock.monotonic() - started)

    def _failed(self, key: K, error: BaseException) -> None:
        self._metrics.results[measures.ERROR].inc()
        self._metrics.errors.inc()
        if isinstance(error, Terminal):
            self._metrics.terminal.inc()
            self.queue.forget(key)
            log.error("%s %s: %s; no retry before a change", self.name, key, error)
        elif isinstance(error, LeadershipLost):
            log.info("%s %s: %s", self.name, key, error)
        else:
            wait = self._again(key, error)
            text = str(error) or type(error).__name__
            # Refloat's own errors need no traceback.
            trace = None if isinstance(error, RefloatError) else error
            fields = (self.name, key, text, wait)
            log.log(_level(error), "%s %s: %s; again in %g s", *fields, exc_info=trace)

    def _again(self, key: K, error: BaseException) -> float:
        if isinstance(error, Retry) and error.after is not None:
            self.queue.add_after(key, error.after)
            return error.after
        retry_after = error.retry_after if isinstance(error, ClientError) else None
        return self.queue.add_rate_limited(key, at_least=retry_after or 0.0)


def _level(error: BaseException) -> int:
    # The client logs once that the server refuses the credentials.
    if isinstance(error, Retry | Unauthorized):
        return logging.INFO
    return logging.WARNING if isinstance(error, RefloatError) else logging.ERROR
