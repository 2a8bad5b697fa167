# SPDX-License-Identifier: Apache-2.0
"""One look at one Job, in the order of behaviour A4 and A5.

What is observed is gathered once, `refloat.policy` decides, and the writes
come in an order that any of them may be the last of: pods first, then the
status that lists whose end is known (write 1), then their finalizers, then
the status that has counted them (write 2). See `policy.accounting` for what a
successor finds after each.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.base.clock import Clock
from refloat.client import errors
from refloat.client.contract import Client
from refloat.controllers.job import attempts, claims, creation, events, writes
from refloat.controllers.job.memory import Memory
from refloat.controllers.job.metrics import RECONCILING, JobMetrics
from refloat.controllers.job.settings import Settings
from refloat.policy import accounting, outcome, pod_state, scaling
from refloat.policy import census as policy_census
from refloat.policy.accounting import Counts
from refloat.policy.backoff import ZERO
from refloat.policy.census import Census
from refloat.policy.outcome import Outcome
from refloat.runtime.cache import Cache
from refloat.runtime.reconcile import Result


@dataclass(frozen=True, slots=True)
class Tools:
    """What a sync works with."""

    client: Client
    clock: Clock
    jobs: Cache[Job]
    pods: Cache[Pod]
    sink: events.Sink
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
        self._now: datetime = tools.clock.now()
        self._teller = events.Teller(tools.sink, job)
        self.action = RECONCILING

    async def run(self) -> Result:
        """Look at the Job, do what is missing, and say when to look again."""
        # Before the pods are listed: what is fulfilled meanwhile would
        # otherwise be held against pods that do not show it yet (A4.8).
        memory = self._tools.memory
        satisfied = memory.expectations.satisfied(self._uid)
        removing = memory.finalizers.expected(self._uid)
        pods = await claims.claim(self._tools.client, self._tools.pods, self._job)
        census = policy_census.observe(
            self._job,
            pods,
            switches=self._tools.settings.switches,
            removing=removing,
            record=memory.record(self._uid),
        )
        managed = await self._decide(census, satisfied=satisfied)
        await self._track(census, managed)
        if managed.error is not None:
            raise managed.error
        return self._again(managed)

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
        if satisfied and not census.terms.deleted:
            managed = await self._manage(census)
        managed.outcome = outcome.completed(census, active=managed.counts.active)
        return managed

    async def _end(self, census: Census, decided: Outcome, *, satisfied: bool) -> Managed:
        """Delete all that is active; the finalizers stay, so that the ends count (A4.12)."""
        deleted, error = await self._delete(census.active)
        counts = _less(_counts(census), deleted)
        # What cannot be complete yet is decided anew by the next sync.
        if not satisfied:
            again = timedelta(seconds=self._tools.settings.batch_seconds)
            return Managed(counts, wait=again, error=error)
        return Managed(counts, decided if error is None else None, error=error)

    async def _manage(self, census: Census) -> Managed:
        plan = scaling.plan(census, self._now, self._tools.settings.pods)
        self.action = plan.action
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

    def _is_taken(self, name: str) -> bool:
        return f"{self._job.metadata.namespace}/{name}" in self._tools.pods

    async def _scale_down(self, victims: tuple[Pod, ...]) -> tuple[list[Pod], Exception | None]:
        """Each loses its finalizer first, and so is not counted (A9.1)."""
        expectations = self._tools.memory.expectations
        expectations.expect_deletions(self._uid, len(victims))
        deleted, error = await self._delete(victims, uncounted=True)
        expectations.deletion_observed(self._uid, len(victims) - len(deleted))
        return deleted, error

    async def _delete(
        self, pods: tuple[Pod, ...], *, uncounted: bool = False
    ) -> tuple[list[Pod], Exception | None]:
        """Those that are deleted, and the first error."""

        async def delete(pod: Pod) -> errors.ClientError | None:
            if uncounted and (error := await self._release(pod)) is not None:
                return error
            try:
                await writes.delete(self._tools.client, pod)
            except errors.NotFound:
                if uncounted:  # nobody will be told of this deletion any more
                    self._tools.memory.expectations.deletion_observed(self._uid)
            except errors.ClientError as error:
                self._teller.not_deleted(error)
                return error
            else:
                self._teller.deleted(pod.metadata.name)
            return None

        failures = await writes.each(pods, delete, at_once=self._tools.settings.most_at_once)
        deleted = [pod for pod, failed in zip(pods, failures, strict=True) if failed is None]
        return deleted, next((error for error in failures if error is not None), None)

    async def _release(self, pod: Pod) -> errors.ClientError | None:
        """Take the finalizer from a pod that is not to be counted; only as it was seen.

        1. The cache shows it running. 2. It has succeeded meanwhile. 3. Without
        its finalizer it would never be counted, and its work be done again.
        Kubernetes takes no notice.
        """
        if not pod_state.is_tracked(pod):
            return None
        try:
            await writes.remove_finalizer(self._tools.client, pod, unchanged=True)
        except errors.ClientError as error:
            return error
        return None

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
        settled = accounting.settle(plan, removed, self._now)
        if settled.write:
            self._tools.memory.wrote(
                await writes.write_status(self._tools.client, job, settled.status)
            )
        if settled.finished and plan.outcome is not None:
            self._teller.ended(settled.status, plan.outcome)
            self._tools.metrics.ended(census.terms, plan.outcome)
        if error is not None:
            raise error

    async def _list(self, census: Census, plan: accounting.Plan) -> Job:
        """Write 1: who ended, and what was decided about those who failed (A5.8)."""
        judged = [(pod, verdict) for pod, verdict in plan.judged if census.terms.fails(pod)]
        told = attempts.added(self._job, judged)
        if not plan.write and told is None:
            return self._job
        annotations = None if told is None else {attempts.ANNOTATION: told}
        client, memory = self._tools.client, self._tools.memory
        job = await writes.write_status(client, self._job, plan.status, annotations)
        memory.wrote(job)
        memory.records[self._uid] = census.record
        self._tools.metrics.counted(census.terms, self._job.status, plan.status)
        self._tools.metrics.verdicts(verdict for _, verdict in plan.judged)
        self._teller.suspension(self._job.status.conditions, plan.status.conditions)
        if census.job.spec.pod_failure_policy is not None:
            self._teller.judged(judged)
        return job

    async def _remove_finalizers(self, pods: tuple[Pod, ...]) -> tuple[list[str], Exception | None]:
        """The uids of those that have lost it, and the first error (A5.9)."""
        expected = self._tools.memory.finalizers
        expected.expect_removed(self._uid, (pod.metadata.uid for pod in pods))

        async def remove(pod: Pod) -> errors.ClientError | None:
            try:
                await writes.remove_finalizer(self._tools.client, pod)
            except errors.ClientError as error:
                expected.removal_observed(self._uid, pod.metadata.uid)
                return error
            return None

        failures = await writes.each(pods, remove, at_once=self._tools.settings.most_at_once)
        removed = [
            pod.metadata.uid for pod, error in zip(pods, failures, strict=True) if error is None
        ]
        return removed, next((error for error in failures if error is not None), None)


def _counts(census: Census) -> Counts:
    return Counts(len(census.active), census.ready, len(census.terminating))


def _less(counts: Counts, deleted: list[Pod]) -> Counts:
    """What was deleted is terminating now."""
    ready = sum(pod_state.is_ready(pod) for pod in deleted)
    gone = len(deleted)
    return Counts(counts.active - gone, counts.ready - ready, counts.terminating + gone)
