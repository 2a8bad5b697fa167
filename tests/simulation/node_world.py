# SPDX-License-Identifier: Apache-2.0
"""A cluster in virtual time with the controllers that watch over nodes, and nodes by hand.

A node beats when the test says so, or is kept beating; the controllers stand
on clients of their own, so that they can be killed at any of their writes, and
read through informers that can be made to lag.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec
from prometheus_client import CollectorRegistry

from refloat.api import times
from refloat.api.core import Node, Pod
from refloat.api.meta import Object
from refloat.apiserver.inprocess import InProcess
from refloat.base.clock import Handle
from refloat.base.tasks import Tasks
from refloat.client import errors, kinds
from refloat.client.contract import Kind, Watch, WatchEvent
from refloat.client.local import LocalClient
from refloat.client.requests import Request
from refloat.controllers.node_lifecycle import settings as lifecycle_settings
from refloat.controllers.node_lifecycle.controller import NodeLifecycle
from refloat.controllers.node_lifecycle.metrics import NodeLifecycleMetrics
from refloat.controllers.node_lifecycle.monitor import LEASE_NAMESPACE
from refloat.controllers.taint_eviction.controller import POD_INDEXES, TaintEviction
from refloat.controllers.taint_eviction.metrics import TaintEvictionMetrics
from refloat.policy.switches import ALL_ON, Switches
from refloat.runtime.controller import Instruments
from refloat.runtime.event_series import EventType, Reference
from refloat.runtime.informer import Informer
from refloat.runtime.queue_metrics import QueueMetrics
from refloat.runtime.reconcile_metrics import ReconcileMetrics
from refloat.sim.clock import VirtualClock
from refloat.sim.run import Sim
from tests import builders
from tests.simulation import api_program
from tests.simulation.job_world import MortalClient

T = TypeVar("T")

NAMESPACE = "default"

BEAT_SECONDS = 10.0

HEALTHY = {
    "Ready": ("True", "KubeletReady"),
    "MemoryPressure": ("False", "KubeletHasSufficientMemory"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure"),
    "PIDPressure": ("False", "KubeletHasSufficientPID"),
}


@dataclass(frozen=True, slots=True)
class Choice:
    """Which controllers run, and how."""

    lifecycle: bool = True
    eviction: bool = True
    settings: lifecycle_settings.Settings = field(default_factory=lifecycle_settings.Settings)
    switches: Switches = ALL_ON


@dataclass(slots=True)
class Told:
    """Takes down what the controllers tell."""

    events: list[tuple[str, str, str]] = field(default_factory=list)

    def event(
        self, regarding: Reference, event_type: EventType, reason: str, action: str, note: str
    ) -> None:
        assert regarding.uid
        assert action
        self.events.append((f"{regarding.kind}/{regarding.name}", f"{event_type} {reason}", note))

    def about(self, name: str) -> list[tuple[str, str]]:
        return [(reason, note) for about, reason, note in self.events if about == name]


class LaggingReader(LocalClient):
    """Whoever reads through it is behind, by up to so many seconds an event."""

    def __init__(self, world: "World") -> None:
        super().__init__(world.api, field_manager="reader")
        self._world = world

    def _open(self, request: Request, kind: Kind[T]) -> Watch[T]:
        return LaggingWatch(super()._open(request, kind), self._world)


class LaggingWatch(Generic[T]):
    def __init__(self, watch: Watch[T], world: "World") -> None:
        self._watch = watch
        self._world = world

    def __aiter__(self) -> "LaggingWatch[T]":
        return self

    async def __anext__(self) -> WatchEvent[T]:
        event = await self._watch.__anext__()
        if self._world.lag:
            await self._world.sleep(self._world.lag * self._world.sim.rand.random())
        return event

    async def aclose(self) -> None:
        await self._watch.aclose()


class StoppableClock(VirtualClock):
    """The clock of a process that can be stopped: afterwards it shows a later time."""

    stopped_seconds = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.stopped_seconds

    def call_at(self, when: float, callback: Callable[[], object]) -> Handle:
        return super().call_at(when - self.stopped_seconds, callback)


class Process:
    """One life of the controllers."""

    def __init__(self, world: "World", choice: Choice) -> None:
        self._clock, rand = world.clock, world.sim.rand
        self._world = world
        self.client = MortalClient(world.api)
        self.registry = CollectorRegistry()
        self._instruments = Instruments(
            ReconcileMetrics(self.registry), QueueMetrics(self.registry)
        )
        reader = LaggingReader(world)
        how: dict[str, Any] = {"clock": self._clock, "rand": rand}
        self.pods = Informer(reader, kinds.PODS, indexes=POD_INDEXES, **how)
        self.nodes = Informer(reader, kinds.NODES, **how)
        self.leases = Informer(world.lease_reader, kinds.LEASES, **how)
        self.workers: list[NodeLifecycle | TaintEviction] = []
        if choice.lifecycle:
            self.workers.append(self._lifecycle(choice))
        if choice.eviction:
            self.workers.append(self._eviction(choice))

    def _lifecycle(self, choice: Choice) -> NodeLifecycle:
        return NodeLifecycle(
            self.client,
            self.nodes,
            self.pods,
            self.leases,
            clock=self._clock,
            sink=self._world.told,
            instruments=self._instruments,
            metrics=NodeLifecycleMetrics(self.registry),
            settings=choice.settings,
        )

    def _eviction(self, choice: Choice) -> TaintEviction:
        return TaintEviction(
            self.client,
            self.pods,
            self.nodes,
            clock=self._clock,
            sink=self._world.told,
            instruments=self._instruments,
            metrics=TaintEvictionMetrics(self.registry),
            switches=choice.switches,
        )

    async def start(self) -> None:
        for informer in (self.nodes, self.leases, self.pods):
            informer.start()
            await informer.wait_synced()
        for worker in self.workers:
            worker.start()

    async def stop(self) -> None:
        for worker in self.workers:
            await worker.stop()
        for informer in (self.nodes, self.leases, self.pods):
            await informer.close()


class World:
    def __init__(self, sim: Sim, api: InProcess, choice: Choice) -> None:
        self.sim = sim
        self.clock = StoppableClock(asyncio.get_running_loop())
        self.api = api
        self.client = LocalClient(api, field_manager="test")
        self.lease_reader = LocalClient(api, field_manager="reader")
        self.told = Told()
        self.choice = choice
        self.lag = 0.0
        """How many seconds the caches are behind, at most, with each event."""
        self._tasks = Tasks()
        self._beating: dict[str, None] = {}
        self.process = Process(self, choice)
        self.began = sim.clock.monotonic()

    @property
    def seconds(self) -> float:
        """Since the controllers began, to the hundredth."""
        return round(self.sim.clock.monotonic() - self.began, 2)

    async def start(self) -> None:
        """Start the controllers, or start them anew; time counts from now."""
        await self.process.stop()
        self.process = Process(self, self.choice)
        await self.process.start()
        self.began = self.sim.clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self.sim.clock.sleep(seconds)

    def stop_controllers(self, seconds: float) -> None:
        """As SIGSTOP and SIGCONT: their clock goes on, and nothing else happens meanwhile."""
        self.clock.stopped_seconds += seconds

    async def until(self, seconds: float) -> None:
        """Wait until so many seconds after the start, and a moment for what happens then."""
        await self.sleep(seconds - (self.sim.clock.monotonic() - self.began) + 0.09)

    async def close(self) -> None:
        await self._tasks.close()
        await self.process.stop()

    # nodes

    async def node(
        self, name: str, *, posts: bool = True, leases: bool = True, **meta: Any
    ) -> None:
        """A node that has just come up."""
        await self.client.create(kinds.NODES, builders.node(name, **meta))
        if posts:
            await self.post(name)
        if leases:
            body = {**builders.lease(name), "spec": {"renewTime": self._micro()}}
            await self.client.create(kinds.LEASES, body, namespace=LEASE_NAMESPACE)

    async def nodes(self, names: Iterable[str], **meta: Any) -> None:
        for name in names:
            await self.node(name, **meta)

    async def post(self, name: str, **statuses: str) -> None:
        """The kubelet writes its status: healthy, but for what is given."""
        now = times.format_time(self.sim.clock.now())
        conditions = [
            {
                "type": condition,
                "status": statuses.get(condition, status),
                "reason": reason,
                "message": "",
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
            for condition, (status, reason) in HEALTHY.items()
        ]
        await self.client.patch(
            kinds.NODES,
            name,
            {"status": {"conditions": conditions}},
            patch_type="strategic",
            subresource="status",
        )

    async def renew(self, name: str, when: str = "") -> None:
        body = {"spec": {"renewTime": when or self._micro()}}
        await self.client.patch(kinds.LEASES, name, body, namespace=LEASE_NAMESPACE)

    def _micro(self) -> str:
        return times.format_micro(self.sim.clock.now())

    def keep_beating(self, *names: str) -> None:
        """Renew their leases every ten seconds, until they are silenced."""
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

    async def raw_node(self, name: str) -> Object:
        found: Object = msgspec.json.decode(await self.api.call("GET", f"/api/v1/nodes/{name}"))
        return found

    async def ready(self, name: str) -> str:
        conditions = (await self.get_node(name)).status.conditions or ()
        return next((each.status for each in conditions if each.type == "Ready"), "")

    async def taints(self, name: str) -> list[str]:
        found = (await self.get_node(name)).spec.taints or ()
        prefix = "node.kubernetes.io/"
        return [f"{each.key.removeprefix(prefix)}:{each.effect}" for each in found]

    async def taint(self, name: str, *taints: Object) -> None:
        await self.client.patch(kinds.NODES, name, {"spec": {"taints": list(taints) or None}})

    # pods

    async def pod(self, name: str = "p", *, node: str = "n", **spec: Any) -> Pod:
        """A pod that runs and is ready."""
        body = builders.pod(name, node=node, spec=spec)
        await self.client.create(kinds.PODS, body, namespace=NAMESPACE)
        condition = {
            "type": "Ready",
            "status": "True",
            "lastTransitionTime": times.format_time(self.sim.clock.now()),
        }
        status = {"phase": "Running", "conditions": [condition]}
        return await self.pod_status(name, status)

    async def pod_status(self, name: str, status: Object) -> Pod:
        return await self.client.patch(
            kinds.PODS,
            name,
            {"status": status},
            patch_type="strategic",
            namespace=NAMESPACE,
            subresource="status",
        )

    async def get_pod(self, name: str = "p") -> Pod:
        return await self.client.get(kinds.PODS, name, namespace=NAMESPACE)


@contextlib.asynccontextmanager
async def world(sim: Sim, choice: Choice | None = None) -> AsyncIterator[World]:
    """Without its controllers running: `start` them when the stage is set."""
    async with api_program.serving(sim) as api:
        made = World(sim, api, choice or Choice())
        try:
            yield made
        finally:
            await made.close()
