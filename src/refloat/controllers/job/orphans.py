# SPDX-License-Identifier: Apache-2.0
"""Frees pods that no Job will count any more (behaviour A20.3).

A pod with the tracking finalizer cannot go. When its Job is gone or over,
nobody else would remove it. A queue of its own, so that thousands of such pods
do not keep Jobs waiting.
"""

import logging

from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.client import errors, kinds
from refloat.controllers.job import writes
from refloat.controllers.job.sync import Tools
from refloat.policy import job_conditions, pod_state
from refloat.runtime.reconcile import DONE, Result

log = logging.getLogger(__name__)


class Orphans:
    """A reconciler of keys of pods."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def reconcile(self, key: str) -> Result:
        pod = self._tools.pods.get(key)
        if pod is not None and pod_state.is_tracked(pod) and await self._is_orphan(pod):
            log.debug("job-orphan-pods %s: removes the finalizer: no Job will count the pod", key)
            # 1. This pod is nobody's. 2. A Job adopts it, and counts on the
            # finalizer. 3. We must not remove it now: only as it was seen.
            await writes.remove_finalizer(self._tools.client, pod, unchanged=True)
        return DONE

    async def _is_orphan(self, pod: Pod) -> bool:
        settings = self._tools.settings
        owner = pod.metadata.controller
        if owner is None:
            return settings.takes_default
        if (owner.api_version, owner.kind) != ("batch/v1", "Job"):
            return False
        job = await self._job(pod.metadata.namespace, owner.name, owner.uid)
        if job is None:
            # Whose it was cannot be known any more: the business of whoever
            # takes care of Jobs that say nothing.
            return settings.takes_default
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
