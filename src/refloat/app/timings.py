# SPDX-License-Identifier: Apache-2.0
"""The waits of the controllers and nodes of an embedded cluster.

Each controller has its own settings, with Kubernetes' values as defaults. This
module has one set of them, and a second set with waits about ten times shorter
(`refloat up --fast`): with Kubernetes' waits, the loss of a node takes six minutes.
"""

from dataclasses import dataclass
from datetime import timedelta

from refloat.agent.node import NodeSettings
from refloat.controllers.job.settings import JobSettings
from refloat.controllers.node_lifecycle.settings import NodeLifecycleSettings
from refloat.policy.garbage import pod_gc
from refloat.policy.job import backoff, scaling
from refloat.policy.node import attach_detach, disruption_mode, node_health
from refloat.policy.scheduling import disruption_budgets


@dataclass(frozen=True, slots=True)
class Timings:
    """The settings with waits. Their other fields have the defaults."""

    job: JobSettings
    node: NodeSettings
    """Without a name: each node has its own."""

    node_lifecycle: NodeLifecycleSettings
    disruption: disruption_budgets.DisruptionBudgetSettings
    pod_gc: pod_gc.PodGCSettings
    attach_detach: attach_detach.AttachDetachSettings
    recovery_period: timedelta = timedelta(minutes=1)
    """From the end of a pod's grace period to Failed, for an opt-in by annotation without a
    configured period."""

    @property
    def node_grace(self) -> timedelta:
        """How long a node must be silent to count as down, as for the node controller."""
        return timedelta(seconds=self.node_lifecycle.health.grace)


KUBERNETES = Timings(
    JobSettings(),
    NodeSettings(""),
    NodeLifecycleSettings(),
    disruption_budgets.DisruptionBudgetSettings(),
    pod_gc.PodGCSettings(),
    attach_detach.AttachDetachSettings(),
)

FAST = Timings(
    job=JobSettings(
        batch_seconds=0.1,
        pods=scaling.ScalingSettings(
            delays=backoff.BackoffSettings(
                first=timedelta(seconds=1),
                longest=timedelta(minutes=1),
                shortest_wake=timedelta(seconds=0.1),
            )
        ),
    ),
    node=NodeSettings(
        "", lease_seconds=4, beat_seconds=1.0, report_seconds=30.0, self_fence_seconds=38
    ),
    node_lifecycle=NodeLifecycleSettings(
        health=node_health.NodeHealthSettings(period=0.5, grace=5.0, startup_grace=6.0),
        zones=disruption_mode.DisruptionModeSettings(rate=1.0, secondary_rate=0.1),
    ),
    disruption=disruption_budgets.DisruptionBudgetSettings(patience=timedelta(seconds=12)),
    pod_gc=pod_gc.PodGCSettings(period=2.0, quarantine=4.0),
    recovery_period=timedelta(seconds=6),
    attach_detach=attach_detach.AttachDetachSettings(unmount_seconds=36.0),
)


def select(*, fast: bool) -> Timings:
    return FAST if fast else KUBERNETES
