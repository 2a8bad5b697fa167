# SPDX-License-Identifier: Apache-2.0
"""Which pods belong to a Job, and making it so (behaviour A2).

Found by indexes, never by looking at all pods: those that the Job controls and
that may still matter, and those of its namespace that nobody controls.
"""

import contextlib
from collections.abc import Sequence

import msgspec

from refloat.api import selectors
from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.api.structs import OwnerReference
from refloat.client import errors, kinds
from refloat.client.contract import Client
from refloat.controllers.job import pods as job_pods
from refloat.policy import pod_state
from refloat.runtime.cache import Cache
from refloat.runtime.errors import Retry
from refloat.runtime.index import Index

_replace = msgspec.structs.replace


def _unsettled(pod: Pod) -> Sequence[str]:
    owner = pod.metadata.controller
    return () if owner is None or pod_state.is_settled(pod) else (owner.uid,)


def _uncontrolled(pod: Pod) -> Sequence[str]:
    return () if pod.metadata.controller is not None else (pod.metadata.namespace,)


UNSETTLED: Index[Pod] = Index("unsettled pods by controller", _unsettled)
"""Pods that are not over and counted, by the uid of their Job: the cost of a sync does not grow
with the pods that there ever were."""

UNCONTROLLED: Index[Pod] = Index("uncontrolled pods by namespace", _uncontrolled)


def selector_of(job: Job) -> selectors.LabelSelector:
    wanted = job.spec.selector
    return selectors.from_object(None if wanted is None else msgspec.to_builtins(wanted))


def matches(selector: selectors.LabelSelector, pod: Pod) -> bool:
    return selector.matches(pod.metadata.labels or {})


async def claim(client: Client, cache: Cache[Pod], job: Job) -> list[Pod]:
    """The Job's pods; adopts and releases. Any error ends the sync (A2.7)."""
    selector = selector_of(job)
    owned: list[Pod] = []
    strays: list[Pod] = []
    for pod in cache.by(UNSETTLED, job.metadata.uid):
        (owned if matches(selector, pod) else strays).append(pod)
    if job.metadata.deletion_timestamp is not None:
        return owned
    orphans = [
        pod
        for pod in cache.by(UNCONTROLLED, job.metadata.namespace)
        if pod.metadata.deletion_timestamp is None and matches(selector, pod)
    ]
    for pod in strays:
        await _release(client, job, pod)
    if orphans:
        await _check_alive(client, job)
    adopted = [pod for pod in orphans if await _adopt(client, job, pod)]
    return owned + [_adopted(job, pod) for pod in adopted]


async def _release(client: Client, job: Job, pod: Pod) -> None:
    patch = {
        "metadata": {
            "uid": pod.metadata.uid,
            "ownerReferences": [{"$patch": "delete", "uid": job.metadata.uid}],
            "$deleteFromPrimitiveList/finalizers": [pod_state.TRACKING_FINALIZER],
        }
    }
    meta = pod.metadata
    # It may be gone, or have no such owner any more (A2.4).
    with contextlib.suppress(errors.NotFound, errors.Invalid):
        await client.patch(
            kinds.PODS, meta.name, patch, patch_type="strategic", namespace=meta.namespace
        )


async def _check_alive(client: Client, job: Job) -> None:
    """Ask the API, not the cache: a Job that is being deleted adopts nobody (A2.5)."""
    meta = job.metadata
    found = await client.get(kinds.JOBS, meta.name, namespace=meta.namespace)
    if found.metadata.uid != meta.uid or found.metadata.deletion_timestamp is not None:
        raise Retry(f"{meta.namespace}/{meta.name} is gone or being deleted, and adopts no pods")


async def _adopt(client: Client, job: Job, pod: Pod) -> bool:
    """Take a pod over; False if it is gone.

    Only in the version that was seen: one that was adopted and counted since
    would otherwise get its finalizer again, and be counted twice.
    """
    meta = pod.metadata
    patch = {
        "metadata": {
            "uid": meta.uid,
            "resourceVersion": meta.resource_version,
            "ownerReferences": [job_pods.owner_reference(job)],
            "finalizers": [pod_state.TRACKING_FINALIZER],
        }
    }
    try:
        await client.patch(
            kinds.PODS, meta.name, patch, patch_type="strategic", namespace=meta.namespace
        )
    except errors.NotFound:
        return False
    return True


def _adopted(job: Job, pod: Pod) -> Pod:
    """The pod as it is now, without waiting for the cache (A2.6)."""
    owner = msgspec.convert(job_pods.owner_reference(job), OwnerReference)
    meta = pod.metadata
    finalizers = tuple(meta.finalizers or ())
    if pod_state.TRACKING_FINALIZER not in finalizers:
        finalizers += (pod_state.TRACKING_FINALIZER,)
    owners = (*(meta.owner_references or ()), owner)
    return _replace(pod, metadata=_replace(meta, owner_references=owners, finalizers=finalizers))
