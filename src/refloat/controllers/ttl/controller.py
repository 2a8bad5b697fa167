# SPDX-License-Identifier: Apache-2.0
"""Which finished Job is deleted, and when (behaviour A24).

Nothing is remembered: the queue holds whose time runs, and whoever starts
anew finds the same in the Jobs.
"""

import logging
from datetime import timedelta

from refloat.api.batch import Job
from refloat.base.clock import Clock
from refloat.client import errors, kinds
from refloat.client.contract import Client, DeleteOptions
from refloat.controllers.ttl.metrics import TtlMetrics
from refloat.policy import ttl
from refloat.runtime import cache
from refloat.runtime.controller import Controller, ControllerSettings, Instruments
from refloat.runtime.errors import Terminal
from refloat.runtime.informer import Informer
from refloat.runtime.queue import Backoff
from refloat.runtime.reconcile import DONE, Result

log = logging.getLogger(__name__)

ZERO = timedelta(0)

# Nobody waits longer without a look at the time and at the Job: a machine that
# slept has another time than its timers, and a Job that is gone by other means
# is forgotten. A look at a Job that stays costs microseconds and no request.
LONGEST_WAIT = timedelta(hours=1)

# As in Kubernetes: five at once, and soon again after a failure.
WORKERS = ControllerSettings(workers=5, backoff=Backoff(base=0.005, cap=1000.0))


class TtlReconciler:
    def __init__(
        self, client: Client, jobs: cache.Cache[Job], *, clock: Clock, metrics: TtlMetrics
    ) -> None:
        self._client = client
        self._jobs = jobs
        self._clock = clock
        self._metrics = metrics

    async def reconcile(self, key: str) -> Result:
        known = self._jobs.get(key)
        if known is None or (left := self._left(known)) is None:
            return DONE
        if left > ZERO:
            return _again(left)
        return await self._look_again(known)

    async def _look_again(self, known: Job) -> Result:
        """Delete the Job, unless the cache is behind and it may stay after all."""
        meta = known.metadata
        try:
            fresh = await self._client.get(kinds.JOBS, meta.name, namespace=meta.namespace)
        except errors.NotFound:
            return DONE
        left = self._left(fresh)
        if left is None:
            return DONE
        if left > ZERO:
            return _again(left)
        await self._delete(fresh)
        return DONE

    async def _delete(self, job: Job) -> None:
        """This very Job: one of the same name that came after it has its own time."""
        meta = job.metadata
        options = DeleteOptions(propagation="Foreground", uid=meta.uid)
        try:
            await self._client.delete(
                kinds.JOBS, meta.name, namespace=meta.namespace, options=options
            )
        except errors.NotFound:
            return
        text = "ttl-after-finished-controller: job %s/%s is deleted"
        log.debug(text, meta.namespace, meta.name)
        left = self._left(job)
        assert left is not None
        self._metrics.late.observe(-left.total_seconds())

    def _left(self, job: Job) -> timedelta | None:
        """How long the Job stays; None: until somebody else deletes it."""
        if not ttl.applies(job):
            return None
        finished, now = ttl.finished_at(job), self._clock.now()
        if finished is None:
            # Only a change of the Job can help, and that brings it here again (A24.2).
            raise Terminal("its condition does not say when it finished")
        if finished > now:
            # Whoever wrote it has another clock. The Job stays longer rather than shorter.
            log.warning(
                "Job %s finished in the future, at %s; its deletion waits",
                cache.key_of(job),
                finished,
            )
        return ttl.remaining(job, finished, now)


def _again(left: timedelta) -> Result:
    return Result(min(left, LONGEST_WAIT).total_seconds())


class TtlController:
    """One controller on the cache of Jobs; `controllers` are to be run."""

    def __init__(
        self,
        client: Client,
        jobs: Informer[Job],
        *,
        clock: Clock,
        instruments: Instruments,
        metrics: TtlMetrics,
    ) -> None:
        reconciler = TtlReconciler(client, jobs.cache, clock=clock, metrics=metrics)
        self._controller: Controller[str] = Controller(
            "ttl_jobs_to_delete",
            reconciler,
            clock=clock,
            instruments=instruments,
            settings=WORKERS,
        )
        self.controllers = [self._controller]
        jobs.add_handler(self._job_changed)

    def _job_changed(self, _: Job | None, new: Job | None) -> None:
        if new is not None and ttl.applies(new):
            self._controller.queue.add(cache.key_of(new))
