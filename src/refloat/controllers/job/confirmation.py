# SPDX-License-Identifier: Apache-2.0
"""Pods as the API has them, when another process has counted pods of the Job.

1. Another process counts a pod: a manager that led before, or a second one. 2. The cache
has the new status, and still the pod with its finalizer, or not even the pod. 3. The pod
would be counted twice. So when the status has a count that this process did not write,
and the cache of pods is behind it, the Job's pods are read from the API. A count that
comes later is a conflict of this process's next write of the status. Kubernetes does not
ask.
"""

import logging
from collections.abc import Sequence

from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.client import kinds
from refloat.client.contract import Client, Selector
from refloat.controllers.job import claims
from refloat.controllers.job.memory import Memory
from refloat.policy import pod_state
from refloat.runtime.cache import key_of

log = logging.getLogger(__name__)


async def read(client: Client, memory: Memory, job: Job, pods: Sequence[Pod]) -> list[Pod]:
    """The Job's pods that are not over and counted; `memory` waits for the cache to see them."""
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
    selector = Selector(labels=str(claims.selector_of(job)))
    pages = client.list(kinds.PODS, namespace=job.metadata.namespace, selector=selector)
    pods = [pod async for page in pages for pod in page.items]
    owners = [(pod, pod.metadata.controller) for pod in pods]
    return {
        pod.metadata.uid: pod
        for pod, owner in owners
        if owner is not None and owner.uid == job.metadata.uid
    }
