# SPDX-License-Identifier: Apache-2.0
"""The pods of a Job, read from the API server when another process has counted some of them.

1. Another process counts a pod: a previous leader, or a second manager. 2. The cache has the
new status, but still the pod with its finalizer, or not even the pod. 3. The pod would be
counted twice. So when the status has a count of another process and the cache of pods is
older than this status, the controller reads the pods from the API server. A count that comes
later conflicts with the next write of the status. Kubernetes does not read the pods.
"""

import logging
from collections.abc import Sequence

from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.client import kinds
from refloat.client.contract import Client, Selector
from refloat.controllers.job import pod_adoption
from refloat.controllers.job.sync_memory import SyncMemory
from refloat.policy.job import pod_state
from refloat.runtime.cache import key_of

log = logging.getLogger(__name__)


async def read(client: Client, memory: SyncMemory, job: Job, pods: Sequence[Pod]) -> list[Pod]:
    """Pods of the Job that are not over and counted; `memory` waits for the cache."""
    uid = job.metadata.uid
    current = await _all(client, job)
    log.debug("job %s: another process has counted; reads %d pods", key_of(job), len(current))
    tracked = {key for key, pod in current.items() if pod_state.is_tracked(pod)}
    cached = {pod.metadata.uid for pod in pods}
    memory.finalizers.expect_removed(uid, cached - tracked)
    for pod in current.values():
        memory.wrote_pod(uid, pod)
    return [pod for pod in current.values() if not pod_state.is_settled(pod)]


async def _all(client: Client, job: Job) -> dict[str, Pod]:
    selector = Selector(labels=str(pod_adoption.selector_of(job)))
    pages = client.list(kinds.PODS, namespace=job.metadata.namespace, selector=selector)
    pods = [pod async for page in pages for pod in page.items]
    owners = [(pod, pod.metadata.controller) for pod in pods]
    return {
        pod.metadata.uid: pod
        for pod, owner in owners
        if owner is not None and owner.uid == job.metadata.uid
    }
