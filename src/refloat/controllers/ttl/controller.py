# SPDX-License-Identifier: Apache-2.0
"""Which finished Job is deleted, and when (behaviour A24).

The controller remembers nothing: the queue has the waiting Jobs, and after a restart the Jobs
show the same.
"""

import logging
from collections.abc import Sequence
from datetime import timedelta

from refloat.api.batch import Job
from refloat.base.clock import Clock
from refloat.client import errors, kinds
from refloat.client.contract import Client, DeleteOptions
from refloat.controllers.ttl.metrics import TtlMetrics
from refloat.policy.job import ttl
from refloat.runtime import cache
from refloat.runtime.controller import Controller, ControllerSettings, Instruments
from refloat.runtime.controller_env import ControllerEnv
from refloat.runtime.errors import Terminal
from refloat.runtime.informer import Change, Informer
from refloat.runtime.manager import Worker
from refloat.runtime.queue import Backoff
from refloat.runtime.reconcile import DONE, Result

log = logging.getLogger(__name__)

ZERO = timedelta(0)

# The longest wait without a check of the time and the Job: after a sleep of the machine its timers
# are late, and a Job that was deleted by other means must be forgotten. A check of a Job that
# stays costs microseconds and no request.
LONGEST_WAIT = timedelta(hours=1)

# As in Kubernetes: five workers, and short waits after failures.
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
        job = self._jobs.get(key)
        if job is None or (wait := self._left(job)) is None:
            return DONE
        if wait > ZERO:
            return _again(wait)
        # Read the Job once more: the cache may be behind.
        meta = job.metadata
        try:
            fresh = await self._client.get(kinds.JOBS, meta.name, namespace=meta.namespace)
        except errors.NotFound:
            return DONE
        wait = self._left(fresh)
        if wait is None:
            return DONE
        if wait > ZERO:
            return _again(wait)
        await self._delete(fresh)
        return DONE

    async def _delete(self, job: Job) -> None:
        """Delete this Job; a newer Job with its name has its own TTL."""
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
        wait = self._left(job)
        assert wait is not None
        self._metrics.late.observe(-wait.total_seconds())

    def _left(self, job: Job) -> timedelta | None:
        """How long the Job stays; None if this controller never deletes it."""
        if not ttl.applies(job):
            return None
        finished, now = ttl.finished_at(job), self._clock.now()
        if finished is None:
            # Only a change of the Job can help, which queues the Job again (A24.2).
            raise Terminal("its condition does not say when it finished")
        if finished > now:
            # Another process with another clock wrote the time. Wait rather too long.
            log.warning(
                "Job %s finished in the future, at %s; its deletion waits",
                cache.key_of(job),
                finished,
            )
        return ttl.remaining(job, finished, now)


def _again(wait: timedelta) -> Result:
    return Result(min(wait, LONGEST_WAIT).total_seconds())


class TtlController:
    """The TTL controller on the cache of Jobs; the caller runs `controllers`."""

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

    def _job_changed(self, change: Change[Job]) -> None:
        if change.new is not None and ttl.applies(change.new):
            self._controller.queue.add(cache.key_of(change.new))


def build(env: ControllerEnv) -> Sequence[Worker]:
    return TtlController(
        env.client("ttl-after-finished-controller"),
        env.informer(kinds.JOBS),
        clock=env.clock,
        instruments=env.instruments,
        metrics=TtlMetrics(env.registry),
    ).controllers
