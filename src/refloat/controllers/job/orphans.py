# SPDX-License-Identifier: Apache-2.0
"""Frees pods that no Job will count any more (behaviour A20.3).

A pod with the tracking finalizer cannot be deleted. When its Job is gone or over, no other
controller would remove the finalizer. These pods have a queue of their own, so that
thousands of them do not keep Jobs waiting.

Beside Kubernetes' own Job controller, that controller frees the pods of deleted Jobs. But
that controller may not run, and Refloat cannot know whose Job it was. So Refloat frees
these pods, too, after a wait.
"""

import logging
from typing import NamedTuple

from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.api.structs import OwnerReference
from refloat.client import errors, kinds
from refloat.controllers.job import writes
from refloat.controllers.job.sync import JobContext
from refloat.policy.job import job_conditions, pod_state
from refloat.runtime.reconcile import DONE, Result

log = logging.getLogger(__name__)

# How long Kubernetes' controller has to free a pod first: that takes less than a second. After
# this, both may write, and the second write changes nothing.
OTHERS_FIRST_SECONDS = 10.0


class _FirstSeen(NamedTuple):
    uid: str
    at: float


class OrphanPods:
    """A reconciler of keys of pods."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        # Pods that wait for Kubernetes' controller. Each has its key in the queue, which removes
        # the entry when the wait is over.
        self._first: dict[str, _FirstSeen] = {}

    async def reconcile(self, key: str) -> Result:
        pod = self._context.pods.get(key)
        if pod is None or not pod_state.is_tracked(pod):
            self._first.pop(key, None)
            return DONE
        wait = self._wait(key, pod)
        if wait > 0:
            return Result(wait)
        if await self._is_orphan(pod):
            log.debug("job-orphan-pods %s: removes the finalizer: no Job will count the pod", key)
            # 1. No Job controls this pod. 2. A Job adopts the pod, and relies on the finalizer.
            # 3. This process must not remove the finalizer now. So only the seen version changes.
            await writes.remove_finalizer(self._context.client, pod, unchanged=True)
        self._first.pop(key, None)
        return DONE

    def _wait(self, key: str, pod: Pod) -> float:
        """Seconds that Kubernetes' controller has left; 0 if Refloat replaces it."""
        owner = pod.metadata.controller
        if self._context.settings.takes_default or (
            owner is not None and self._cached_job(pod, owner)
        ):
            return 0.0
        now, sight = self._context.clock.monotonic(), self._first.get(key)
        if sight is None or sight.uid != pod.metadata.uid:
            sight = self._first[key] = _FirstSeen(pod.metadata.uid, now)
        return sight.at + OTHERS_FIRST_SECONDS - now

    def _cached_job(self, pod: Pod, owner: OwnerReference) -> Job | None:
        job = self._context.jobs.get(f"{pod.metadata.namespace}/{owner.name}")
        return job if job is not None and job.metadata.uid == owner.uid else None

    async def _is_orphan(self, pod: Pod) -> bool:
        settings = self._context.settings
        owner = pod.metadata.controller
        if owner is None:
            return True
        if (owner.api_version, owner.kind) != ("batch/v1", "Job"):
            return False
        # The cache of Jobs may be behind the cache of pods: ask the API server.
        job = self._cached_job(pod, owner)
        if job is None:
            try:
                job = await self._context.client.get(
                    kinds.JOBS, owner.name, namespace=pod.metadata.namespace
                )
            except errors.NotFound:
                return True
            if job.metadata.uid != owner.uid:
                return True
        return settings.manages(job) and job_conditions.is_finished(job.status.conditions)
