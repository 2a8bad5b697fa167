# SPDX-License-Identifier: Apache-2.0
"""Which Job is looked at, and when (behaviour A1.2, A4.1-A4.6, A10.2, A25).

Joins caches, queues and syncs. What happens to a Job is in `sync`.
"""

from dataclasses import replace

from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.api.structs import OwnerReference
from refloat.base.clock import Clock
from refloat.client.contract import Client
from refloat.controllers.job import claims
from refloat.controllers.job.events import Teller
from refloat.controllers.job.memory import Memory
from refloat.controllers.job.metrics import JobMetrics
from refloat.controllers.job.orphans import Orphans
from refloat.controllers.job.settings import Settings
from refloat.controllers.job.sync import Sync, Tools
from refloat.policy import backoff_annotation, job_conditions, pod_state, terms
from refloat.policy.terms import INDEXED, NON_INDEXED
from refloat.runtime import cache, index
from refloat.runtime.controller import Controller, ControllerSettings, Instruments
from refloat.runtime.errors import Retry
from refloat.runtime.informer import Informer
from refloat.runtime.reconcile import DONE, Result
from refloat.runtime.recorder import Sink

POD_INDEXES = (claims.UNSETTLED, claims.UNCONTROLLED, claims.MISLABELLED)
"""What the cache of pods must be found by."""

_GROUPS = {"jobs": "batch", "pods": ""}

JOB_INDEXES = (index.NAMESPACE,)
"""What the cache of Jobs must be found by."""


class JobReconciler:
    """The ladder before a sync: whatever needs none ends here."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    def use(self, tools: Tools) -> None:
        """Work with these from the next sync on; one that runs keeps its own."""
        self._tools = tools

    async def reconcile(self, key: str) -> Result:
        job = self._tools.jobs.get(key)
        if job is None or not self._tools.settings.manages(job):
            return DONE
        memory = self._tools.memory
        if (stale := memory.stale(job, self._tools.pods_seen)) is not None:
            self._tools.metrics.stale.labels(_GROUPS[stale], stale).inc()
            raise Retry(f"the cache of {stale} has not seen the last write for {key} yet")
        if job_conditions.is_finished(job.status.conditions):
            memory.forget(job.metadata.uid)
            return DONE
        if job.spec.completion_mode not in (None, INDEXED, NON_INDEXED):
            Teller(self._tools.sink, job).unknown_mode()
            return DONE
        if not _is_ending(job) and (
            wrong := backoff_annotation.mistakes(job, self._tools.settings.switches)
        ):
            Teller(self._tools.sink, job).wrong_policy(wrong)
            return DONE
        return await self._sync(job)

    async def _sync(self, job: Job) -> Result:
        clock, sync, ok = self._tools.clock, Sync(self._tools, job), False
        started = clock.monotonic()
        try:
            result = await sync.run()
            ok = True
        finally:
            seconds = clock.monotonic() - started
            mode = job.spec.completion_mode
            self._tools.metrics.sync_ended(mode, ok=ok, action=sync.action, seconds=seconds)
            self._forget_if_gone(job)
        return result

    def _forget_if_gone(self, job: Job) -> None:
        """One that went during its sync was forgotten before the sync noted its last."""
        known = self._tools.jobs.get(cache.key_of(job))
        if known is None or known.metadata.uid != job.metadata.uid:
            self._tools.memory.forget(job.metadata.uid)


class JobController:
    """Two controllers on the caches of Jobs and of pods; `controllers` are to be run."""

    def __init__(
        self,
        client: Client,
        jobs: Informer[Job],
        pods: Informer[Pod],
        *,
        clock: Clock,
        sink: Sink,
        instruments: Instruments,
        metrics: JobMetrics,
        settings: Settings | None = None,
        workers: ControllerSettings | None = None,
    ) -> None:
        """The informers must have `JOB_INDEXES` and `POD_INDEXES`."""
        self._tools = Tools(
            client=client,
            clock=clock,
            jobs=jobs.cache,
            pods=pods.cache,
            pods_seen=pods.has_seen,
            sink=sink,
            memory=Memory(clock),
            metrics=metrics,
            settings=settings or Settings(),
        )
        self._reconciler = JobReconciler(self._tools)
        self._jobs: Controller[str] = Controller(
            "job",
            self._reconciler,
            clock=clock,
            instruments=instruments,
            settings=workers,
        )
        self._orphans: Controller[str] = Controller(
            "job-orphan-pods",
            Orphans(self._tools),
            clock=clock,
            instruments=instruments,
            settings=workers,
        )
        self.controllers = [self._jobs, self._orphans]
        jobs.add_handler(self._job_changed)
        pods.add_handler(self._pod_changed)

    # -- Jobs -------------------------------------------------------------------

    def take_up(self, settings: Settings) -> None:
        """Work by other settings from now on, and look at every Job anew."""
        self._tools = replace(self._tools, settings=settings)
        self._reconciler.use(self._tools)
        for job in self._tools.jobs:
            self._jobs.queue.add(cache.key_of(job))

    def _job_changed(self, old: Job | None, new: Job | None) -> None:
        if new is None:
            assert old is not None
            self._tools.memory.forget(old.metadata.uid)
            self._examine_pods(old)
        elif not self._tools.settings.manages(new):
            if old is None and new.spec.managed_by is not None:
                self._tools.metrics.another_controllers(new.spec.managed_by)
        elif job_conditions.is_finished(new.status.conditions):
            self._tools.memory.forget(new.metadata.uid)
            self._examine_pods(new)
        elif old is None or _is_urgent(old, new):
            self._jobs.queue.add(cache.key_of(new))
        else:
            self._wake(cache.key_of(new))

    def _examine_pods(self, job: Job) -> None:
        """See to it that no pod of a Job that is over keeps its finalizer (A20.4)."""
        selector = claims.selector_of(job)
        pods = self._tools.pods
        candidates = claims.unsettled(pods, job)
        candidates += pods.by(claims.UNCONTROLLED, job.metadata.namespace)
        for pod in candidates:
            if pod_state.is_tracked(pod) and claims.matches(selector, pod):
                self._orphans.queue.add(cache.key_of(pod))

    # -- pods -------------------------------------------------------------------

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        self._count(old, new)
        now = new if new is not None else old
        assert now is not None
        owner = now.metadata.controller
        before = old.metadata.controller if old is not None else None
        if before is not None and (owner is None or owner.uid != before.uid):
            self._wake_owner(now, before)
        if owner is None:
            self._uncontrolled(old, new)
            return
        if self._job_of(now, owner) is not None:
            self._observe(owner.uid, old, new)
            if new is not None and _may_be_a_stray(old, new):
                self._tools.memory.look_again(owner.uid)
        if not self._wake_owner(now, owner) and new is not None and pod_state.is_tracked(new):
            self._orphans.queue.add(cache.key_of(new))

    def _observe(self, uid: str, old: Pod | None, new: Pod | None) -> None:
        """Note what was expected (A10.2, A10.4).

        A deletion is noted once, when it is seen to begin. Kubernetes notes
        each further event of such a pod, and may take one for another's.
        """
        memory = self._tools.memory
        now = new if new is not None else old
        assert now is not None
        if old is None:
            memory.expectations.creation_observed(uid)
        began = new is None or new.is_terminating
        if began and (old is None or not old.is_terminating):
            memory.expectations.deletion_observed(uid)
        if new is None or not pod_state.is_tracked(new):
            memory.finalizers.removal_observed(uid, now.metadata.uid)

    def _count(self, old: Pod | None, new: Pod | None) -> None:
        """Ends that are to be tracked, and those that were, whosever they are (A23)."""
        was, is_now = _awaits_count(old), _awaits_count(new)
        if was != is_now:
            self._tools.metrics.tracked.labels("delete" if was else "add").inc()

    def _job_of(self, pod: Pod, owner: OwnerReference) -> Job | None:
        """The Job that this owner of a pod is, in the pod's own namespace.

        The uid alone is no proof: a user can write that of a Job in another namespace.
        """
        job = self._tools.jobs.get(f"{pod.metadata.namespace}/{owner.name}")
        return job if job is not None and job.metadata.uid == owner.uid else None

    def _wake_owner(self, pod: Pod, owner: OwnerReference) -> bool:
        """Have the Job looked at; False if it is none, or is gone."""
        if owner.kind != "Job":
            return True
        job = self._job_of(pod, owner)
        if job is None:
            return False
        self._wake(cache.key_of(job))
        return not job_conditions.is_finished(job.status.conditions)

    def _uncontrolled(self, old: Pod | None, new: Pod | None) -> None:
        """Nobody's: perhaps a Job wants it (A25.1)."""
        if new is None:
            return
        if pod_state.is_tracked(new):
            self._orphans.queue.add(cache.key_of(new))
        if old is not None and _same_claim(old, new):
            return
        for job in self._tools.jobs.by(index.NAMESPACE, new.metadata.namespace):
            # A selector costs more than everything else here.
            if self._is_at_work(job) and claims.matches(claims.selector_of(job), new):
                self._wake(cache.key_of(job))

    def _is_at_work(self, job: Job) -> bool:
        """Whether anything is done for the Job when it is looked at."""
        return self._tools.settings.manages(job) and not job_conditions.is_finished(
            job.status.conditions
        )

    def _wake(self, key: str) -> None:
        """Soon, together with what else happens until then (A1.2)."""
        self._jobs.queue.add_after(key, self._tools.settings.batch_seconds)


def _is_ending(job: Job) -> bool:
    """What is deleted or decided ends, whatever became of its policy meanwhile."""
    return job.metadata.deletion_timestamp is not None or terms.decided(job) is not None


def _is_urgent(old: Job, new: Job) -> bool:
    """Somebody wants something else of the Job, or wants it gone."""
    return old.metadata.generation != new.metadata.generation or (
        old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
    )


def _awaits_count(pod: Pod | None) -> bool:
    return pod is not None and pod.is_terminal and pod_state.is_tracked(pod)


def _may_be_a_stray(old: Pod | None, new: Pod) -> bool:
    """Whether a pod may be over and counted, and have labels that no sync has seen."""
    return pod_state.is_settled(new) if old is None else not _same_claim(old, new)


def _same_claim(old: Pod, new: Pod) -> bool:
    return (
        old.metadata.labels == new.metadata.labels
        and old.metadata.controller == new.metadata.controller
    )
