# SPDX-License-Identifier: Apache-2.0
"""One look at one Job, in the order of behaviour A4 and A5.

What is observed is gathered once, `refloat.policy` decides, and the writes
come in an order that any of them may be the last of: pods first, then the
status that lists whose end is known (write 1), then their finalizers, then
the status that has counted them (write 2). A sync that ends a Job writes the
decision and these lists before it deletes pods, too. See `policy.accounting`
for what a successor finds after each.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.base.clock import Clock
from refloat.client import errors
from refloat.client.contract import Client
from refloat.controllers.job import attempts, claims, confirmation, creation, events, writes
from refloat.controllers.job.memory import Memory
from refloat.controllers.job.metrics import RECONCILING, JobMetrics
from refloat.controllers.job.settings import Settings
from refloat.policy import accounting, outcome, pod_state, scaling
from refloat.policy import census as policy_census
from refloat.policy.accounting import Counts
from refloat.policy.backoff import ZERO
from refloat.policy.census import Census
from refloat.policy.outcome import Outcome
from refloat.runtime.cache import Cache, key_of
from refloat.runtime.reconcile import Result
from refloat.runtime.recorder import Sink

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Tools:
    """What a sync works with."""

    client: Client
    clock: Clock
    jobs: Cache[Job]
    pods: Cache[Pod]
    pods_seen: Callable[[str], bool]
    """Whether the cache of pods has come as far as a resourceVersion."""

    sink: Sink
    memory: Memory
    metrics: JobMetrics
    settings: Settings


@dataclass(slots=True)
class Managed:
    """What became of the number of pods."""

    counts: Counts
    outcome: Outcome | None = None
    ran: bool = False
    """Whether the number of pods was looked after, and suspension with it."""

    wait: timedelta | None = None
    error: Exception | None = None


class Sync:
    def __init__(self, tools: Tools, job: Job) -> None:
        self._tools = tools
        self._job = job
        self._uid = job.metadata.uid
        self._key = key_of(job)
        self._now: datetime = tools.clock.now()
        self._teller = events.Teller(tools.sink, job)
        self._judged: frozenset[str] = frozenset()
        self.action = RECONCILING

    async def run(self) -> Result:
        """Look at the Job, do what is missing, and say when to look again."""
        # Before the pods are listed: what is fulfilled meanwhile would
        # otherwise be held against pods that do not show it yet (A4.8).
        memory = self._tools.memory
        satisfied = memory.expectations.satisfied(self._uid)
        expected = memory.finalizers.expected(self._uid)
        pods = await self._confirm(await self._claim(settled=satisfied))
        self._report_late_pods()
        again = await self._remove_again(pods, expected)
        census = policy_census.observe(
            self._job,
            pods,
            switches=self._tools.settings.switches,
            removing=expected.union(again),
            record=memory.record(self._uid),
        )
        managed = await self._decide(census, satisfied=satisfied)
        if self._job is not census.job:  # the decision was written, and who had ended
            census = replace(census, job=self._job, judged=self._judged)
        await self._track(census, managed)
        if managed.error is not None:
            raise managed.error
        return self._again(managed)

    async def _claim(self, *, settled: bool) -> list[Pod]:
        memory = self._tools.memory
        mislabelled = memory.looks_at_settled(self._uid)
        try:
            return await claims.claim(
                self._tools.client,
                self._tools.pods,
                self._job,
                released=memory.escaped(self._uid, self._tools.pods) if settled else None,
                mislabelled=mislabelled,
                wrote=self._wrote,
            )
        except BaseException:
            memory.look_again(self._uid)
            raise

    async def _confirm(self, pods: list[Pod]) -> list[Pod]:
        """The pods as they were, or are, when the last count of them was written."""
        tools = self._tools
        if not tools.memory.was_counted_elsewhere(self._job):
            return pods
        if not tools.pods_seen(self._job.metadata.resource_version or "0"):
            pods = await confirmation.read(tools.client, tools.memory, self._job, pods)
        tools.memory.confirm_tally(self._job)
        return pods

    def _report_late_pods(self) -> None:
        """Report the creation of pods that came after their create had failed."""
        memory, namespace = self._tools.memory, self._job.metadata.namespace
        for name in memory.doubtful(self._uid):
            pod = self._tools.pods.get(f"{namespace}/{name}")
            owner = pod.metadata.controller if pod is not None else None
            if owner is not None and owner.uid == self._uid and memory.announces(self._uid, name):
                self._teller.created(name)

    async def _remove_again(self, pods: Sequence[Pod], expected: frozenset[str]) -> list[str]:
        """Remove finalizers that were put back on pods after these were counted; their uids.

        Users may write finalizers. Kubernetes counts such a pod once more, and so
        does a successor of this process.
        """
        counted = self._tools.memory.counted(self._uid)
        forged = tuple(
            pod
            for pod in pods
            if pod.metadata.uid in counted
            and pod.metadata.uid not in expected
            and pod_state.is_tracked(pod)
        )
        removed, error = await self._remove_finalizers(forged)
        if error is not None:
            raise error
        return removed

    def _wrote(self, pod: Pod | None) -> None:
        self._tools.memory.wrote_pod(self._uid, pod)

    def _again(self, managed: Managed) -> Result:
        """When the time alone will change something (A8.3, A13.2)."""
        waits = [managed.wait, outcome.deadline_remaining(self._job, self._now)]
        seconds = [wait.total_seconds() for wait in waits if wait is not None and wait > ZERO]
        return Result(min(seconds, default=None))

    # -- pods -------------------------------------------------------------------

    async def _decide(self, census: Census, *, satisfied: bool) -> Managed:
        decided = outcome.decide(census, self._now)
        if decided is not None:
            return await self._end(census, decided, satisfied=satisfied)
        managed = Managed(_counts(census))
        if not satisfied:
            log.debug("job %s: waits: the cache has not seen its last pods yet", self._key)
        elif census.terms.deleted:
            log.debug("job %s: is being deleted: creates no pods", self._key)
        else:
            managed = await self._manage(census)
        managed.outcome = outcome.completed(census, active=managed.counts.active)
        return managed

    async def _end(self, census: Census, decided: Outcome, *, satisfied: bool) -> Managed:
        """Delete all that is active; the finalizers stay, so that the ends count (A4.12)."""
        log.debug(
            "job %s: ends %s because of %s: deletes %d active pods",
            self._key,
            "well" if decided.succeeded else "as failed",
            decided.reason,
            len(census.active),
        )
        if census.active:
            await self._record(census, decided)
        deleted, error = await self._delete(census.active)
        counts = _less(_counts(census), deleted)
        # What cannot be complete yet is decided anew by the next sync.
        if not satisfied:
            log.debug("job %s: waits to end: the cache has not seen all pods yet", self._key)
            again = timedelta(seconds=self._tools.settings.batch_seconds)
            return Managed(counts, wait=again, error=error)
        return Managed(counts, decided if error is None else None, error=error)

    async def _record(self, census: Census, decided: Outcome) -> None:
        """Make the decision durable before anything follows from it (`accounting.plan`).

        1. A Job is over. 2. Its pods are deleted. 3. The process dies. 4. Its
        successor must find why: as failures of their own the deleted pods could
        change the reason, the counts, even a success into a failure (H12). The
        decision is a condition, and the ends are in the lists: a tenant can
        write annotations, but no status.
        """
        plan = accounting.plan(
            census,
            outcome=decided,
            counts=_counts(census),
            now=self._now,
            settings=self._tools.settings.counting,
        )
        if not plan.write:
            return
        self._job = await self._list(census, plan)
        self._judged = frozenset(pod.metadata.uid for pod, _ in plan.judged)

    async def _manage(self, census: Census) -> Managed:
        last_failed = census.last_failed.values()
        waited = self._tools.memory.waited(self._uid, census.record, last_failed)
        plan = scaling.plan(census, self._now, self._tools.settings.pods, waited)
        self.action = plan.action
        self._explain(census, plan)
        counts = _counts(census)
        if plan.delete:
            deleted, error = await self._scale_down(plan.delete)
            return Managed(_less(counts, deleted), ran=True, error=error)
        if plan.wait:
            return Managed(counts, ran=True, wait=plan.wait)
        if not plan.create:
            return Managed(counts, ran=True)
        creator = creation.Creator(
            self._tools.client,
            self._job,
            memory=self._tools.memory,
            is_taken=self._is_taken,
            teller=self._teller,
            metrics=self._tools.metrics,
            reason=creation.reason(census),
        )
        made, error = await creator.create(plan.create)
        active = counts.active + made
        return Managed(
            Counts(active, counts.ready, counts.terminating),
            ran=True,
            error=error,
        )

    def _explain(self, census: Census, plan: scaling.Plan) -> None:
        """Log why pods are created, deleted or waited for."""
        if not log.isEnabledFor(logging.DEBUG):
            return
        state = (
            f"{len(census.active)} active, {len(census.terminating)} terminating, "
            f"{census.succeeded} succeeded, {census.failed} failed"
        )
        if plan.delete:
            why = "suspended" if census.terms.suspended else "more than are wanted"
            log.debug("job %s: deletes %d pods (%s): %s", self._key, len(plan.delete), why, state)
        elif plan.create:
            why = creation.reason(census)
            log.debug("job %s: creates %d pods (%s): %s", self._key, len(plan.create), why, state)
        elif plan.wait:
            seconds = plan.wait.total_seconds()
            log.debug("job %s: waits %.1f s after failures: %s", self._key, seconds, state)

    def _is_taken(self, name: str) -> bool:
        return f"{self._job.metadata.namespace}/{name}" in self._tools.pods

    async def _scale_down(self, victims: tuple[Pod, ...]) -> tuple[list[Pod], Exception | None]:
        """Each loses its finalizer first, and so is not counted (A9.1)."""
        expectations = self._tools.memory.expectations
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
        finally:  # also of a sync that is cancelled: the next one must not wait for them
            expectations.deletion_observed(self._uid, len(victims) - len(deleted))
        self._tools.memory.retire(self._uid, deleted)
        return deleted, error

    async def _delete(self, pods: tuple[Pod, ...]) -> tuple[list[Pod], Exception | None]:
        """Those that are deleted, and the first error."""
        return await self._each(pods, self._delete_one)

    async def _each(
        self, pods: tuple[Pod, ...], act: Callable[[Pod], Awaitable[errors.ClientError | None]]
    ) -> tuple[list[Pod], Exception | None]:
        """Those that it was done to, and the first error."""
        failures = await writes.each(pods, act, at_once=self._tools.settings.most_at_once)
        done = [pod for pod, failed in zip(pods, failures, strict=True) if failed is None]
        return done, next((error for error in failures if error is not None), None)

    async def _delete_one(self, pod: Pod, *, uncounted: bool = False) -> errors.ClientError | None:
        try:
            await writes.delete(self._tools.client, pod, unchanged=uncounted)
        except errors.NotFound:
            if uncounted:  # nobody will be told of this deletion any more
                self._tools.memory.expectations.deletion_observed(self._uid)
        except errors.ClientError as error:
            if not (uncounted and isinstance(error, errors.Conflict)):
                self._teller.not_deleted(error)
            return error
        else:
            self._teller.deleted(pod.metadata.name)
        return None

    async def _release(self, pod: Pod) -> Pod:
        """Remove the finalizer of a pod that is not to be counted; the pod as it is then.

        1. The cache shows it running. 2. It has succeeded meanwhile. 3. Without
        its finalizer it would never be counted, and its work be done again. So
        the controller releases the version that it saw, and deletes the version
        that it released; if that fails, the pod gets its finalizer again
        (`claims`). Kubernetes looks at neither.
        """
        self._tools.memory.released(self._uid, pod)
        if not pod_state.is_tracked(pod):
            return pod
        released = await writes.remove_finalizer(self._tools.client, pod, unchanged=True)
        self._wrote(released)
        return pod if released is None else released

    # -- counting ---------------------------------------------------------------

    async def _track(self, census: Census, managed: Managed) -> None:
        """Count those whose end is known (A5)."""
        plan = accounting.plan(
            census,
            outcome=managed.outcome,
            counts=managed.counts,
            now=self._now,
            managed=managed.ran,
            settings=self._tools.settings.counting,
        )
        job = await self._list(census, plan)
        removed, error = await self._remove_finalizers(plan.removals)
        self._tools.memory.count(self._uid, removed)
        settled = accounting.settle(plan, removed, self._now)
        if settled.write:
            self._tools.memory.wrote(
                await writes.write_status(self._tools.client, job, settled.status)
            )
            self._tools.metrics.counted(census.terms, plan.status, settled.status)
            status = settled.status
            log.debug(
                "job %s: has counted %d succeeded, %d failed",
                self._key,
                status.succeeded,
                status.failed,
            )
        if settled.finished and plan.outcome is not None:
            log.debug("job %s: has ended: %s", self._key, plan.outcome.reason)
            self._teller.ended(settled.status, plan.outcome)
            self._tools.metrics.ended(census.terms, plan.outcome)
        if error is not None:
            raise error

    async def _list(self, census: Census, plan: accounting.Plan) -> Job:
        """Write 1: which pods ended, and what was decided about the failures (A5.8)."""
        judged = [(pod, verdict) for pod, verdict in plan.judged if census.terms.fails(pod)]
        display = attempts.added(self._job, judged)
        if not plan.write and display is None:
            return self._job
        annotations = {} if display is None else {attempts.ANNOTATION: display}
        before = self._job
        after = await writes.write_status(self._tools.client, before, plan.status, annotations)
        log.debug(
            "job %s: counts %d pods whose finalizers go now, %d of them failures",
            self._key,
            len(plan.removals),
            len(judged),
        )
        memory = self._tools.memory
        memory.wrote(after)
        memory.keep(self._uid, census.record)
        memory.retire(self._uid, (pod for pod, _ in judged))
        self._tools.metrics.counted(census.terms, before.status, after.status)
        self._tools.metrics.verdicts(verdict for _, verdict in plan.judged)
        self._teller.suspension(before.status.conditions, after.status.conditions)
        self._teller.judged(judged)
        return after

    async def _remove_finalizers(self, pods: tuple[Pod, ...]) -> tuple[list[str], Exception | None]:
        """The uids of those that have lost it, and the first error (A5.9)."""
        expected = self._tools.memory.finalizers

        async def remove(pod: Pod) -> errors.ClientError | None:
            uid = pod.metadata.uid
            expected.expect_removed(self._uid, (uid,))
            try:
                self._wrote(await writes.remove_finalizer(self._tools.client, pod))
            except errors.ClientError as error:
                expected.removal_observed(self._uid, uid)
                return error
            except BaseException:
                # A sync that is cancelled is tried again with the same memory: who
                # is taken for removed there is counted, and counted again later.
                expected.removal_observed(self._uid, uid)
                raise
            return None

        removed, error = await self._each(pods, remove)
        return [pod.metadata.uid for pod in removed], error


def _counts(census: Census) -> Counts:
    return Counts(len(census.active), census.ready, len(census.terminating))


def _less(counts: Counts, deleted: list[Pod]) -> Counts:
    """What was deleted is terminating now."""
    ready = sum(pod_state.is_ready(pod) for pod in deleted)
    gone = len(deleted)
    return Counts(counts.active - gone, counts.ready - ready, counts.terminating + gone)
