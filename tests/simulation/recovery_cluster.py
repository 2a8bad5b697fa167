# SPDX-License-Identifier: Apache-2.0
"""Failure recovery on a real API server in virtual time, with nodes and zombies by hand.

Times count from when the controller began, which is a whole second.
"""

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from refloat.api import self_fence
from refloat.api.coordination import NODE_NAMESPACE
from refloat.api.meta import Object
from refloat.base.gates import FAILURE_RECOVERY_POLICY, Gates
from refloat.client import kinds
from refloat.controllers import failure_recovery
from refloat.controllers.failure_recovery.controller import FailureRecovery
from refloat.controllers.failure_recovery.settings import FailureRecoverySettings
from refloat.policy.recovery import zombie
from refloat.policy.recovery.failure_recovery import FailureRecoveryPolicy
from refloat.runtime.controller_env import ControllerEnv
from refloat.runtime.manager import Worker
from refloat.sim.run import Sim
from tests.simulation.controller_cluster import NAMESPACE, ControllerCluster

ON = Gates({FAILURE_RECOVERY_POLICY: True})
SAFE = {zombie.ANNOTATIONS[0]: "true"}
UNREACHABLE = "node.kubernetes.io/unreachable"
LOST = ({"key": UNREACHABLE, "effect": "NoSchedule"}, {"key": UNREACHABLE, "effect": "NoExecute"})
GRACE_SECONDS = 30
NODE_GRACE = 50
"""Seconds for which a lease must not change until its node counts as down."""
FREED_AFTER = GRACE_SECONDS + 60
"""Seconds from the deletion of a zombie to its end, by the KEP."""


class RecoveryCluster(ControllerCluster):
    """Failure recovery, nodes without agents, and pods that nothing runs.

    Time counts from the first start of the controller.
    """

    def __init__(
        self, sim: Sim, policy: FailureRecoveryPolicy | None = None, gates: Gates = ON
    ) -> None:
        super().__init__(sim, self.build_recovery, gates)
        self.policy = policy or FailureRecoveryPolicy()

    def build_recovery(self, env: ControllerEnv) -> Sequence[Worker]:
        period = env.settings(FailureRecoveryPolicy).default_period
        env.update(replace(self.policy, default_period=period))
        return failure_recovery.build(env)

    # -- the controller

    async def start(self, **faults: Any) -> None:
        if self._process is None:
            self.began = self.sim.clock.monotonic()
        await super().start(**faults)

    def switch(
        self, policy: FailureRecoveryPolicy | None = None, *, on: bool = True, whole: bool = True
    ) -> None:
        """What a changed configuration file does."""
        (worker,) = self.workers
        assert isinstance(worker, FailureRecovery)
        worker.update_settings(
            FailureRecoverySettings(on, policy or self.policy, whole_cluster=whole)
        )

    # -- nodes

    async def node(
        self, name: str = "n", *, lost: bool = True, lease: bool = True, **fields: Any
    ) -> None:
        """A node with its Lease."""
        await self.bare_node(name, **fields)
        if lease:
            await self.lease(name)
        if lost:
            await self.lose(name)
        else:
            await self.recover(name)

    async def bare_node(self, name: str, **fields: Any) -> None:
        """A node without a status and a Lease."""
        await super().node(name, **fields)

    async def lose(self, name: str = "n") -> None:
        await self.node_status(name, {"type": "Ready", "status": "Unknown"})
        await self.taint(name, *LOST)

    async def recover(self, name: str = "n") -> None:
        """The node is back; other taints stay."""
        await self.node_status(name, {"type": "Ready", "status": "True"})
        taints = await self.taints(name)
        await self.taint(name, *(each for each in taints if each["key"] != UNREACHABLE))

    async def taints(self, name: str = "n") -> list[Object]:
        taints = (await self.client.get(kinds.NODES, name)).spec.taints or ()
        return [{"key": each.key, "value": each.value, "effect": each.effect} for each in taints]

    # -- pods

    async def zombie(self, name: str = "p", **fields: Any) -> None:
        """A pod that opted in, and is deleted; its node does not end it."""
        await self.running(name, **fields)
        await self.delete(name)

    async def running(self, name: str = "p", *, fence: int = 0, **fields: Any) -> None:
        fields = {"node": "n", "grace": GRACE_SECONDS, "annotations": SAFE, **fields}
        await self.pod(name, **fields)
        if fence:
            await self.promise(name, fence)

    async def promise(self, name: str, seconds: int) -> None:
        """The node lists the pod in its Lease."""
        uid = (await self.get_pod(name)).metadata.uid
        promises = self_fence.write_listed({uid: self_fence.Promise(seconds, 20)})
        patch = {"metadata": {"annotations": {self_fence.LISTED: promises}}}
        await self.client.patch(kinds.LEASES, "n", patch, namespace=NODE_NAMESPACE)

    async def annotate(self, name: str, annotations: Object) -> None:
        patch = {"metadata": {"annotations": annotations}}
        await self.client.patch(kinds.PODS, name, patch, namespace=NAMESPACE)

    async def phase(self, name: str = "p") -> str:
        pod = await self.find_pod(name)
        return "gone" if pod is None else pod.status.phase

    async def freed_at(self, name: str = "p") -> float:
        """The second in which Refloat marked the pod Failed."""
        pod = await self.get_pod(name)
        assert pod.status.phase == "Failed"
        (condition,) = (
            each for each in pod.status.conditions or () if each.type == zombie.CONDITION
        )
        return round(self.at(condition.last_transition_time))

    def decided(self, outcome: str, reason: str, what: str = "pod") -> float:
        name = f"refloat_failure_recovery_{what}_decisions_total"
        return self.sample(name, outcome=outcome, reason=reason)


@contextlib.asynccontextmanager
async def lost_node(
    sim: Sim, policy: FailureRecoveryPolicy | None = None, gates: Gates = ON
) -> AsyncIterator[RecoveryCluster]:
    """Failure recovery that runs, and a node that is lost."""
    async with RecoveryCluster(sim, policy, gates) as cluster:
        await cluster.node()
        await cluster.start()
        yield cluster


@contextlib.asynccontextmanager
async def lost_pod(
    sim: Sim, policy: FailureRecoveryPolicy | None = None, gates: Gates = ON
) -> AsyncIterator[RecoveryCluster]:
    """Failure recovery that runs, and a pod that is not deleted on a node that is lost."""
    async with RecoveryCluster(sim, policy, gates) as cluster:
        await cluster.node()
        await cluster.running()
        await cluster.start()
        yield cluster


@contextlib.asynccontextmanager
async def healthy_node(
    sim: Sim, policy: FailureRecoveryPolicy | None = None, gates: Gates = ON
) -> AsyncIterator[RecoveryCluster]:
    """Failure recovery that runs, and a node that is Ready."""
    async with RecoveryCluster(sim, policy, gates) as cluster:
        await cluster.node(lost=False)
        await cluster.start()
        yield cluster


async def zombies(cluster: RecoveryCluster, count: int, **fields: Any) -> list[str]:
    """The names of so many zombies."""
    names = [f"p{number}" for number in range(count)]
    for name in names:
        await cluster.zombie(name, **fields)
    return names
