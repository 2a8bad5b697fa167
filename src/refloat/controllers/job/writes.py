# SPDX-License-Identifier: Apache-2.0
"""The requests of a sync, each guarded against concurrent changes.

The status is a patch of the changed fields, on the version that was read. Pods are patched
and deleted by uid. `sync` decides what to send, and in which order.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from refloat.api.batch import Job, JobStatus
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.client import errors, kinds
from refloat.client.contract import Client, DeleteOptions
from refloat.policy.job import pod_state
from refloat.runtime import live_reads

T = TypeVar("T")
R = TypeVar("R")

_LISTS = "uncountedTerminatedPods"

_NOTHING: Object = {each.encode_name: None for each in msgspec.structs.fields(JobStatus)}


async def each(items: Sequence[T], act: Callable[[T], Awaitable[R]], *, at_once: int) -> list[R]:
    """Call `act` for all items, `at_once` of them side by side; results in order.

    Returns only when all calls have ended, also after a failure or cancellation.
    """
    results: list[R] = []
    for start in range(0, len(items), at_once):
        group = items[start : start + at_once]
        if len(group) == 1:
            results.append(await act(group[0]))
            continue
        tasks = [asyncio.ensure_future(act(item)) for item in group]
        try:
            # The result is not used: there, a returned error looks like a raised one.
            await asyncio.gather(*tasks, return_exceptions=True)
        except asyncio.CancelledError:
            await asyncio.wait(tasks)  # cancelled by `gather`, but not waited for
            raise
        results += [task.result() for task in tasks]
    return results


def status_patch(before: JobStatus, after: JobStatus) -> Object:
    """The changed fields of a status as a merge patch; empty if nothing changed."""
    old, new = _wire(before), _wire(after)
    return {name: value for name, value in new.items() if old[name] != value}


def _wire(status: JobStatus) -> Object:
    """The status with null for missing fields: a merge patch removes these."""
    encoded = {**_NOTHING, **msgspec.to_builtins(status)}
    if encoded[_LISTS] is not None:
        encoded[_LISTS] = {"succeeded": None, "failed": None, **encoded[_LISTS]}
    return encoded


async def write_status(
    client: Client, job: Job, after: JobStatus, annotations: Mapping[str, str] | None = None
) -> Job:
    """The Job after the write; raises `Conflict` if the Job changed since the read.

    Annotations are for display only. If other annotations leave no room for them, only the status
    is written: a Job must not hang because of display data.
    """
    try:
        return await _write_together(client, job, after, annotations)
    except errors.Invalid:
        if not annotations:
            raise
        return await _write_together(client, job, after, None)


async def _write_together(
    client: Client, job: Job, after: JobStatus, annotations: Mapping[str, str] | None
) -> Job:
    patch = status_patch(job.status, after)
    if not patch and not annotations:
        return job
    meta = job.metadata
    metadata: Object = {"uid": meta.uid, "resourceVersion": meta.resource_version}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return await client.patch(
        kinds.JOBS,
        meta.name,
        {"metadata": metadata, "status": patch},
        namespace=meta.namespace,
        subresource="status",
    )


async def remove_finalizer(client: Client, pod: Pod, *, unchanged: bool = False) -> Pod | None:
    """The pod without its finalizer; None if the pod is gone, even if another one has its name.

    With `unchanged` only the version that was seen is changed.
    """
    changes: Object = {"$deleteFromPrimitiveList/finalizers": [pod_state.TRACKING_FINALIZER]}
    return await _change(client, pod, changes, unchanged=unchanged)


async def take_back(client: Client, pod: Pod) -> Pod | None:
    """Give a pod without finalizer its finalizer again; None if the pod is gone or has changed.

    1. A pod loses its finalizer, to be deleted uncounted (A9.1). 2. The controller dies before the
    deletion, or a user removed the finalizer. 3. The pod ends by itself. 4. No sync would count
    the pod. If the pod still has to be deleted, the deletion starts again. Kubernetes never counts
    such a pod. Refloat does not either if the pod ended before a new controller process saw it
    run: only the pod's metadata, which users write, could show whether the pod was counted.
    """
    changes: Object = {"finalizers": [pod_state.TRACKING_FINALIZER]}
    try:
        return await _change(client, pod, changes, unchanged=True)
    except errors.Conflict:
        return None  # the change of the pod queues the Job again


async def _change(client: Client, pod: Pod, changes: Object, *, unchanged: bool) -> Pod | None:
    """Change the metadata of a pod; None if the pod is gone."""
    meta = pod.metadata
    changes["uid"] = meta.uid
    if unchanged:
        changes["resourceVersion"] = meta.resource_version
    try:
        return await client.patch(
            kinds.PODS,
            meta.name,
            {"metadata": changes},
            patch_type="strategic",
            namespace=meta.namespace,
        )
    except errors.NotFound:
        return None
    except (errors.Conflict, errors.Invalid):  # a pod with another uid refuses the patch
        if await live_reads.exists(client, pod):
            raise
        return None


async def delete(client: Client, pod: Pod, *, unchanged: bool = False) -> None:
    """Delete a pod with its own grace period; raises `NotFound` if this pod is gone.

    With `unchanged` only the version that was seen is deleted.
    """
    meta = pod.metadata
    version = meta.resource_version if unchanged else None
    options = DeleteOptions(uid=meta.uid, resource_version=version)
    try:
        await client.delete(kinds.PODS, meta.name, namespace=meta.namespace, options=options)
    except errors.Conflict as error:
        if await live_reads.exists(client, pod):
            raise
        raise errors.NotFound(str(error), code=404, reason="NotFound") from error


async def create(client: Client, job: Job, pod: Object) -> Pod:
    """The new pod, also if it exists already, or exists although the answer is an error.

    The name is a hash of the pod's purpose (`pod_names`): a pod of the Job with this name was
    created by this call, or by an earlier one whose answer was lost.
    """
    try:
        return await client.create(kinds.PODS, pod, namespace=job.metadata.namespace)
    except errors.AlreadyExists as error:
        refusal: errors.ClientError = error
        existing = await _own_pod(client, job, pod["metadata"]["name"])
    except errors.Unreachable:
        raise  # the request was never sent
    except (errors.Timeout, errors.Unavailable) as error:
        refusal, existing = error, None
        with contextlib.suppress(errors.ClientError):  # then the next sync tries again
            existing = await _own_pod(client, job, pod["metadata"]["name"])
    if existing is None:
        raise refusal
    return existing


async def _own_pod(client: Client, job: Job, name: str) -> Pod | None:
    """The pod with this name, if the Job controls it."""
    try:
        pod = await client.get(kinds.PODS, name, namespace=job.metadata.namespace)
    except errors.NotFound:
        return None
    owner = pod.metadata.controller
    return pod if owner is not None and owner.uid == job.metadata.uid else None
