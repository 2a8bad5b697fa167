# SPDX-License-Identifier: Apache-2.0
"""Frees pods that no Job will count any more (behaviour A20.3).

A pod with the tracking finalizer cannot go. When its Job is gone or over,
nobody else would remove it. A queue of its own, so that thousands of such pods
do not keep Jobs waiting.

Beside Kubernetes' own Job controller, that one frees the pods of Jobs that are
gone. But it may not run, and Refloat cannot know whose Job it was. So Refloat
frees these pods, too, after a wait.
"""

import logging
from typing import NamedTuple

from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.api.structs import OwnerReference
from refloat.client import errors, kinds
from refloat.controllers.job import writes
from refloat.controllers.job.sync import Tools
from refloat.policy import job_conditions, pod_state
from refloat.runtime.reconcile import DONE, Result

log = logging.getLogger(__name__)

# How long Kubernetes' controller has to free a pod first: it takes less than a
# second. After this, both may do it, and the second write changes nothing.
OTHERS_FIRST_SECONDS = 10.0


class _Sight(NamedTuple):
    uid: str
    at: float


class Orphans:
    """A reconciler of keys of pods."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        # Of pods that wait for Kubernetes' controller. Each has its key in the queue,
        # so that its entry goes at the latest when the wait is over.
        self._first: dict[str, _Sight] = {}

    async def reconcile(self, key: str) -> Result:
        pod = self._tools.pods.get(key)
        if pod is None or not pod_state.is_tracked(pod):
            self._first.pop(key, None)
            return DONE
        wait = self._wait(key, pod)
        if wait > 0:
            return Result(wait)
        if await self._is_orphan(pod):
            log.debug("job-orphan-pods %s: removes the finalizer: no Job will count the pod", key)
            # 1. This pod is nobody's. 2. A Job adopts it, and counts on the
            # finalizer. 3. We must not remove it now: only as it was seen.
            await writes.remove_finalizer(self._tools.client, pod, unchanged=True)
        self._first.pop(key, None)
        return DONE

    def _wait(self, key: str, pod: Pod) -> float:
        """Seconds that Kubernetes' controller has left; none if this one takes its place."""
        owner = pod.metadata.controller
        if self._tools.settings.takes_default or (owner is not None and self._is_known(pod, owner)):
            return 0.0
        now, sight = self._tools.clock.monotonic(), self._first.get(key)
        if sight is None or sight.uid != pod.metadata.uid:
            sight = self._first[key] = _Sight(pod.metadata.uid, now)
        return sight.at + OTHERS_FIRST_SECONDS - now

    def _is_known(self, pod: Pod, owner: OwnerReference) -> bool:
        """Whether the cache has the pod's Job."""
        job = self._tools.jobs.get(f"{pod.metadata.namespace}/{owner.name}")
        return job is not None and job.metadata.uid == owner.uid

    async def _is_orphan(self, pod: Pod) -> bool:
        settings = self._tools.settings
        owner = pod.metadata.controller
        if owner is None:
            return True
        if (owner.api_version, owner.kind) != ("batch/v1", "Job"):
            return False
        job = await self._job(pod.metadata.namespace, owner.name, owner.uid)
        if job is None:
            return True
        return settings.manages(job) and job_conditions.is_finished(job.status.conditions)

    async def _job(self, namespace: str, name: str, uid: str) -> Job | None:
        """The cache may be behind that of pods: what it does not have is asked for."""
        job = self._tools.jobs.get(f"{namespace}/{name}")
        if job is not None and job.metadata.uid == uid:
            return job
        try:
            found = await self._tools.client.get(kinds.JOBS, name, namespace=namespace)
        except errors.NotFound:
            return None
        return found if found.metadata.uid == uid else None
