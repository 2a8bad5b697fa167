# SPDX-License-Identifier: Apache-2.0
"""The environment of the controllers of an embedded cluster."""

from collections.abc import Callable
from dataclasses import replace

from prometheus_client import CollectorRegistry

from refloat.api.coordination import Lease
from refloat.apiserver import identity, roles
from refloat.apiserver.identity import Identity
from refloat.app import actor_publisher, timings
from refloat.app.controller_names import ControllerSelection
from refloat.base.clock import Clock
from refloat.base.gates import Gates
from refloat.base.rand import Rand
from refloat.client import kinds
from refloat.client.contract import Client
from refloat.policy.job.attempts import AttemptLogs
from refloat.policy.recovery.failure_recovery import FailureRecoveryPolicy
from refloat.runtime.candidate import CandidateMetrics
from refloat.runtime.controller_env import ControllerEnv
from refloat.runtime.elections import Elections
from refloat.runtime.informer import Informer

Connect = Callable[[Identity], Client]


class EmbeddedEnv(ControllerEnv):
    """Each controller has a client with the rights of its role; the caches have all rights."""

    def __init__(
        self,
        connect: Connect,
        selection: ControllerSelection,
        *,
        gates: Gates,
        clock: Clock,
        rand: Rand,
        registry: CollectorRegistry,
        recovery: FailureRecoveryPolicy | None = None,
        attempt_logs: AttemptLogs | None = None,
        identity_in_elections: str = actor_publisher.EMBEDDED,
    ) -> None:
        """The identity may be constant: only one process at a time has the store open."""
        admin = connect(identity.ADMIN)
        self.selection = selection
        self.timings = waits = timings.select(fast=selection.fast)
        policy = replace(
            recovery or FailureRecoveryPolicy(),
            default_period=waits.recovery_period,
            default_node_grace=waits.node_grace,
        )
        super().__init__(
            admin,
            lambda role: connect(roles.controller(role)),
            Elections(
                admin,
                identity_in_elections,
                clock=clock,
                rand=rand,
                metrics=CandidateMetrics(registry),
            ),
            gates=gates,
            clock=clock,
            rand=rand,
            registry=registry,
            settings=(
                waits.job,
                waits.node_lifecycle,
                waits.disruption,
                waits.pod_gc,
                waits.attach_detach,
                policy,
                attempt_logs or AttemptLogs(),
            ),
            controllers=selection.controllers,
        )

    def node_leases(self) -> Informer[Lease]:
        """All Leases: the garbage collector watches them anyway."""
        return self.informer(kinds.LEASES)
