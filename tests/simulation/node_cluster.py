# SPDX-License-Identifier: Apache-2.0
"""The node controllers in virtual time, on nodes without agents.

The test renews the Leases of nodes, or `keep_beating` does.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from refloat.api.core import Node, Pod
from refloat.app import controller_table
from refloat.app.controller_names import NODE_LIFECYCLE, TAINT_EVICTION
from refloat.base.clock import Handle
from refloat.base.gates import Gates
from refloat.base.tasks import Tasks
from refloat.client import errors, kinds
from refloat.sim.clock import VirtualClock
from refloat.sim.run import Sim
from tests.simulation.controller_cluster import ControllerCluster

BEAT_SECONDS = 10.0

HEALTHY = {
    "Ready": ("True", "KubeletReady"),
    "MemoryPressure": ("False", "KubeletHasSufficientMemory"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure"),
    "PIDPressure": ("False", "KubeletHasSufficientPID"),
}


BOTH = (NODE_LIFECYCLE, TAINT_EVICTION)


class StoppableClock(VirtualClock):
    """The clock of a process that can be stopped: after the stop the clock shows a later time."""

    stopped_seconds = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.stopped_seconds

    def call_at(self, when: float, callback: Callable[[], object]) -> Handle:
        return super().call_at(when - self.stopped_seconds, callback)


class NodeCluster(ControllerCluster):
    """A cluster whose controllers the test starts."""

    def __init__(
        self, sim: Sim, *controllers: str, gates: Gates | None = None, beside: tuple[str, ...] = ()
    ) -> None:
        """`beside` are controllers that the process claims to run and does not."""
        build = partial(controller_table.build, controllers=controllers or BOTH)
        super().__init__(sim, build)
        self.gates = gates
        self.controllers = (*(controllers or BOTH), *beside)
        self.clock = self._clock = StoppableClock(asyncio.get_running_loop())
        self._tasks = Tasks()
        self._beating: dict[str, None] = {}

    @property
    def seconds(self) -> float:
        """Since the controllers started, to the hundredth."""
        return round(super().seconds, 2)

    async def start(self, **faults: Any) -> None:
        """Start the controllers, or restart them; time counts from now."""
        await self.stop()
        await super().start(**faults)
        self.began = self.sim.clock.monotonic()

    def stop_controllers(self, seconds: float) -> None:
        """As SIGSTOP and SIGCONT: their clock goes on, and nothing else happens meanwhile."""
        self._clock.stopped_seconds += seconds

    async def close(self) -> None:
        await self._tasks.close()
        await super().close()

    # -- nodes

    async def node(
        self, name: str, *, posts: bool = True, leases: bool = True, **fields: Any
    ) -> None:
        """A node that has just come up."""
        await super().node(name, **fields)
        if posts:
            await self.post(name)
        if leases:
            await self.lease(name)

    async def nodes(self, names: Iterable[str], **fields: Any) -> None:
        for name in names:
            await self.node(name, **fields)

    async def post(self, name: str, **statuses: str) -> None:
        """The kubelet writes its status: healthy, except for `statuses`."""
        conditions = (
            {"type": each, "status": statuses.get(each, status), "reason": reason, "message": ""}
            for each, (status, reason) in HEALTHY.items()
        )
        await self.node_status(name, *conditions)

    def keep_beating(self, *names: str) -> None:
        """Renew their Leases every ten seconds, until `silence`."""
        for name in names:
            self._beating[name] = None
            self._tasks.spawn(self._beat(name), name=f"beat {name}")

    def silence(self, *names: str) -> None:
        for name in names:
            self._beating.pop(name, None)

    async def _beat(self, name: str) -> None:
        while name in self._beating:
            with contextlib.suppress(errors.NotFound):
                await self.renew(name)
            await self.sleep(BEAT_SECONDS)

    async def get_node(self, name: str) -> Node:
        return await self.client.get(kinds.NODES, name)

    async def ready(self, name: str) -> str:
        conditions = (await self.get_node(name)).status.conditions or ()
        return next((each.status for each in conditions if each.type == "Ready"), "")

    async def taints(self, name: str) -> list[str]:
        taints = (await self.get_node(name)).spec.taints or ()
        prefix = "node.kubernetes.io/"
        return [f"{each.key.removeprefix(prefix)}:{each.effect}" for each in taints]

    # -- pods

    async def pod(
        self,
        name: str = "p",
        *,
        phase: str = "Running",
        ready: bool = True,
        node: str = "n",
        **spec: Any,
    ) -> Pod:
        """A pod that runs and is ready."""
        return await super().pod(name, phase=phase, ready=ready, node=node, spec=spec)
