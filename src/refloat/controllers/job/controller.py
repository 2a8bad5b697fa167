# SPDX-License-Identifier: Apache-2.0
"""Which Job is synced, and when (behaviour A1.2, A4.1-A4.6, A10.2, A25).

Connects caches, queues and syncs. What happens to a Job is in `sync`.
"""

from collections.abc import Sequence
from dataclasses import replace

from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.api.structs import OwnerReference
from refloat.base.clock import Clock
from refloat.client import kinds
from refloat.client.contract import Client
from refloat.controllers.job import pod_adoption
from refloat.controllers.job.events import JobEvents
from refloat.controllers.job.metrics import JobMetrics
from refloat.controllers.job.orphans import OrphanPods
from refloat.controllers.job.settings import REFLOAT, JobSettings
from refloat.controllers.job.sync import JobContext, JobSync
from refloat.controllers.job.sync_memory import SyncMemory
from refloat.policy.job import backoff_annotation, job_conditions, job_spec, pod_state
from refloat.policy.job.attempts import AttemptLogs
from refloat.policy.job.job_spec import INDEXED, NON_INDEXED
from refloat.runtime import cache, index
from refloat.runtime.controller import Controller, ControllerSettings, Instruments
from refloat.runtime.controller_env import ControllerEnv
from refloat.runtime.errors import Retry
from refloat.runtime.informer import Change, Informer
from refloat.runtime.manager import Worker
from refloat.runtime.reconcile import DONE, Result
from refloat.runtime.recorder import Sink

POD_INDEXES = (pod_adoption.UNSETTLED, pod_adoption.UNCONTROLLED, pod_adoption.MISLABELLED)
"""Indexes that the cache of pods must have."""

_GROUPS = {"jobs": "batch", "pods": ""}

JOB_INDEXES = (index.NAMESPACE,)
"""Indexes that the cache of Jobs must have."""


class JobReconciler:
    """The reconciler of Jobs: the checks before a sync."""

    def __init__(self, context: JobContext) -> None:
        self._context = context

    def use(self, context: JobContext) -> None:
        """Use another context from the next sync on; a running sync keeps its own."""
        self._context = context

    async def reconcile(self, key: str) -> Result:
        job = self._context.jobs.get(key)
        if job is None or not self._context.settings.manages(job):
            return DONE
        memory = self._context.memory
        if (stale := memory.stale(job, self._context.pods_seen)) is not None:
            self._context.metrics.stale.labels(_GROUPS[stale], stale).inc()
            raise Retry(f"the cache of {stale} has not seen the last write for {key} yet")
        if job_conditions.is_finished(job.status.conditions):
            memory.forget(job.metadata.uid)
            return DONE
        if job.spec.completion_mode not in (None, INDEXED, NON_INDEXED):
            JobEvents(self._context.sink, job).unknown_mode()
            return DONE
        # A Job that is deleted or decided ends, whatever its policy is now.
        is_ending = job.metadata.deletion_timestamp is not None or job_spec.decided(job) is not None
        if not is_ending and (
            wrong := backoff_annotation.mistakes(job, self._context.settings.job_gates)
        ):
            JobEvents(self._context.sink, job).wrong_policy(wrong)
            return DONE
        return await self._sync(job)

    async def _sync(self, job: Job) -> Result:
        clock, sync, ok = self._context.clock, JobSync(self._context, job), False
        started = clock.monotonic()
        try:
            result = await sync.run()
            ok = True
        finally:
            seconds = clock.monotonic() - started
            mode = job.spec.completion_mode
            self._context.metrics.sync_ended(mode, ok=ok, action=sync.action, seconds=seconds)
            # A Job that was deleted during its sync was forgotten before the sync noted its last
            # write.
            cached = self._context.jobs.get(cache.key_of(job))
            if cached is None or cached.metadata.uid != job.metadata.uid:
                self._context.memory.forget(job.metadata.uid)
        return result


class JobController:
    """Two controllers on the caches of Jobs and of pods; the caller runs `controllers`."""

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
        settings: JobSettings | None = None,
        workers: ControllerSettings | None = None,
    ) -> None:
        """The informers must have `JOB_INDEXES` and `POD_INDEXES`."""
        self._context = JobContext(
            client=client,
            clock=clock,
            jobs=jobs.cache,
            pods=pods.cache,
            pods_seen=pods.has_seen,
            sink=sink,
            memory=SyncMemory(clock),
            metrics=metrics,
            settings=settings or JobSettings(),
        )
        self._reconciler = JobReconciler(self._context)
        self._jobs: Controller[str] = Controller(
            "job",
            self._reconciler,
            clock=clock,
            instruments=instruments,
            settings=workers,
        )
        self._orphans: Controller[str] = Controller(
            "job-orphan-pods",
            OrphanPods(self._context),
            clock=clock,
            instruments=instruments,
            settings=workers,
        )
        self.controllers = [self._jobs, self._orphans]
        jobs.add_handler(self._job_changed)
        pods.add_handler(self._pod_changed)

    # -- Jobs -------------------------------------------------------------------

    def update_settings(self, settings: JobSettings) -> None:
        """Apply new settings, and sync every Job."""
        self._context = replace(self._context, settings=settings)
        self._reconciler.use(self._context)
        for job in self._context.jobs:
            self._jobs.queue.add(cache.key_of(job))

    def _job_changed(self, change: Change[Job]) -> None:
        old, new = change.old, change.new
        if new is None:
            self._context.memory.forget(change.current.metadata.uid)
            self._examine_pods(change.current)
        elif not self._context.settings.manages(new):
            if old is None and new.spec.managed_by is not None:
                self._context.metrics.another_controllers(new.spec.managed_by)
        elif job_conditions.is_finished(new.status.conditions):
            self._context.memory.forget(new.metadata.uid)
            self._examine_pods(new)
        elif (
            old is None
            or old.metadata.generation != new.metadata.generation
            or old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
        ):
            self._jobs.queue.add(cache.key_of(new))
        else:
            self._wake(cache.key_of(new))

    def _examine_pods(self, job: Job) -> None:
        """Queue the pods of a Job that is over, so that none keeps its finalizer (A20.4)."""
        selector = pod_adoption.selector_of(job)
        pods = self._context.pods
        candidates = pod_adoption.unsettled(pods, job)
        candidates += pods.by(pod_adoption.UNCONTROLLED, job.metadata.namespace)
        for pod in candidates:
            if pod_state.is_tracked(pod) and pod_adoption.matches(selector, pod):
                self._orphans.queue.add(cache.key_of(pod))

    # -- pods -------------------------------------------------------------------

    def _pod_changed(self, change: Change[Pod]) -> None:
        old, new, now = change.old, change.new, change.current
        was, is_now = _awaits_count(old), _awaits_count(new)
        if was != is_now:  # for pods of all owners (A23)
            self._context.metrics.tracked.labels("delete" if was else "add").inc()
        owner = now.metadata.controller
        before = old.metadata.controller if old is not None else None
        if before is not None and (owner is None or owner.uid != before.uid):
            self._wake_owner(now, before)
        if owner is None:
            self._uncontrolled(change)
            return
        if self._job_of(now, owner) is not None:
            self._observe(owner.uid, change)
            # A pod may be over and counted, and have labels that no sync has seen.
            is_settled = pod_state.is_settled
            if new is not None and (is_settled(new) if old is None else not _same_claim(old, new)):
                self._context.memory.look_again(owner.uid)
        if not self._wake_owner(now, owner) and new is not None and pod_state.is_tracked(new):
            self._orphans.queue.add(cache.key_of(new))

    def _observe(self, uid: str, change: Change[Pod]) -> None:
        """Note what was expected (A10.2, A10.4).

        A deletion is noted once, when the deletion begins. Kubernetes notes each further event of
        such a pod, and may mistake one for the deletion of another pod.
        """
        memory, old, new = self._context.memory, change.old, change.new
        if old is None:
            memory.expectations.creation_observed(uid)
        began = new is None or new.is_terminating
        if began and (old is None or not old.is_terminating):
            memory.expectations.deletion_observed(uid)
        if new is None or not pod_state.is_tracked(new):
            memory.finalizers.removal_observed(uid, change.current.metadata.uid)

    def _job_of(self, pod: Pod, owner: OwnerReference) -> Job | None:
        """The Job in the pod's namespace that this owner reference names.

        The uid alone is no proof: a user can write the uid of a Job in another namespace.
        """
        job = self._context.jobs.get(f"{pod.metadata.namespace}/{owner.name}")
        return job if job is not None and job.metadata.uid == owner.uid else None

    def _wake_owner(self, pod: Pod, owner: OwnerReference) -> bool:
        """Queue the owner if it is a Job; False for a Job that is gone or over."""
        if owner.kind != "Job":
            return True
        job = self._job_of(pod, owner)
        if job is None:
            return False
        self._wake(cache.key_of(job))
        return not job_conditions.is_finished(job.status.conditions)

    def _uncontrolled(self, change: Change[Pod]) -> None:
        """Wake the Jobs that may adopt the pod (A25.1)."""
        old, new = change.old, change.new
        if new is None:
            return
        if pod_state.is_tracked(new):
            self._orphans.queue.add(cache.key_of(new))
        if old is not None and _same_claim(old, new):
            return
        for job in self._context.jobs.by(index.NAMESPACE, new.metadata.namespace):
            # A selector costs more than everything else here.
            settings, conditions = self._context.settings, job.status.conditions
            if not settings.manages(job) or job_conditions.is_finished(conditions):
                continue
            if pod_adoption.matches(pod_adoption.selector_of(job), new):
                self._wake(cache.key_of(job))

    def _wake(self, key: str) -> None:
        """Queue the Job after the batch period (A1.2)."""
        self._jobs.queue.add_after(key, self._context.settings.batch_seconds)


def _awaits_count(pod: Pod | None) -> bool:
    return pod is not None and pod.is_terminal and pod_state.is_tracked(pod)


def _same_claim(old: Pod, new: Pod) -> bool:
    return (
        old.metadata.labels == new.metadata.labels
        and old.metadata.controller == new.metadata.controller
    )


def build(env: ControllerEnv) -> Sequence[Worker]:
    """One controller for each namespace; each has its own queue and memory."""

    def settings() -> JobSettings:
        logs = env.settings(AttemptLogs)
        return replace(env.settings(JobSettings), job_gates=env.job_gates, logs=logs)

    client, metrics = env.client("job-controller"), JobMetrics(env.registry)
    component = "job-controller" if settings().takes_default else REFLOAT
    informers = zip(
        env.namespaced(kinds.JOBS, index.NAMESPACE),
        env.namespaced(kinds.PODS, *POD_INDEXES),
        strict=True,
    )
    controllers = [
        JobController(
            client,
            jobs,
            pods,
            clock=env.clock,
            sink=env.recorder(client, component),
            instruments=env.instruments,
            metrics=metrics,
            settings=settings(),
        )
        for jobs, pods in informers
    ]

    def update() -> None:
        for each in controllers:
            each.update_settings(settings())

    env.on_update(update)
    return [worker for each in controllers for worker in each.controllers]
