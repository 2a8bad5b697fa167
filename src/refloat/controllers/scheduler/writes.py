# SPDX-License-Identifier: Apache-2.0
"""The requests and events of the scheduler, in the exact words of Kubernetes.

Each request names the uid of the pod, so another pod with its name stays unchanged. Patches
are strategic merges that name conditions by type, so they also work for pods whose spec has
duplicate names, which server-side apply refuses. `scheduler` decides what to write.
"""

from datetime import datetime

from refloat.api import conditions, structs, times
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.client import errors, kinds
from refloat.client.contract import Client, DeleteOptions
from refloat.policy.job import pod_reason
from refloat.policy.scheduling import disruption_target, preemption
from refloat.runtime import status_writes
from refloat.runtime.event_series import EventType, Reference
from refloat.runtime.recorder import Sink

# The longest note of an event, in bytes; Kubernetes' scheduler cuts with an ellipsis.
_LONGEST_NOTE = 1024
_ELLIPSIS = " ..."


async def refuse(client: Client, pod: Pod, message: str, nominated: str, now: datetime) -> bool:
    """Write why the pod has no node, and its nominated node, if any; whether anything changed."""
    status: Object = {}
    if (why := _unschedulable(pod, message, now)) is not None:
        status["conditions"] = [why]
    if nominated != pod.status.nominated_node_name:
        status["nominatedNodeName"] = nominated or None
    if status:
        await status_writes.patch(client, kinds.PODS, pod, status)
    return bool(status)


def _unschedulable(pod: Pod, message: str, now: datetime) -> Object | None:
    current = structs.find(pod.status.conditions, "PodScheduled")
    condition: Object = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
        "observedGeneration": pod.metadata.generation,
    }
    if current is None or current.status != "False":
        return {**condition, "lastTransitionTime": times.format_time(now)}
    same = (current.reason, current.message) == (condition["reason"], message)
    return None if same and current.observed_generation == pod.metadata.generation else condition


async def denominate(client: Client, pod: Pod) -> None:
    """Remove the nominated node of a pod that lost its nomination."""
    try:
        await status_writes.patch(client, kinds.PODS, pod, {"nominatedNodeName": None})
    except (errors.NotFound, errors.Conflict):
        return


async def preempt(
    client: Client,
    victim: Pod,
    *,
    scheduler: str,
    now: datetime,
    with_condition: bool,
    with_reason: bool,
) -> bool:
    """Mark a pod as disrupted, then delete it (behaviour C7.1); False if the pod was gone.

    The mark comes first, because a Job must see why its pod ended. If the pod is marked and not
    deleted, the disruption controller removes the mark (C5.1).
    """
    meta = victim.metadata
    message = f"{scheduler}: preempting to accommodate a higher priority pod"
    mark = disruption_target.condition(victim, preemption.REASON, message, now=now)
    try:
        if with_condition and mark is not None:
            await status_writes.patch(
                client, kinds.PODS, victim, conditions.merged(victim.status.conditions, [mark])
            )
        reason = pod_reason.PREEMPTION if with_reason else pod_reason.NONE
        options = DeleteOptions(uid=meta.uid, reason=reason)
        await client.delete(kinds.PODS, meta.name, namespace=meta.namespace, options=options)
    except (errors.NotFound, errors.Conflict):  # gone, or another one has its name
        return False
    return True


class SchedulerEvents:
    """Sends the events of the scheduler."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def scheduled(self, pod: Pod, node: str) -> None:
        note = f"Successfully assigned {pod.metadata.namespace}/{pod.metadata.name} to {node}"
        self._send(pod, "Normal", "Scheduled", "Binding", note)

    def failed(self, pod: Pod, message: str) -> None:
        self._send(pod, "Warning", "FailedScheduling", "Scheduling", _cut(message))

    def preempted(self, victim: Pod, by: Pod, node: str) -> None:
        note = f"Preempted by pod {by.metadata.uid} on node {node}"
        self._send(victim, "Normal", "Preempted", "Preempting", note)

    def _send(self, pod: Pod, kind: EventType, reason: str, action: str, note: str) -> None:
        self._sink.event(Reference.of(kinds.PODS, pod), kind, reason, action, note)


def _cut(note: str) -> str:
    encoded = note.encode()
    if len(encoded) <= _LONGEST_NOTE:
        return note
    return encoded[: _LONGEST_NOTE - len(_ELLIPSIS)].decode(errors="ignore") + _ELLIPSIS
