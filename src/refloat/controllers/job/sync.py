# SPDX-License-Identifier: Apache-2.0
"""One look at one Job, in the order of behaviour A4 and A5.

What is observed is gathered once, `refloat.policy` decides, and the writes
come in an order that any of them may be the last of: pods first, then the
status that lists whose end is known (write 1), then their finalizers, then
the status that has counted them (write 2). See `policy.accounting` for what a
successor finds after each.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.base.clock import Clock
from refloat.client import errors
from refloat.client.contract import Client
from refloat.controllers.job import attempts, claims, creation, events, writes
from refloat.controllers.job.memory import Memory
from refloat.controllers.job.metrics import RECONCILING, JobMetrics
from refloat.controllers.job.settings import Settings
from refloat.policy import accounting, decision, outcome, pod_state, scaling, terms
from refloat.policy import census as policy_census
from refloat.policy.accounting import Counts
from refloat.policy.backoff import ZERO
from refloat.policy.census import Census
from refloat.policy.outcome import Outcome
from refloat.policy.pod_failure import Verdict
from refloat.runtime.cache import Cache
from refloat.runtime.reconcile import Result
from refloat.runtime.recorder import Sink

Judged: TypeAlias = Sequence[tuple[Pod, Verdict]]


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
        pods = await self._claim(settled=satisfied)
        census = policy_census.observe(
            self._job,
            pods,
            switches=self._tools.settings.switches,
            removing=removing,
            record=memory.record(self._uid),
            ignored=self._ignored() if terms.decided(self._job) else policy_census.NOBODY,
        )
        managed = await self._decide(census, satisfied=satisfied)
        if self._job is not census.job:  # a decision was noted, and with it who had ended
            census = replace(census, job=self._job, ignored=self._ignored())
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
                settled=settled,
                mislabelled=mislabelled,
                wrote=self._wrote,
            )
        except BaseException:
            memory.look_again(self._uid)
            raise

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
        if satisfied and not census.terms.deleted:
            managed = await self._manage(census)
        managed.outcome = outcome.completed(census, active=managed.counts.active)
        return managed

    async def _end(self, census: Census, decided: Outcome, *, satisfied: bool) -> Managed:
        """Delete all that is active; the finalizers stay, so that the ends count (A4.12)."""
        if census.active and not decided.stands:
            await self._note(census, decided)
        deleted, error = await self._delete(census.active)
        counts = _less(_counts(census), deleted)
        # What cannot be complete yet is decided anew by the next sync.
        if not satisfied:
            again = timedelta(seconds=self._tools.settings.batch_seconds)
            return Managed(counts, wait=again, error=error)
        return Managed(counts, decided if error is None else None, error=error)

    async def _note(self, census: Census, decided: Outcome) -> None:
        """Have the decision stand before anything follows from it (`policy.decision`)."""
        client, job = self._tools.client, self._job
        note: dict[str, str | None] = {decision.ANNOTATION: outcome.note(job, decided)}
        ended = accounting.ended(census, self._tools.settings.counting)
        told = self._attempts(ended.judged)
        try:
            self._job = await writes.write_together(client, job, ended.status, {**told, **note})
        except errors.Invalid:
            # Whoever is listed is not judged again, so not without the decision. But
            # the decision without them, if there is room for that.
            self._job = await writes.write_status(client, job, job.status, note)
            self._tools.memory.wrote(self._job)
        else:
            self._listed(census, job, self._job, ended.judged)

    def _ignored(self) -> frozenset[str]:
        return attempts.ignored(self._job)

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
        self._tools.memory.deleted(self._uid, deleted)
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
        """Take the finalizer from a pod that is not to be counted; the pod as it is then.

        1. The cache shows it running. 2. It has succeeded meanwhile. 3. Without
        its finalizer it would never be counted, and its work be done again. So
        it is released only as it was seen, and deleted only as it was released;
        and it is marked, for whoever comes when we do not get to the deletion
        (`claims`). Kubernetes takes no notice.
        """
        if not pod_state.is_tracked(pod):
            return pod
        released = await writes.release(self._tools.client, pod)
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
        settled = accounting.settle(plan, removed, self._now)
        if settled.write:
            self._tools.memory.wrote(
                await writes.write_status(self._tools.client, job, settled.status)
            )
            self._tools.metrics.counted(census.terms, plan.status, settled.status)
        if settled.finished and plan.outcome is not None:
            self._teller.ended(settled.status, plan.outcome)
            self._tools.metrics.ended(census.terms, plan.outcome)
        if error is not None:
            raise error

    async def _list(self, census: Census, plan: accounting.Plan) -> Job:
        """Write 1: who ended, and what was decided about those who failed (A5.8)."""
        judged = [(pod, verdict) for pod, verdict in plan.judged if census.terms.fails(pod)]
        annotations = self._annotations(plan, judged)
        if not plan.write and not annotations:
            return self._job
        job = await writes.write_status(self._tools.client, self._job, plan.status, annotations)
        self._tools.memory.records[self._uid] = census.record
        self._listed(census, self._job, job, plan.judged)
        return job

    def _listed(self, census: Census, before: Job, after: Job, judged: Judged) -> None:
        """Tell what a write has made durable."""
        self._tools.memory.wrote(after)
        self._tools.metrics.counted(census.terms, before.status, after.status)
        self._tools.metrics.verdicts(verdict for _, verdict in judged)
        self._teller.suspension(before.status.conditions, after.status.conditions)
        self._teller.judged([(pod, said) for pod, said in judged if census.terms.fails(pod)])

    def _attempts(self, judged: Judged) -> dict[str, str | None]:
        told = attempts.added(self._job, judged)
        return {} if told is None else {attempts.ANNOTATION: told}

    def _annotations(self, plan: accounting.Plan, judged: Judged) -> dict[str, str | None]:
        """What goes with write 1: failures, and what a condition says from then on."""
        changed = self._attempts(judged)
        if plan.outcome is not None and decision.ANNOTATION in (
            self._job.metadata.annotations or ()
        ):
            changed[decision.ANNOTATION] = None
        return changed

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
