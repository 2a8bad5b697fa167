# SPDX-License-Identifier: Apache-2.0
"""Deleting a pod for a reason, on a server that takes one and on one that does not.

The reason goes with the delete, and before it into an annotation: Kubernetes
has no place for it in a delete, and its kubelets clear status.reason.
"""

import re

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
    await client.delete(kinds.PODS, name, namespace=namespace, options=options)
    return pod


def kept(pod: Pod, reason: str) -> str:
    """The reason of a pod that is deleted for this one: that of an earlier delete stays."""
    return _said(pod) or reason


def _said(pod: Pod) -> str:
    noted = (pod.metadata.annotations or {}).get(pod_reason.ANNOTATION, "")
    return (pod.status.reason or noted) if pod.is_terminating else ""


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
    meta = pod.metadata
    if pod.is_terminal or _said(pod):
        return
    metadata = {
        "resourceVersion": meta.resource_version,
        "annotations": {pod_reason.ANNOTATION: reason},
    }
    await client.patch(kinds.PODS, meta.name, {"metadata": metadata}, namespace=meta.namespace)
