# SPDX-License-Identifier: Apache-2.0
"""Deleting a pod for a reason, on a server that takes one and on one that does not.

The reason goes with the delete, and before it into an annotation: Kubernetes
has no place for it in a delete, and its kubelets clear status.reason. Where the
delete comes to nothing the annotation is as it was before.
"""

import re
from contextlib import suppress

from refloat.api.core import Pod
from refloat.base.errors import RefloatError, UsageError
from refloat.client import errors, kinds
from refloat.client.contract import Client, DeleteOptions
from refloat.policy import pod_reason

# What a condition's reason may be, which the KEP calls "a brief CamelCase message".
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]{0,1022}[A-Za-z0-9_])?")

# Each means that somebody changed the pod between two requests of ours.
MAX_TRIES = 10


def check_reason(text: str) -> str:
    if _REASON.fullmatch(text):
        return text
    raise UsageError(
        f"--reason: {text!r} is no reason; expected one word of letters and digits, "
        "for example Maintenance"
    )


async def delete_pod(
    client: Client, name: str, *, namespace: str, reason: str, grace_seconds: int | None = None
) -> Pod:
    """The pod as it was; one that has ended already is deleted without the reason."""
    pod = await _annotated(client, name, namespace, reason)
    options = DeleteOptions(grace_seconds=grace_seconds, uid=pod.metadata.uid, reason=reason)
    try:
        await client.delete(kinds.PODS, name, namespace=namespace, options=options)
    except errors.ClientError:
        with suppress(errors.ClientError):  # that nothing was deleted is what has to be told
            await _take_back(client, pod, reason)
        raise
    return pod


def kept(pod: Pod, reason: str) -> str:
    """The reason of a pod that is deleted for this one: that of an earlier delete stays."""
    return _said(pod) or reason


def _said(pod: Pod) -> str:
    return (pod.status.reason or _noted(pod) or "") if pod.is_terminating else ""


def _noted(pod: Pod) -> str | None:
    return (pod.metadata.annotations or {}).get(pod_reason.ANNOTATION)


async def _annotated(client: Client, name: str, namespace: str, reason: str) -> Pod:
    for _ in range(MAX_TRIES):
        pod = await client.get(kinds.PODS, name, namespace=namespace)
        try:
            await _annotate(client, pod, reason)
        except errors.Conflict:
            continue
        return pod
    raise RefloatError(f"pod {name} changes all the time and was not deleted; try again")


async def _annotate(client: Client, pod: Pod, reason: str) -> None:
    """Only as it was seen: had it failed meanwhile, the reason would not be why."""
    if _is_to_say(pod):
        await _note(client, pod, reason)


def _is_to_say(pod: Pod) -> bool:
    return not pod.is_terminal and not _said(pod)


async def _take_back(client: Client, before: Pod, reason: str) -> None:
    """Make the annotation what it was, if it is still ours."""
    meta = before.metadata
    for _ in range(MAX_TRIES if _is_to_say(before) else 0):
        pod = await client.get(kinds.PODS, meta.name, namespace=meta.namespace)
        if pod.metadata.uid != meta.uid or _noted(pod) != reason or _goes(pod, before):
            return
        try:
            await _note(client, pod, _noted(before))
        except errors.Conflict:
            continue
        return


def _goes(pod: Pod, before: Pod) -> bool:
    """It is deleted after all, as it may be where only the answer was lost: then it is why."""
    return pod.is_terminating and not before.is_terminating


async def _note(client: Client, pod: Pod, reason: str | None) -> None:
    """On the version that was seen; none removes it."""
    meta = pod.metadata
    metadata = {
        "resourceVersion": meta.resource_version,
        "annotations": {pod_reason.ANNOTATION: reason},
    }
    await client.patch(kinds.PODS, meta.name, {"metadata": metadata}, namespace=meta.namespace)
