# SPDX-License-Identifier: Apache-2.0
"""Finds the pods of a Job, adopts and releases pods (behaviour A2).

Indexes find the pods that the Job controls and that may still matter, and the pods of its
namespace that no object controls. No sync reads all pods.
"""

import contextlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias

import msgspec

from refloat.api import selectors
from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.api.structs import OwnerReference
from refloat.client import errors, kinds
from refloat.client.contract import Client
from refloat.controllers.job import pod_template as job_pods
from refloat.controllers.job import writes
from refloat.policy.job import job_spec, pod_state
from refloat.runtime.cache import Cache
from refloat.runtime.errors import Retry
from refloat.runtime.index import Index

_replace = msgspec.structs.replace

# The label of a generated selector (behaviour B2.1).
CONTROLLER_UID = "batch.kubernetes.io/controller-uid"


def _within(namespace: str, uid: str) -> str:
    """The index key of a Job: users of other namespaces can write its uid, too."""
    return f"{namespace}/{uid}"


def _unsettled(pod: Pod) -> Sequence[str]:
    owner = pod.metadata.controller
    if owner is None or pod_state.is_settled(pod):
        return ()
    return (_within(pod.metadata.namespace, owner.uid),)


def _uncontrolled(pod: Pod) -> Sequence[str]:
    return () if pod.metadata.controller is not None else (pod.metadata.namespace,)


def _mislabelled(pod: Pod) -> Sequence[str]:
    owner = pod.metadata.controller
    if owner is None or (pod.metadata.labels or {}).get(CONTROLLER_UID) == owner.uid:
        return ()
    return (_within(pod.metadata.namespace, owner.uid),) if pod_state.is_settled(pod) else ()


UNSETTLED: Index[Pod] = Index("unsettled pods by controller", _unsettled)
"""Pods that are not over and counted, by their namespace and the uid of their Job. So the cost of a
sync does not grow with the pods that the Job ever had."""

UNCONTROLLED: Index[Pod] = Index("uncontrolled pods by namespace", _uncontrolled)

MISLABELLED: Index[Pod] = Index("mislabelled settled pods by controller", _mislabelled)
"""Pods that are over and counted and lack the uid label of their Job: if the Job has a generated
selector, it must release them. With a custom selector these are all settled pods of the Job, so
they are checked only after one of them has changed (`SyncMemory.looks_at_settled`)."""


def unsettled(cache: Cache[Pod], job: Job) -> list[Pod]:
    """Pods that the Job controls, except those that are over and counted."""
    return cache.by(UNSETTLED, _within(job.metadata.namespace, job.metadata.uid))


# How many parsed selectors are kept, and how long their texts may be. A user who may create Jobs
# could otherwise fill the memory or keep the controller busy: each pod that no object controls is
# compared with all Jobs of its namespace, and parsing a selector takes 30 us. 10,000 of 1 KiB take
# about 20 MB.
MAX_SELECTORS = 10_000
MAX_SELECTOR_BYTES = 1024


def selector_of(job: Job) -> selectors.LabelSelector:
    encoded = msgspec.json.encode(job.spec.selector)
    return (_known if len(encoded) <= MAX_SELECTOR_BYTES else _parse)(encoded)


def _parse(encoded: bytes) -> selectors.LabelSelector:
    return selectors.from_object(msgspec.json.decode(encoded))


_known = lru_cache(MAX_SELECTORS)(_parse)


def matches(selector: selectors.LabelSelector, pod: Pod) -> bool:
    return selector.matches(pod.metadata.labels or {})


Wrote: TypeAlias = Callable[[Pod | None], None]
"""Called with each pod after a write."""


async def claim(
    client: Client,
    cache: Cache[Pod],
    job: Job,
    *,
    released: Sequence[Pod] | None,
    mislabelled: bool,
    wrote: Wrote,
) -> list[Pod]:
    """The Job's pods; adopts and releases. Any error ends the sync (A2.7).

    `released` are pods that this process released and could not delete, and that ended since;
    None while the cache does not show the results of earlier deletions. With `mislabelled`,
    pods that are over and counted may have to be released.
    """
    selector = selector_of(job)
    owned: list[Pod] = []
    strays: list[Pod] = []
    for pod in unsettled(cache, job):
        (owned if matches(selector, pod) else strays).append(pod)
    if job.metadata.deletion_timestamp is not None:
        return owned
    orphans = [
        pod
        for pod in cache.by(UNCONTROLLED, job.metadata.namespace)
        if pod.metadata.deletion_timestamp is None and matches(selector, pod)
    ]
    if mislabelled:
        settled_pods = cache.by(MISLABELLED, _within(job.metadata.namespace, job.metadata.uid))
        strays += [pod for pod in settled_pods if not matches(selector, pod)]
    for pod in strays:
        wrote(await _release(client, job, pod))
    adopted = await _adopt(client, job, orphans, wrote) if orphans else []
    if released is not None and job_spec.decided(job) is None:
        # Only if no pod has to go: else a pod without finalizer is deleted as it is.
        parallelism = 0 if job.spec.suspend else job.spec.parallelism
        active = sum(map(pod_state.is_active, owned))
        if active <= (1 if parallelism is None else parallelism):
            released = (*filter(pod_state.has_escaped, owned), *released)
            owned = [pod for pod in owned if not pod_state.has_escaped(pod)]
        for pod in released:
            tracked = await writes.take_back(client, pod)
            wrote(tracked)
            owned.append(pod if tracked is None else tracked)
    return owned + adopted


async def _release(client: Client, job: Job, pod: Pod) -> Pod | None:
    patch = {
        "metadata": {
            "uid": pod.metadata.uid,
            "ownerReferences": [{"$patch": "delete", "uid": job.metadata.uid}],
            "$deleteFromPrimitiveList/finalizers": [pod_state.TRACKING_FINALIZER],
        }
    }
    meta = pod.metadata
    # The pod may be gone, or may have another owner now (A2.4).
    with contextlib.suppress(errors.NotFound, errors.Invalid):
        return await client.patch(
            kinds.PODS, meta.name, patch, patch_type="strategic", namespace=meta.namespace
        )
    return None


async def _adopt(client: Client, job: Job, pods: Sequence[Pod], wrote: Wrote) -> list[Pod]:
    """Adopt pods; returns those that are not gone as they are then (A2.6).

    Only in the version that was seen: otherwise a pod that was adopted and counted since would get
    its finalizer again, and be counted twice.
    """
    # Ask the API server, not the cache: a Job that is being deleted adopts no pods (A2.5).
    meta = job.metadata
    live_job = await client.get(kinds.JOBS, meta.name, namespace=meta.namespace)
    if live_job.metadata.uid != meta.uid or live_job.metadata.deletion_timestamp is not None:
        raise Retry(f"{meta.namespace}/{meta.name} is gone or being deleted, and adopts no pods")
    reference, adopted = job_pods.owner_reference(job), []
    for pod in pods:
        meta = pod.metadata
        patch = {
            "metadata": {
                "uid": meta.uid,
                "resourceVersion": meta.resource_version,
                "ownerReferences": [reference],
                "finalizers": [pod_state.TRACKING_FINALIZER],
            }
        }
        try:
            after = await client.patch(
                kinds.PODS, meta.name, patch, patch_type="strategic", namespace=meta.namespace
            )
        except errors.NotFound:
            continue
        wrote(after)
        # Not `after`, as if the cache showed the adoption already.
        owners = (*(meta.owner_references or ()), msgspec.convert(reference, OwnerReference))
        finalizers = dict.fromkeys((*(meta.finalizers or ()), pod_state.TRACKING_FINALIZER))
        meta = _replace(meta, owner_references=owners, finalizers=tuple(finalizers))
        adopted.append(_replace(pod, metadata=meta))
    return adopted
