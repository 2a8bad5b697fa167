# SPDX-License-Identifier: Apache-2.0
"""Failure recovery on a real API server in virtual time, with nodes and zombies by hand.

Times count from when the controller began, which is a whole second.
"""

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from refloat.api import self_fence, times
from refloat.api.coordination import NODE_NAMESPACE
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.app import controllers, inside
from refloat.app.equipment import Equipment
from refloat.base.gates import FAILURE_RECOVERY_POLICY, Gates
from refloat.client import kinds
from refloat.controllers.failure_recovery.controller import FailureRecovery
from refloat.controllers.failure_recovery.settings import Settings
from refloat.policy import zombie
from refloat.policy.failure_recovery import FailureRecoveryPolicy
from refloat.runtime.manager import Worker
from refloat.sim.run import Sim
from tests import builders
from tests.simulation import controller_world
from tests.simulation.controller_world import NAMESPACE, World

ON = Gates({FAILURE_RECOVERY_POLICY: True})
SAFE = {zombie.ANNOTATIONS[0]: "true"}
UNREACHABLE = "node.kubernetes.io/unreachable"
LOST = (
    {"key": UNREACHABLE, "effect": "NoSchedule"},
    {"key": UNREACHABLE, "effect": "NoExecute"},
)
GRACE_SECONDS = 30
NODE_GRACE = 50
"""Seconds for which a lease must not change until its node counts as down."""
FREED_AFTER = GRACE_SECONDS + 60
"""Seconds from the deletion of a zombie to its end, by the KEP."""


@dataclass(slots=True)
class Stage:
    """A world, with words for what becomes of nodes and pods."""

    world: World
    sim: Sim
    policy: FailureRecoveryPolicy
    began: float | None = None

    def make(self, shared: Equipment) -> Sequence[Worker]:
        shared.recovery = replace(self.policy, default_period=shared.recovery.default_period)
        return inside.MAKERS[controllers.FAILURE_RECOVERY](shared)

    # -- the controller

    async def start(self, **faults: Any) -> None:
        """Start it; time counts from here, a whole second, when it is for the first time."""
        if self.began is None:
            self.began = self.sim.clock.monotonic()
        await self.world.start(**faults)

    async def restart(self, **faults: Any) -> None:
        await self.world.stop()
        await self.start(**faults)

    def switch(
        self, policy: FailureRecoveryPolicy | None = None, *, on: bool = True, whole: bool = True
    ) -> None:
        """What a changed configuration file does."""
        (worker,) = self.world.workers
        assert isinstance(worker, FailureRecovery)
        worker.take_up(Settings(on, policy or self.policy, whole_cluster=whole))

    async def until(self, seconds: float) -> None:
        """Until so long after the start, and a moment for what happens then."""
        await self.sim.clock.sleep(seconds - self.seconds + 0.05)

    @property
    def seconds(self) -> float:
        return self.sim.clock.monotonic() - (self.began or 0.0)

    # -- nodes

    async def node(
        self, name: str = "n", *, lost: bool = True, lease: bool = True, **how: Any
    ) -> None:
        """A node with its lease."""
        await self.world.node(name, **how)
        if lease:
            await self.lease(name)
        if lost:
            await self.lose(name)
        else:
            await self.find(name)

    async def lease(self, name: str = "n") -> None:
        body: Object = {**builders.lease(name), "spec": {"renewTime": self._micro()}}
        await self.world.client.create(kinds.LEASES, body, namespace=NODE_NAMESPACE)

    async def lose(self, name: str = "n") -> None:
        await self._ready(name, "Unknown")
        await self.taint(name, *LOST)

    async def find(self, name: str = "n") -> None:
        """It is back; whatever else tainted it stays."""
        await self._ready(name, "True")
        kept = [each for each in await self.taints(name) if each["key"] != UNREACHABLE]
        await self.taint(name, *kept)

    async def taint(self, name: str, *taints: Object) -> None:
        patch = {"spec": {"taints": list(taints) or None}}
        await self.world.client.patch(kinds.NODES, name, patch)

    async def taints(self, name: str = "n") -> list[Object]:
        found = (await self.world.client.get(kinds.NODES, name)).spec.taints or ()
        return [{"key": each.key, "value": each.value, "effect": each.effect} for each in found]

    async def _ready(self, name: str, status: str) -> None:
        condition = {
            "type": "Ready",
            "status": status,
            "lastTransitionTime": times.format_time(self.sim.clock.now()),
        }
        await self.world.client.patch(
            kinds.NODES,
            name,
            {"status": {"conditions": [condition]}},
            patch_type="strategic",
            subresource="status",
        )

    async def renew(self, name: str = "n", when: str = "") -> None:
        body = {"spec": {"renewTime": when or self._micro()}}
        await self.world.client.patch(kinds.LEASES, name, body, namespace=NODE_NAMESPACE)

    def _micro(self) -> str:
        return times.format_micro(self.sim.clock.now())

    # -- pods

    async def zombie(
        self, name: str = "p", *, phase: str = "Running", fence: int = 0, **how: Any
    ) -> None:
        """A pod that opted in, and is deleted; its node does nothing about it."""
        await self.running(name, phase=phase, fence=fence, **how)
        await self.world.delete(name)

    async def running(
        self, name: str = "p", *, phase: str = "Running", fence: int = 0, **how: Any
    ) -> None:
        how = {"node": "n", "grace": GRACE_SECONDS, "annotations": SAFE, **how}
        await self.world.pod(name, phase=phase, **how)
        if fence:
            await self.promise(name, fence)

    async def promise(self, name: str, seconds: int) -> None:
        """The node lists the pod in its Lease."""
        uid = (await self.pod(name)).metadata.uid
        listing = self_fence.write_listed({uid: self_fence.Promise(seconds, 20)})
        patch = {"metadata": {"annotations": {self_fence.LISTED: listing}}}
        await self.world.client.patch(kinds.LEASES, "n", patch, namespace=NODE_NAMESPACE)

    async def annotate(self, name: str, annotations: Object) -> None:
        patch = {"metadata": {"annotations": annotations}}
        await self.world.client.patch(kinds.PODS, name, patch, namespace=NAMESPACE)

    async def phase(self, name: str = "p") -> str:
        found = await self.world.found(name)
        return "gone" if found is None else found.status.phase

    async def pod(self, name: str = "p") -> Pod:
        found = await self.world.found(name)
        assert found is not None
        return found

    async def freed_at(self, name: str = "p") -> float:
        """When it was made to fail, in seconds."""
        found = await self.pod(name)
        assert found.status.phase == "Failed"
        held = [each for each in found.status.conditions or () if each.type == zombie.CONDITION]
        assert len(held) == 1
        assert held[0].last_transition_time is not None
        ago = self.sim.clock.now() - times.parse(held[0].last_transition_time)
        return round(self.seconds - ago.total_seconds())

    # -- what was told

    def told(self, reason: str) -> list[str]:
        return [note for _, told, note in self.world.told.events if told == reason]

    def decided(self, outcome: str, reason: str, what: str = "pod") -> float:
        name = f"refloat_failure_recovery_{what}_decisions_total"
        return self.world.sample(name, outcome=outcome, reason=reason)


@contextlib.asynccontextmanager
async def stage(
    sim: Sim, policy: FailureRecoveryPolicy | None = None, gates: Gates = ON
) -> AsyncIterator[Stage]:
    made: list[Stage] = []

    def make(shared: Equipment) -> Sequence[Worker]:
        return made[0].make(shared)

    async with controller_world.world(sim, make, gates) as world:
        made.append(Stage(world, sim, policy or FailureRecoveryPolicy()))
        yield made[0]


async def zombies(s: Stage, count: int, **how: Any) -> list[str]:
    """So many, and their names."""
    names = [f"p{number}" for number in range(count)]
    for name in names:
        await s.zombie(name, **how)
    return names
