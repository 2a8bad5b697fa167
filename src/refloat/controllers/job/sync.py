# SPDX-License-Identifier: Apache-2.0
"""One sync of one Job, in the order of behaviour A4 and A5.

The sync observes once, `refloat.policy` decides, and the process may die after any write:
pods first, then the status that lists the pods whose end is known (write 1), then their
finalizers, then the status that has counted them (write 2). A sync that ends a Job also
writes the decision and these lists before it deletes pods. `policy.accounting` describes
what the next process finds after each write.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.base.clock import Clock
from refloat.client import errors
from refloat.client.contract import Client
from refloat.controllers.job import (
    create_batches,
    events,
    failure_logs,
    live_pods,
    pod_adoption,
    writes,
)
from refloat.controllers.job.metrics import RECONCILING, JobMetrics
from refloat.controllers.job.settings import JobSettings
from refloat.controllers.job.sync_memory import SyncMemory
from refloat.policy.job import accounting, attempts, outcome, pod_state, scaling
from refloat.policy.job.accounting import Counts
from refloat.policy.job.backoff import ZERO
from refloat.policy.job.observed import ObservedJob, observe
from refloat.policy.job.outcome import Outcome
from refloat.runtime.cache import Cache, key_of
from refloat.runtime.reconcile import Result
from refloat.runtime.recorder import Sink

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobContext:
    """What syncs need: client, caches, memory and settings."""

    client: Client
    clock: Clock
    jobs: Cache[Job]
    pods: Cache[Pod]
    pods_seen: Callable[[str], bool]
    """Whether the cache of pods has come as far as a resourceVersion."""

    sink: Sink
    memory: SyncMemory
    metrics: JobMetrics
    settings: JobSettings


@dataclass(slots=True)
class ScalingResult:
    """The result of managing the number of pods."""

    counts: Counts
    outcome: Outcome | None = None
    ran: bool = False
    """Whether the sync managed the number of pods, and suspension."""

    wait: timedelta | None = None
    error: Exception | None = None


class JobSync:
    def __init__(self, context: JobContext, job: Job) -> None:
        self._context = context
        self._job = job
        self._uid = job.metadata.uid
        self._key = key_of(job)
        self._now: datetime = context.clock.now()
        self._events = events.JobEvents(context.sink, job)
        self._judged: frozenset[str] = frozenset()
        self.action = RECONCILING

    async def run(self) -> Result:
        """Sync the Job, and return when to sync again."""
        # Before the pods are listed: what is fulfilled during the reads would otherwise be held
        # against pods that do not show it yet (A4.8).
        memory = self._context.memory
        satisfied = memory.expectations.satisfied(self._uid)
        expected = memory.finalizers.expected(self._uid)
        pods = await self._claim(satisfied=satisfied)
        for name in memory.appeared(self._job, self._context.pods):
            self._events.created(name)
        again, error = await self._remove_finalizers(memory.forged(self._uid, pods, expected))
        if error is not None:
            raise error
        observed = observe(
            self._job,
            pods,
            job_gates=self._context.settings.job_gates,
            removing=expected.union(again),
            record=memory.record(self._uid),
        )
        managed = await self._decide(observed, satisfied=satisfied)
        if self._job is not observed.job:  # the sync wrote the decision and the ends of pods
            observed = replace(observed, job=self._job, judged=self._judged)
        await self._track(observed, managed)
        if managed.error is not None:
            raise managed.error
        return self._again(managed)

    async def _claim(self, *, satisfied: bool) -> list[Pod]:
        """The Job's pods at the time of the last written count, or later."""
        context, memory = self._context, self._context.memory
        mislabelled = memory.looks_at_settled(self._uid)
        try:
            pods = await pod_adoption.claim(
                context.client,
                context.pods,
                self._job,
                released=memory.escaped(self._uid, context.pods) if satisfied else None,
                mislabelled=mislabelled,
                wrote=self._wrote,
            )
        except BaseException:
            memory.look_again(self._uid)
            raise
        if memory.was_counted_elsewhere(self._job):
            if not context.pods_seen(self._job.metadata.resource_version or "0"):
                pods = await live_pods.read(context.client, memory, self._job, pods)
            memory.confirm_tally(self._job)
        return pods

    def _wrote(self, pod: Pod | None) -> None:
        self._context.memory.wrote_pod(self._uid, pod)

    def _again(self, managed: ScalingResult) -> Result:
        """When the time alone will change something (A8.3, A13.2)."""
        waits = [managed.wait, outcome.deadline_remaining(self._job, self._now)]
        seconds = [wait.total_seconds() for wait in waits if wait is not None and wait > ZERO]
        return Result(min(seconds, default=None))

    # -- pods -------------------------------------------------------------------

    async def _decide(self, observed: ObservedJob, *, satisfied: bool) -> ScalingResult:
        decided = outcome.decide(observed, self._now)
        if decided is not None:
            return await self._end(observed, decided, satisfied=satisfied)
        managed = ScalingResult(_counts(observed))
        if not satisfied:
            log.debug("job %s: waits: the cache has not seen its last pods yet", self._key)
        elif observed.spec.deleted:
            log.debug("job %s: is being deleted: creates no pods", self._key)
        else:
            managed = await self._manage(observed)
        managed.outcome = outcome.completed(observed, active=managed.counts.active)
        return managed

    async def _end(
        self, observed: ObservedJob, decided: Outcome, *, satisfied: bool
    ) -> ScalingResult:
        """Delete all active pods; the finalizers stay, so that the ends count (A4.12)."""
        log.debug(
            "job %s: ends %s because of %s: deletes %d active pods",
            self._key,
            "well" if decided.succeeded else "as failed",
            decided.reason,
            len(observed.active),
        )
        if observed.active:
            await self._record(observed, decided)
        deleted, error = await self._each(observed.active, self._delete_one)
        counts = _less(_counts(observed), deleted)
        # An incomplete decision is made again by the next sync.
        if not satisfied:
            log.debug("job %s: waits to end: the cache has not seen all pods yet", self._key)
            again = timedelta(seconds=self._context.settings.batch_seconds)
            return ScalingResult(counts, wait=again, error=error)
        return ScalingResult(counts, decided if error is None else None, error=error)

    async def _record(self, observed: ObservedJob, decided: Outcome) -> None:
        """Make the decision durable before the controller acts on the decision (`accounting.plan`).

        1. A Job is over. 2. Its pods are deleted. 3. The process dies. 4. The next process must
        find the reason: as failures of their own the deleted pods could change the reason, the
        counts, even a success into a failure (H12). The decision is a condition, and the ends are
        in the lists: a tenant can write annotations, but no status.
        """
        plan = accounting.plan(
            observed,
            outcome=decided,
            counts=_counts(observed),
            now=self._now,
            settings=self._context.settings.counting,
        )
        if not plan.write:
            return
        self._job = await self._list(observed, plan)
        self._judged = frozenset(pod.metadata.uid for pod, _ in plan.judged)

    async def _manage(self, observed: ObservedJob) -> ScalingResult:
        last_failed = observed.last_failed.values()
        waited = self._context.memory.waited(self._uid, observed.record, last_failed)
        plan = scaling.plan(observed, self._now, self._context.settings.pods, waited)
        self.action = plan.action
        self._explain(observed, plan)
        counts = _counts(observed)
        if plan.delete:
            deleted, error = await self._scale_down(plan.delete)
            return ScalingResult(_less(counts, deleted), ran=True, error=error)
        if plan.wait:
            return ScalingResult(counts, ran=True, wait=plan.wait)
        if not plan.create:
            return ScalingResult(counts, ran=True)
        creator = create_batches.PodCreator(
            self._context.client,
            self._job,
            memory=self._context.memory,
            is_taken=self._is_taken,
            events=self._events,
            metrics=self._context.metrics,
            reason=create_batches.reason(observed),
        )
        created, error = await creator.create(plan.create)
        active = counts.active + created
        return ScalingResult(
            Counts(active, counts.ready, counts.terminating),
            ran=True,
            error=error,
        )

    def _explain(self, observed: ObservedJob, plan: scaling.PodPlan) -> None:
        """Log why pods are created, deleted or waited for."""
        if not log.isEnabledFor(logging.DEBUG):
            return
        state = (
            f"{len(observed.active)} active, {len(observed.terminating)} terminating, "
            f"{observed.succeeded} succeeded, {observed.failed} failed"
        )
        if plan.delete:
            why = "suspended" if observed.spec.suspended else "more than are wanted"
            log.debug("job %s: deletes %d pods (%s): %s", self._key, len(plan.delete), why, state)
        elif plan.create:
            why = create_batches.reason(observed)
            log.debug("job %s: creates %d pods (%s): %s", self._key, len(plan.create), why, state)
        elif plan.wait:
            seconds = plan.wait.total_seconds()
            log.debug("job %s: waits %.1f s after failures: %s", self._key, seconds, state)

    def _is_taken(self, name: str) -> bool:
        return f"{self._job.metadata.namespace}/{name}" in self._context.pods

    async def _scale_down(self, victims: tuple[Pod, ...]) -> tuple[list[Pod], Exception | None]:
        """Delete pods uncounted: each loses its finalizer first (A9.1)."""
        expectations = self._context.memory.expectations
        expectations.expect_deletions(self._uid, len(victims))

        async def delete(pod: Pod) -> errors.ClientError | None:
            try:
                released = await self._release(pod)
            except errors.ClientError as error:
                return error
            return await self._delete_one(released, uncounted=True)

        deleted: list[Pod] = []
        try:
            deleted, error = await self._each(victims, delete)
        finally:  # the sync after a cancelled one must not wait for them
            expectations.deletion_observed(self._uid, len(victims) - len(deleted))
        self._context.memory.retire(self._uid, deleted)
        return deleted, error

    async def _each(
        self, pods: tuple[Pod, ...], act: Callable[[Pod], Awaitable[errors.ClientError | None]]
    ) -> tuple[list[Pod], Exception | None]:
        """The pods for which `act` succeeded, and the first error."""
        failures = await writes.each(pods, act, at_once=self._context.settings.most_at_once)
        done = [pod for pod, failed in zip(pods, failures, strict=True) if failed is None]
        return done, next((error for error in failures if error is not None), None)

    async def _delete_one(self, pod: Pod, *, uncounted: bool = False) -> errors.ClientError | None:
        try:
            await writes.delete(self._context.client, pod, unchanged=uncounted)
        except errors.NotFound:
            if uncounted:  # no event of this deletion will come any more
                self._context.memory.expectations.deletion_observed(self._uid)
        except errors.ClientError as error:
            if not (uncounted and isinstance(error, errors.Conflict)):
                self._events.not_deleted(error)
            return error
        else:
            self._events.deleted(pod.metadata.name)
        return None

    async def _release(self, pod: Pod) -> Pod:
        """Remove the finalizer of a pod that must not be counted; the changed pod.

        1. The cache shows the pod running. 2. The pod has succeeded since. 3. Without its finalizer
        the pod would never be counted, and its work repeated. So the controller releases the
        version that it saw, and deletes the version that it released; if that fails, the pod gets
        its finalizer again (`pod_adoption`). Kubernetes checks neither version.
        """
        self._context.memory.released(self._uid, pod)
        if not pod_state.is_tracked(pod):
            return pod
        released = await writes.remove_finalizer(self._context.client, pod, unchanged=True)
        self._wrote(released)
        return pod if released is None else released

    # -- counting ---------------------------------------------------------------

    async def _track(self, observed: ObservedJob, managed: ScalingResult) -> None:
        """Count the pods whose end is known (A5)."""
        plan = accounting.plan(
            observed,
            outcome=managed.outcome,
            counts=managed.counts,
            now=self._now,
            managed=managed.ran,
            settings=self._context.settings.counting,
        )
        job = await self._list(observed, plan)
        # A pod is gone at the earliest after this removal. An earlier sync may have listed the pod
        # without an answer to its write, so the names do not depend on what this sync listed.
        failures = (pod for pod in plan.removals if observed.spec.fails(pod))
        self._context.memory.retire(self._uid, failures)
        removed, error = await self._remove_finalizers(plan.removals)
        self._context.memory.count(self._uid, removed)
        settlement = accounting.settle(plan, removed, self._now)
        if settlement.write:
            self._context.memory.wrote(
                await writes.write_status(self._context.client, job, settlement.status)
            )
            self._context.metrics.counted(observed.spec, plan.status, settlement.status)
            status = settlement.status
            log.debug(
                "job %s: has counted %d succeeded, %d failed",
                self._key,
                status.succeeded,
                status.failed,
            )
        if settlement.finished and plan.outcome is not None:
            log.debug("job %s: has ended: %s", self._key, plan.outcome.reason)
            self._events.ended(settlement.status, plan.outcome)
            self._context.metrics.ended(observed.spec, plan.outcome)
        if error is not None:
            raise error

    async def _list(self, observed: ObservedJob, plan: accounting.StatusPlan) -> Job:
        """Write 1: which pods ended, and what was decided about the failures (A5.8)."""
        failures = [(pod, verdict) for pod, verdict in plan.judged if observed.spec.fails(pod)]
        display = attempts.added(self._job, plan.judged, await self._details(plan))
        if not plan.write and display is None:
            return self._job
        annotations = {} if display is None else {attempts.ANNOTATION: display}
        before = self._job
        after = await writes.write_status(self._context.client, before, plan.status, annotations)
        log.debug(
            "job %s: counts %d pods whose finalizers go now, %d of them failures",
            self._key,
            len(plan.removals),
            len(failures),
        )
        memory = self._context.memory
        memory.wrote(after)
        memory.keep(self._uid, observed.record)
        self._context.metrics.counted(observed.spec, before.status, after.status)
        self._context.metrics.verdicts(verdict for _, verdict in plan.judged)
        self._events.suspension(before.status.conditions, after.status.conditions)
        self._events.judged(failures)
        return after

    async def _details(self, plan: accounting.StatusPlan) -> attempts.FailureDetails:
        failed = plan.outcome is not None and not plan.outcome.succeeded
        context, new = self._context, attempts.unrecorded(self._job, plan.judged)
        logs = await failure_logs.read(context.client, context.clock, new, context.settings.logs)
        reason = plan.outcome.reason if plan.outcome is not None and failed else ""
        return attempts.FailureDetails(self._now, reason, logs)

    async def _remove_finalizers(self, pods: tuple[Pod, ...]) -> tuple[list[str], Exception | None]:
        """Remove finalizers; the uids of changed pods, and the first error (A5.9)."""
        expected = self._context.memory.finalizers

        async def remove(pod: Pod) -> errors.ClientError | None:
            uid = pod.metadata.uid
            expected.expect_removed(self._uid, (uid,))
            try:
                self._wrote(await writes.remove_finalizer(self._context.client, pod))
            except errors.ClientError as error:
                expected.removal_observed(self._uid, uid)
                return error
            except BaseException:
                # A sync that is cancelled is repeated with the same memory: a pod whose removal
                # stays expected there is counted now, and again later.
                expected.removal_observed(self._uid, uid)
                raise
            return None

        removed, error = await self._each(pods, remove)
        return [pod.metadata.uid for pod in removed], error


def _counts(observed: ObservedJob) -> Counts:
    return Counts(len(observed.active), observed.ready, len(observed.terminating))


def _less(counts: Counts, deleted: list[Pod]) -> Counts:
    """The counts after these deletions: the pods are terminating."""
    ready = sum(pod_state.is_ready(pod) for pod in deleted)
    count = len(deleted)
    return Counts(counts.active - count, counts.ready - ready, counts.terminating + count)
