# SPDX-License-Identifier: Apache-2.0
"""Which pods the pod garbage collector deletes, and how (behaviour C1).

Nothing here knows a cache: the caller passes the objects.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from refloat.api import conditions, structs
from refloat.api.core import PENDING, RUNNING, UNKNOWN, Node, Pod
from refloat.api.meta import Object
from refloat.policy.job import pod_reason, pod_replacement
from refloat.policy.job.job_gates import JobGates
from refloat.policy.scheduling import disruption_target

Cause: TypeAlias = Literal["terminated", "out-of-service", "orphaned", "unscheduled"]

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"

ORPHAN_REASON = "DeletionByPodGC"
ORPHAN_MESSAGE = "PodGC: node no longer exists"

_REASONS: dict[Cause, str] = {
    "orphaned": pod_reason.ORPHANED_POD,
    "out-of-service": pod_reason.NODE_OUT_OF_SERVICE,
}

_ALIVE = (PENDING, RUNNING, UNKNOWN)


@dataclass(frozen=True, slots=True)
class PodGCSettings:
    """Kubernetes' own values."""

    period: float = 20.0
    """Seconds from one pass to the next."""
    quarantine: float = 40.0
    """How long a node must be missing before its pods are orphans."""
    threshold: int = 12500
    """How many ended pods may stay; 0 or less is any number."""


def is_over(pod: Pod) -> bool:
    """Counts against the threshold (behaviour C1.3)."""
    return pod.status.phase not in _ALIVE


def excess(over: Iterable[Pod], threshold: int) -> list[Pod]:
    """Those to delete: evicted ones first, then the oldest, then by name (behaviour C1.3)."""
    pods = list(over)
    too_many = len(pods) - threshold
    if threshold <= 0 or too_many <= 0:
        return []
    return sorted(pods, key=_order)[:too_many]


def _order(pod: Pod) -> tuple[bool, str, str]:
    meta = pod.metadata
    return (pod.status.reason != "Evicted", meta.creation_timestamp or "", meta.name)


def is_out_of_service(node: Node) -> bool:
    """Whether the node has the taint and is not ready (behaviour C1.4)."""
    tainted = any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints or ())
    return tainted and not structs.is_true(node.status.conditions, "Ready")


def failing(pod: Pod, cause: Cause, job_gates: JobGates, *, now: datetime) -> Object | None:
    """The status to write before the pod is deleted; none if it is only deleted.

    With no gate on, a pod is deleted as it is, and without `PodDisruptionConditions` the pod fails
    without a condition (KEP-3939, "Risks and Mitigations"). The status has the reason, if the pod
    has none; the delete has no reason, because the pod has ended by then.
    """
    marks = pod_replacement.adds_disruption_target(job_gates)
    if pod.is_terminal or not pod_replacement.sets_phase(job_gates):
        return None
    status: Object = {"phase": "Failed", "observedGeneration": pod.metadata.generation}
    if cause == "orphaned" and marks:
        target = disruption_target.condition(pod, ORPHAN_REASON, ORPHAN_MESSAGE, now=now)
        if target is not None:
            status |= conditions.merged(pod.status.conditions, [target])
    reason = pod_reason.delete_reason(_REASONS.get(cause, pod_reason.NONE), job_gates)
    return status | pod_reason.status_reason(pod, reason)
