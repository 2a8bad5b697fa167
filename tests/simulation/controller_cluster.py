# SPDX-License-Identifier: Apache-2.0
"""Some controllers of the embedded cluster on a real API server in virtual time.

`app.controller_table` builds the controllers. Their client can die, lose answers and
get refusals; their caches can lag. The test reads their events.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias, TypeVar

from prometheus_client import CollectorRegistry

from refloat.api import times
from refloat.api.coordination import NODE_NAMESPACE
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.base.clock import Clock
from refloat.base.gates import Gates
from refloat.client import errors, kinds
from refloat.client.contract import Client, DeleteOptions
from refloat.client.requests import Request
from refloat.runtime.controller_env import Build
from refloat.runtime.manager import Worker
from refloat.sim.cluster import ControlPlane
from refloat.sim.controller_process import ControllerProcess
from refloat.sim.event_log import EventLog
from refloat.sim.faulty_client import FaultyClient, LaggingClient, WatchFaults
from refloat.sim.run import Sim
from tests import builders

NAMESPACE = "default"
AT_ONCE = DeleteOptions(grace_seconds=0)


class ControllerCluster(ControlPlane):
    """An API server, and controllers that a test can kill and start again."""

    clock: Clock | None = None
    """Of the controllers, if not that of the simulation."""
    controllers: tuple[str, ...] = ()
    """The names of the controllers that the process claims to run."""
    reader: Client | None = None
    """Fills the caches of the controllers, if not a client that can lag."""

    def __init__(
        self, sim: Sim, build: Build, gates: Gates | None = None, *, settings: Iterable[object] = ()
    ) -> None:
        super().__init__(sim, gates=gates)
        self.event_log = EventLog()
        self.watch_faults = WatchFaults()
        self.gates = gates
        self.settings = tuple(settings)
        self.faults: dict[str, Any] = {}
        """Attributes of the `FaultyClient` of each process that starts."""
        self._build = build
        self._process: ControllerProcess | None = None

    def new_process(self, **faults: Any) -> ControllerProcess:
        """Controllers that are not started; `faults` are attributes of `FaultyClient`."""
        return ControllerProcess(
            self.sim,
            self.server,
            self._build,
            sink=self.event_log,
            gates=self.gates,
            settings=self.settings,
            controllers=self.controllers,
            clock=self.clock,
            reader=self.reader or LaggingClient(self.server, self.sim, self.watch_faults),
            **{**self.faults, **faults},
        )

    async def start(self, **faults: Any) -> None:
        self._process = self.new_process(**faults)
        await self._process.start()

    async def stop(self) -> None:
        if self._process is not None:
            await self._process.stop()

    async def restart(self, **faults: Any) -> None:
        await self.stop()
        await self.start(**faults)

    async def close(self) -> None:
        await self.stop()

    @property
    def process(self) -> ControllerProcess:
        """The present life of the controllers."""
        assert self._process is not None
        return self._process

    @property
    def faulty(self) -> FaultyClient:
        """The client of the controllers."""
        return self.process.client

    @property
    def metrics(self) -> CollectorRegistry:
        return self.process.registry

    @property
    def workers(self) -> Sequence[Worker]:
        return self.process.workers

    def sample(self, name: str, **labels: str) -> float:
        return self.metrics.get_sample_value(name, labels) or 0.0

    # -- pods

    async def pod(
        self, name: str, *, phase: str = "Running", ready: bool = False, **fields: Any
    ) -> Pod:
        await self.client.create(kinds.PODS, builders.pod(name, **fields), namespace=NAMESPACE)
        condition = {
            "type": "Ready",
            "status": str(ready),
            "lastTransitionTime": times.format_time(self.sim.clock.now()),
        }
        return await self.status(name, phase=phase, conditions=[condition])

    async def status(self, pod: str, **status: Any) -> Pod:
        return await self.client.patch(
            kinds.PODS,
            pod,
            {"status": status},
            patch_type="strategic",
            namespace=NAMESPACE,
            subresource="status",
        )

    async def get_pod(self, name: str = "p") -> Pod:
        return await self.client.get(kinds.PODS, name, namespace=NAMESPACE)

    async def delete(self, pod: str, grace: int | None = None) -> None:
        options = DeleteOptions(grace_seconds=grace)
        await self.client.delete(kinds.PODS, pod, namespace=NAMESPACE, options=options)

    # -- nodes

    async def node(self, name: str, **fields: Any) -> None:
        await self.client.create(kinds.NODES, builders.node(name, **fields))

    async def node_status(self, name: str, *conditions: Object) -> None:
        """The conditions, as of now."""
        now = times.format_time(self.sim.clock.now())
        stamps = {"lastHeartbeatTime": now, "lastTransitionTime": now}
        await self.client.patch(
            kinds.NODES,
            name,
            {"status": {"conditions": [{**stamps, **each} for each in conditions]}},
            patch_type="strategic",
            subresource="status",
        )

    async def taint(self, name: str, *taints: Object) -> None:
        """Replace the taints of a node."""
        await self.client.patch(kinds.NODES, name, {"spec": {"taints": list(taints) or None}})

    async def lease(self, name: str = "n") -> None:
        """Create the Lease of a node."""
        body = {**builders.lease(name), "spec": {"renewTime": self._now()}}
        await self.client.create(kinds.LEASES, body, namespace=NODE_NAMESPACE)

    async def renew(self, name: str = "n", when: str = "") -> None:
        body = {"spec": {"renewTime": when or self._now()}}
        await self.client.patch(kinds.LEASES, name, body, namespace=NODE_NAMESPACE)

    def _now(self) -> str:
        return times.format_micro(self.sim.clock.now())


C = TypeVar("C", bound=ControllerCluster)


@contextlib.asynccontextmanager
async def running(
    sim: Sim, opens: Callable[..., AbstractAsyncContextManager[C]], *args: Any, **options: Any
) -> AsyncIterator[C]:
    """The cluster, with its controllers started."""
    async with opens(sim, *args, **options) as cluster:
        await cluster.start()
        yield cluster


Fault: TypeAlias = Callable[[ControllerCluster, int, float], Awaitable[None]]
"""Starts the controllers so that something goes wrong at a write, and waits until that is over."""


async def _dies(cluster: ControllerCluster, number: int, seconds: float, *, after: bool) -> None:
    await cluster.start(dies_at=number, dies_after=after)
    await cluster.sleep(seconds)
    await cluster.restart()


async def _meets_a_conflict(cluster: ControllerCluster, number: int, _: float) -> None:
    def refuse(__: Request, at: int) -> errors.ClientError | None:
        return errors.Conflict("changed", code=409, reason="Conflict") if at == number else None

    await cluster.start(refuses=refuse)


FAULTS: dict[str, Fault] = {
    "dies before": lambda w, number, seconds: _dies(w, number, seconds, after=False),
    "dies after": lambda w, number, seconds: _dies(w, number, seconds, after=True),
    "loses the answer": lambda cluster, number, _: cluster.start(loses=(number,)),
    "meets a conflict": _meets_a_conflict,
}


def condition(pod: Pod, kind: str) -> Object | None:
    """A condition's status, reason and message."""
    for each in pod.status.conditions or ():
        if each.type == kind:
            return {"status": each.status, "reason": each.reason, "message": each.message}
    return None
