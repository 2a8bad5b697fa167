# SPDX-License-Identifier: Apache-2.0
"""How long the controllers and nodes of an embedded cluster wait for what.

Each controller has its own settings, with Kubernetes' values as defaults; here
they are gathered, and once more about ten times shorter, for those who do not
want to watch a node be lost for six minutes (`refloat up --fast`).
"""

from dataclasses import dataclass
from datetime import timedelta

from refloat.agent.node import NodeSettings
from refloat.controllers.job.settings import Settings as JobSettings
from refloat.controllers.node_lifecycle.settings import Settings as NodeLifecycleSettings
from refloat.policy import (
    attach_detach,
    backoff,
    budgets,
    disruption_mode,
    node_health,
    pod_gc,
    scaling,
)


@dataclass(frozen=True, slots=True)
class Timings:
    """The settings that have waits in them. What else is in them stays as it is by default."""

    job: JobSettings
    node: NodeSettings
    """Without a name: each node has its own."""

    node_lifecycle: NodeLifecycleSettings
    disruption: budgets.Settings
    pod_gc: pod_gc.Settings
    attach_detach: attach_detach.Settings
    recovery_period: timedelta = timedelta(minutes=1)
    """From the end of a pod's grace period to Failed, for who opted in by annotation and where
    nobody configured another one."""

    @property
    def node_grace(self) -> timedelta:
        """For how long a node must be silent until it counts as down: as its controller has it."""
        return timedelta(seconds=self.node_lifecycle.health.grace)


KUBERNETES = Timings(
    JobSettings(),
    NodeSettings(""),
    NodeLifecycleSettings(),
    budgets.Settings(),
    pod_gc.Settings(),
    attach_detach.Settings(),
)

FAST = Timings(
    job=JobSettings(
        batch_seconds=0.1,
        pods=scaling.Settings(
            delays=backoff.Settings(
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
        health=node_health.Settings(period=0.5, grace=5.0, startup_grace=6.0),
        zones=disruption_mode.Settings(rate=1.0, secondary_rate=0.1),
    ),
    disruption=budgets.Settings(patience=timedelta(seconds=12)),
    pod_gc=pod_gc.Settings(period=2.0, quarantine=4.0),
    recovery_period=timedelta(seconds=6),
    attach_detach=attach_detach.Settings(unmount_seconds=36.0),
)


def chosen(*, fast: bool) -> Timings:
    return FAST if fast else KUBERNETES
