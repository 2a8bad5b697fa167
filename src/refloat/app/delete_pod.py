# SPDX-License-Identifier: Apache-2.0
"""Deletes a pod with a reason, on servers with and without Refloat's extension.

The reason goes with the delete, and before that into an annotation: Kubernetes
has no field for a reason in a delete, and kubelets clear status.reason. If the
delete fails, the annotation gets its old value back.
"""

import re
from contextlib import suppress

from refloat.api.core import Pod
from refloat.base.errors import RefloatError, UsageError
from refloat.client import errors, kinds
from refloat.client.contract import Client, DeleteOptions
from refloat.policy.job import pod_reason

# The format of a condition's reason, which the KEP calls "a brief CamelCase message".
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]{0,1022}[A-Za-z0-9_])?")

# Each try fails because another client changed the pod between two requests.
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
    """Delete a pod and return its last version; a pod that has ended gets no reason."""
    for _ in range(MAX_TRIES):
        pod = await client.get(kinds.PODS, name, namespace=namespace)
        with suppress(errors.Conflict):
            # Only this version: if the pod failed meanwhile, that had another reason.
            if _takes_reason(pod):
                await _set_annotation(client, pod, reason)
            break
    else:
        raise RefloatError(f"pod {name} changes all the time and was not deleted; try again")
    options = DeleteOptions(grace_seconds=grace_seconds, uid=pod.metadata.uid, reason=reason)
    try:
        await client.delete(kinds.PODS, name, namespace=namespace, options=options)
    except errors.ClientError:
        with suppress(errors.ClientError):  # the user has to see the error of the delete
            await _restore(client, pod, reason)
        raise
    return pod


def kept(pod: Pod, reason: str) -> str:
    """The reason of a pod after this delete: the reason of an earlier delete stays."""
    return _earlier_reason(pod) or reason


def _earlier_reason(pod: Pod) -> str:
    return (pod.status.reason or _annotation(pod) or "") if pod.is_terminating else ""


def _annotation(pod: Pod) -> str | None:
    return (pod.metadata.annotations or {}).get(pod_reason.ANNOTATION)


def _takes_reason(pod: Pod) -> bool:
    return not pod.is_terminal and not _earlier_reason(pod)


async def _restore(client: Client, before: Pod, reason: str) -> None:
    """Give the annotation its old value, if the present one is ours."""
    meta = before.metadata
    for _ in range(MAX_TRIES if _takes_reason(before) else 0):
        pod = await client.get(kinds.PODS, meta.name, namespace=meta.namespace)
        if pod.metadata.uid != meta.uid or _annotation(pod) != reason:
            return
        if pod.is_terminating and not before.is_terminating:
            return  # the pod was deleted after all, and only the answer was lost
        with suppress(errors.Conflict):
            await _set_annotation(client, pod, _annotation(before))
            return


async def _set_annotation(client: Client, pod: Pod, reason: str | None) -> None:
    """Set the annotation on this version of the pod; None removes it."""
    meta = pod.metadata
    metadata = {
        "resourceVersion": meta.resource_version,
        "annotations": {pod_reason.ANNOTATION: reason},
    }
    await client.patch(kinds.PODS, meta.name, {"metadata": metadata}, namespace=meta.namespace)
