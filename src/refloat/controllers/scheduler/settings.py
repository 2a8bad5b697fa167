# SPDX-License-Identifier: Apache-2.0
"""Settings of the scheduler."""

from dataclasses import dataclass, field

from refloat.runtime.queue import Backoff


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    name: str = "default-scheduler"
    """The `spec.schedulerName` of the pods that this scheduler binds. As in Kubernetes."""

    at_once: int = 32
    """Pods whose writes are under way at the same time; decisions are made one after the other.
    Kubernetes has no bound; here the server writes in groups, and more did not bind faster."""

    backoff: Backoff = field(default=Backoff(base=1.0, cap=10.0))
    """How long a pod waits after a write that failed. As in Kubernetes."""

    reason_seconds: float = 5.0
    """How long changes are gathered until the reasons of waiting pods are checked: a node that
    joins changes several times in its first seconds."""

    reasons_at_once: int = 50
    """Pods that get a new reason at one check, so that many waiting pods cost ten writes a second
    and no more, however often nodes change."""

    demands_at_once: int = 50
    """Demands that are compared at one check, so that a check is short."""

    pod_disruption_conditions: bool = True
    """The gate `PodDisruptionConditions`: off, pods are preempted without a condition."""

    deletion_reasons: bool = False
    """The gate `RetriableAndNonRetriableFailures`: on, the delete of a pod that is preempted
    sends the reason."""

    force_eviction: bool = False
    """The gate `TaintForceEviction`: on, a taint with this effect repels pods like NoSchedule."""

    overlook_not_ready: bool = False
    """Whether a node that is ready takes pods although the node still has the taint that the API
    server gives to every new node. For clusters without a controller that removes the taint."""
