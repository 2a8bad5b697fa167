# SPDX-License-Identifier: Apache-2.0
"""A cluster in virtual time with the real API server, the scheduler, and nodes on paper.

The scheduler stands on a client of its own, so that it can be killed at any
of its writes and started anew. Nobody runs the pods: a test says when one
starts or ends; those that are deleted end after their grace.
"""

import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, Generic, TypeVar

import msgspec
from prometheus_client import CollectorRegistry

from refloat.api.core import Node, Pod
from refloat.api.meta import Object
from refloat.api.policy import PodDisruptionBudget
from refloat.apiserver.inprocess import InProcess
from refloat.base.tasks import Tasks
from refloat.client import errors, kinds
from refloat.client.contract import DeleteOptions, Kind, Watch, WatchEvent
from refloat.client.local import LocalClient
from refloat.client.requests import Request
from refloat.controllers.scheduler.scheduler import Scheduler
from refloat.controllers.scheduler.settings import Settings
from refloat.policy import demand as demands
from refloat.runtime.controller import Instruments
from refloat.runtime.informer import Informer
from refloat.runtime.queue_metrics import QueueMetrics
from refloat.runtime.reconcile_metrics import ReconcileMetrics
from refloat.sim.run import Sim
from tests import builders
from tests.simulation import api_program
from tests.simulation.job_world import MortalClient, Told

T = TypeVar("T")

NAMESPACE = "default"
PODS = "/api/v1/namespaces/default/pods"

SETTINGS = Settings(overlook_not_ready=True)


class _Reader(LocalClient):
    """Is behind by up to `world.lag` seconds an event."""

    def __init__(self, world: "World") -> None:
        super().__init__(world.api, field_manager="reader")
        self._world = world

    def _open(self, request: Request, kind: Kind[T]) -> Watch[T]:
        return _Late(super()._open(request, kind), self._world)


class _Late(Generic[T]):
    def __init__(self, watch: Watch[T], world: "World") -> None:
        self._watch = watch
        self._world = world

    def __aiter__(self) -> "_Late[T]":
        return self

    async def __anext__(self) -> WatchEvent[T]:
        event = await self._watch.__anext__()
        if self._world.lag:
            await self._world.settle(self._world.lag * self._world.sim.rand.random())
        return event

    async def aclose(self) -> None:
        await self._watch.aclose()


class Process:
    """One life of the scheduler."""

    def __init__(self, world: "World", settings: Settings) -> None:
        clock, rand = world.sim.clock, world.sim.rand
        registry = CollectorRegistry()
        self.client = MortalClient(world.api)
        reader = _Reader(world)
        self.pods: Informer[Pod] = Informer(reader, kinds.PODS, clock=clock, rand=rand)
        self._nodes: Informer[Node] = Informer(reader, kinds.NODES, clock=clock, rand=rand)
        self._budgets: Informer[PodDisruptionBudget] = Informer(
            reader, kinds.POD_DISRUPTION_BUDGETS, clock=clock, rand=rand
        )
        self.scheduler = Scheduler(
            self.client,
            self.pods,
            self._nodes,
            self._budgets,
            clock=clock,
            rand=rand,
            sink=world.told,
            instruments=Instruments(ReconcileMetrics(registry), QueueMetrics(registry)),
            settings=settings,
        )

    async def start(self) -> None:
        for each in (self._nodes, self._budgets, self.pods):
            each.start()
            await each.wait_synced()
        self.scheduler.controller.start()

    async def stop(self) -> None:
        await self.scheduler.controller.stop()
        for each in (self.pods, self._budgets, self._nodes):
            await each.close()


class World:
    def __init__(self, sim: Sim, api: InProcess) -> None:
        self.sim = sim
        self.api = api
        self.client = LocalClient(api, field_manager="test")
        self.told = Told()
        self.lag = 0.0
        self.settings = SETTINGS
        self.process = Process(self, self.settings)
        self.most: Counter[str] = Counter()
        """The most cpu, in thousandths, that each node ever had to give at a time."""
        self.seen: list[str] = []
        """What became of deleted pods: `name condition` or `name deletion`, in order."""
        self._tasks = Tasks()

    async def restart(self) -> None:
        await self.process.stop()
        self.process = Process(self, self.settings)
        await self.process.start()

    async def settle(self, seconds: float = 1.0) -> None:
        await self.sim.clock.sleep(seconds)

    async def node(
        self,
        name: str,
        *,
        cpu: str = "4",
        pods: int = 110,
        ready: bool = True,
        labels: dict[str, str] | None = None,
        **spec: Any,
    ) -> None:
        made = {"metadata": {"name": name, "labels": labels or {}}, "spec": spec}
        await self.client.create(kinds.NODES, made)
        status = {
            "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": str(pods)},
            "conditions": [{"type": "Ready", "status": str(ready)}],
        }
        await self.client.patch(kinds.NODES, name, {"status": status}, subresource="status")

    async def classes(self, **values: int) -> None:
        for name, value in values.items():
            await self.client.create(
                kinds.PRIORITY_CLASSES, builders.priority_class(name, value=value)
            )

    async def pod(
        self,
        name: str = "p",
        *,
        cpu: str | None = None,
        priority: str = "",
        grace: int = 1,
        labels: dict[str, str] | None = None,
        **spec: Any,
    ) -> Pod:
        main: Object = {"name": "main", "image": "busybox"}
        if cpu is not None:
            main["resources"] = {"requests": {"cpu": cpu}}
        spec = {"containers": [main], "terminationGracePeriodSeconds": grace, **spec}
        if priority:
            spec["priorityClassName"] = priority
        made = builders.pod(name, spec=spec, labels=labels or {})
        return await self.client.create(kinds.PODS, made, namespace=NAMESPACE)

    async def get(self, name: str = "p") -> Object:
        found: Object = msgspec.json.decode(await self.api.call("GET", f"{PODS}/{name}"))
        return found

    async def condition(self, name: str = "p", kind: str = "PodScheduled") -> Object | None:
        found = (await self.get(name))["status"].get("conditions") or []
        return next((each for each in found if each["type"] == kind), None)

    async def why(self, name: str = "p") -> str:
        found = await self.condition(name)
        assert found is not None
        assert (found["status"], found["reason"]) == ("False", "Unschedulable")
        said: str = found["message"]
        return said

    async def places(self) -> dict[str, str]:
        listed = msgspec.json.decode(await self.api.call("GET", PODS))["items"]
        return {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in listed}

    async def change(self, name: str, status: Object) -> None:
        await self.client.patch(
            kinds.PODS, name, {"status": status}, namespace=NAMESPACE, subresource="status"
        )

    async def delete(self, name: str, grace: int | None = None) -> None:
        options = DeleteOptions(grace_seconds=grace)
        await self.client.delete(kinds.PODS, name, namespace=NAMESPACE, options=options)

    def start_watching(self) -> None:
        self._tasks.spawn(self._follow(), name="kubelets")

    async def close(self) -> None:
        await self._tasks.close()

    async def _follow(self) -> None:
        """End pods after their grace, and note what was on each node at most."""
        held: dict[str, Pod] = {}
        watch = self.client.watch(kinds.PODS, initial_events=True)
        try:
            async for event in watch:
                if event.object is not None:
                    self._saw(held, event.type, event.object)
        finally:
            await watch.aclose()

    def _saw(self, held: dict[str, Pod], kind: str, pod: Pod) -> None:
        name, before = pod.metadata.name, held.pop(pod.metadata.uid, None)
        if kind == "DELETED":
            return
        held[pod.metadata.uid] = pod
        is_marked = any(each.type == "DisruptionTarget" for each in pod.status.conditions or ())
        was = before is not None and any(
            each.type == "DisruptionTarget" for each in before.status.conditions or ()
        )
        if is_marked and not was:
            self.seen.append(f"{name} condition")
        if pod.is_terminating and not (before is not None and before.is_terminating):
            self.seen.append(f"{name} deletion")
            self._tasks.spawn(self._end(pod), name=f"end {name}")
        self._weigh(held, pod.spec.node_name)

    def _weigh(self, held: dict[str, Pod], node: str) -> None:
        there = (each for each in held.values() if each.spec.node_name == node)
        cpu = sum(dict(demands.needs(each)).get("cpu", 0) for each in there if not each.is_terminal)
        self.most[node] = max(self.most[node], cpu)

    async def _end(self, pod: Pod) -> None:
        await self.settle(pod.metadata.deletion_grace_period_seconds or 0)
        options = DeleteOptions(grace_seconds=0, uid=pod.metadata.uid)
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self.client.delete(
                kinds.PODS, pod.metadata.name, namespace=NAMESPACE, options=options
            )


@contextlib.asynccontextmanager
async def world(sim: Sim, settings: Settings = SETTINGS) -> AsyncIterator[World]:
    async with api_program.serving(sim) as api:
        made = World(sim, api)
        made.settings = settings
        made.process = Process(made, settings)
        made.start_watching()
        await made.process.start()
        try:
            yield made
        finally:
            await made.process.stop()
            await made.close()


async def until(made: World, check: Any, *, within: float = 300) -> None:
    """Wait until an async check holds; looks every half second."""
    deadline = made.sim.clock.monotonic() + within
    while not await check():
        assert made.sim.clock.monotonic() < deadline, await made.places()
        await made.settle(0.5)
