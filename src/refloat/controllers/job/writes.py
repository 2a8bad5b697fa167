# SPDX-License-Identifier: Apache-2.0
"""What a sync asks of the API, each guarded against having been overtaken.

The status goes as a patch of what changed, on the version that was read; pods
are patched and deleted by uid. Whether and in which order is up to `sync`.
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
from refloat.policy import pod_state

T = TypeVar("T")
R = TypeVar("R")

_LISTS = "uncountedTerminatedPods"

_NOTHING: Object = {each.encode_name: None for each in msgspec.structs.fields(JobStatus)}


async def each(items: Sequence[T], act: Callable[[T], Awaitable[R]], *, at_once: int) -> list[R]:
    """Do it for all of them, side by side, so many at once; the results in their order."""
    results: list[R] = []
    for start in range(0, len(items), at_once):
        group = items[start : start + at_once]
        if len(group) == 1:
            results.append(await act(group[0]))
        else:
            results += await _together(group, act)
    return results


async def _together(items: Sequence[T], act: Callable[[T], Awaitable[R]]) -> list[R]:
    """All of them end before this does, also when one fails or all are cancelled."""
    tasks = [asyncio.ensure_future(act(item)) for item in items]
    try:
        # Its result is not used: an error that was returned looks there like
        # one that was raised.
        await asyncio.gather(*tasks, return_exceptions=True)
    except asyncio.CancelledError:
        await asyncio.wait(tasks)  # cancelled by `gather`, but not waited for
        raise
    return [task.result() for task in tasks]


def status_patch(before: JobStatus, after: JobStatus) -> Object:
    """What of a status changed, as a merge patch; empty if nothing did."""
    old, new = _wire(before), _wire(after)
    return {name: value for name, value in new.items() if old[name] != value}


def _wire(status: JobStatus) -> Object:
    """With a null for whatever is not there: in a merge patch that removes it."""
    encoded = {**_NOTHING, **msgspec.to_builtins(status)}
    if encoded[_LISTS] is not None:
        encoded[_LISTS] = {"succeeded": None, "failed": None, **encoded[_LISTS]}
    return encoded


async def write_status(
    client: Client, job: Job, after: JobStatus, annotations: Mapping[str, str] | None = None
) -> Job:
    """The Job as it is then; raises `Conflict` if it changed since it was read.

    Annotations may go with it, for display. Where those of others leave no room
    for them the status goes alone: a Job must not hang for what is only shown.
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
    """The pod without it; None if it is gone, even if another one has its name.

    `unchanged` removes it only from the version that was seen.
    """
    changes: Object = {"$deleteFromPrimitiveList/finalizers": [pod_state.TRACKING_FINALIZER]}
    return await _change(client, pod, changes, unchanged=unchanged)


async def take_back(client: Client, pod: Pod) -> Pod | None:
    """Give a pod its finalizer again, in the version that was seen; None if it is gone."""
    changes: Object = {"finalizers": [pod_state.TRACKING_FINALIZER]}
    return await _change(client, pod, changes, unchanged=True)


async def _change(client: Client, pod: Pod, changes: Object, *, unchanged: bool) -> Pod | None:
    """Change a pod's metadata; None if it is gone."""
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
    except (errors.Conflict, errors.Invalid):  # another uid is an invalid change of it
        if await _is_there(client, pod):
            raise
        return None


async def _is_there(client: Client, pod: Pod) -> bool:
    meta = pod.metadata
    try:
        found = await client.get(kinds.PODS, meta.name, namespace=meta.namespace)
    except errors.NotFound:
        return False
    return found.metadata.uid == meta.uid


async def delete(client: Client, pod: Pod, *, unchanged: bool = False) -> None:
    """With the pod's own grace; raises `NotFound` if this very pod is gone.

    `unchanged` deletes only the version that was seen.
    """
    meta = pod.metadata
    version = meta.resource_version if unchanged else None
    options = DeleteOptions(uid=meta.uid, resource_version=version)
    try:
        await client.delete(kinds.PODS, meta.name, namespace=meta.namespace, options=options)
    except errors.Conflict as error:
        if await _is_there(client, pod):
            raise
        raise errors.NotFound(str(error), code=404, reason="NotFound") from error


async def create(client: Client, job: Job, pod: Object) -> Pod:
    """The pod, also if it was there already, or is there although the answer says otherwise.

    Its name is a hash of what it is for (`pod_names`): a pod of the Job with this
    name was created by this call or by an earlier one whose answer was lost.
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
        with contextlib.suppress(errors.ClientError):  # then it is not known, and tried again
            existing = await _own_pod(client, job, pod["metadata"]["name"])
    if existing is None:
        raise refusal
    return existing


async def _own_pod(client: Client, job: Job, name: str) -> Pod | None:
    """The pod of this name, if it is there and the Job controls it."""
    try:
        pod = await client.get(kinds.PODS, name, namespace=job.metadata.namespace)
    except errors.NotFound:
        return None
    owner = pod.metadata.controller
    return pod if owner is not None and owner.uid == job.metadata.uid else None
