# SPDX-License-Identifier: Apache-2.0
"""What the scheduler asks of the API, and tells, word for word as Kubernetes does.

Everything is guarded by the pod's uid: a pod that was replaced by another of
its name is left alone. Patches are strategic merges that name conditions by
their type, so pods whose spec has duplicate names, which an apply refuses, are
written like any other. Whether and when is up to `scheduler`.
"""

from datetime import datetime

from refloat.api import conditions, structs, times
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.client import errors, kinds
from refloat.client.contract import Client, DeleteOptions
from refloat.policy import disruption, pod_reason, preemption
from refloat.runtime import statuses
from refloat.runtime.event_series import EventType, Reference
from refloat.runtime.recorder import Sink

# What the API allows in an event, in bytes; Kubernetes' scheduler cuts with an ellipsis.
_LONGEST_NOTE = 1024
_ELLIPSIS = " ..."


async def refuse(client: Client, pod: Pod, message: str, nominated: str, now: datetime) -> bool:
    """Say on the pod why it has no node, and which it is nominated for, if any.

    Whether there was anything to say.
    """
    status: Object = {}
    if (why := _unschedulable(pod, message, now)) is not None:
        status["conditions"] = [why]
    if nominated != pod.status.nominated_node_name:
        status["nominatedNodeName"] = nominated or None
    if status:
        await statuses.patch(client, kinds.PODS, pod, status)
    return bool(status)


def _unschedulable(pod: Pod, message: str, now: datetime) -> Object | None:
    held = structs.find(pod.status.conditions, "PodScheduled")
    wanted: Object = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
        "observedGeneration": pod.metadata.generation,
    }
    if held is None or held.status != "False":
        return {**wanted, "lastTransitionTime": times.format_time(now)}
    same = (held.reason, held.message) == (wanted["reason"], message)
    return None if same and held.observed_generation == pod.metadata.generation else wanted


async def denominate(client: Client, pod: Pod) -> None:
    """Take its promised node from a pod that must give way."""
    try:
        await statuses.patch(client, kinds.PODS, pod, {"nominatedNodeName": None})
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
    """Mark a pod as disrupted, then delete it (behaviour C7.1); whether it was still there.

    In this order: whoever sees the pod end must know why. A pod that was marked
    and not deleted is cleaned up by the disruption controller (C5.1).
    """
    meta = victim.metadata
    message = f"{scheduler}: preempting to accommodate a higher priority pod"
    mark = disruption.condition(victim, preemption.REASON, message, now=now)
    try:
        if with_condition and mark is not None:
            await statuses.patch(
                client, kinds.PODS, victim, conditions.merged(victim.status.conditions, [mark])
            )
        reason = pod_reason.PREEMPTION if with_reason else pod_reason.NONE
        options = DeleteOptions(uid=meta.uid, reason=reason)
        await client.delete(kinds.PODS, meta.name, namespace=meta.namespace, options=options)
    except (errors.NotFound, errors.Conflict):  # gone, or another one has its name
        return False
    return True


class Teller:
    """Tells of pods."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def scheduled(self, pod: Pod, node: str) -> None:
        note = f"Successfully assigned {pod.metadata.namespace}/{pod.metadata.name} to {node}"
        self._tell(pod, "Normal", "Scheduled", "Binding", note)

    def failed(self, pod: Pod, message: str) -> None:
        self._tell(pod, "Warning", "FailedScheduling", "Scheduling", _cut(message))

    def preempted(self, victim: Pod, by: Pod, node: str) -> None:
        note = f"Preempted by pod {by.metadata.uid} on node {node}"
        self._tell(victim, "Normal", "Preempted", "Preempting", note)

    def _tell(self, pod: Pod, kind: EventType, reason: str, action: str, note: str) -> None:
        self._sink.event(Reference.of(kinds.PODS, pod), kind, reason, action, note)


def _cut(note: str) -> str:
    encoded = note.encode()
    if len(encoded) <= _LONGEST_NOTE:
        return note
    return encoded[: _LONGEST_NOTE - len(_ELLIPSIS)].decode(errors="ignore") + _ELLIPSIS
