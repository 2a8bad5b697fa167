# SPDX-License-Identifier: Apache-2.0
"""The whole embedded cluster in virtual time, from one seed.

    async def program(sim: Sim) -> None:
        async with Cluster(sim) as cluster:
            await cluster.submit("j", completions=2)
            cluster.fleet.fail("node-1", "crash")
            await cluster.until(60)
            print(cluster.history(cluster.job("j")))

    run.run(program, seed=7)

The controllers and nodes are those of `refloat up`, with the waits of Kubernetes. The
annotation `refloat.dev/simulate` has the script of a pod's containers. `Cluster.fleet`
makes nodes fail.
"""

import contextlib
import json
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

from prometheus_client import CollectorRegistry

from refloat.agent.fleet import Fleet
from refloat.api import times
from refloat.api.batch import Job
from refloat.api.coordination import NODE_NAMESPACE as LEASE_NAMESPACE
from refloat.api.core import Node, Pod
from refloat.api.meta import Object
from refloat.api.structs import ApiObject
from refloat.apiserver.identity import Identity
from refloat.app import controller_names
from refloat.app.controller_env import EmbeddedEnv
from refloat.app.controller_names import ControllerSelection
from refloat.app.embedded_controllers import EmbeddedControllers
from refloat.base.gates import Gates
from refloat.client import errors, kinds
from refloat.client.contract import Kind
from refloat.client.local import LocalClient
from refloat.policy.recovery.failure_recovery import FailureRecoveryPolicy
from refloat.runtime.informer import Change, Informer
from refloat.scenario import manifests
from refloat.scenario.cluster import ScenarioCluster
from refloat.sim import api_server, journal
from refloat.sim.api_server import SimulatedServer
from refloat.sim.run import Sim

Obj = TypeVar("Obj", bound=ApiObject)

NAMESPACE = "default"

# What `refloat up` starts.
ALL_CONTROLLERS = ControllerSelection(controller_names.KNOWN, simulated_nodes=3)

# By then all simulated nodes are ready, in seconds.
START_SECONDS = 20

# For what happens at a moment, in seconds.
MOMENT = 0.05

Line: TypeAlias = tuple[int, str]
"""A second, and the state of an object from then on."""


class ControlPlane:
    """An API server in virtual time, a client with all rights, and seconds since a mark.

    Use this class with `async with`. A subclass starts its parts in `open` and ends
    them in `close`.
    """

    server: SimulatedServer
    client: LocalClient

    def __init__(self, sim: Sim, *, gates: Gates | None = None) -> None:
        """`gates` are those of the API server."""
        self.sim = sim
        self._server_gates = gates
        self._stack = contextlib.AsyncExitStack()
        self.began = sim.clock.monotonic()

    async def __aenter__(self) -> Self:
        self.server = await self._stack.enter_async_context(api_server.serve(self.sim))
        if self._server_gates is not None:
            self.server.use(self._server_gates)
        self.client = LocalClient(self.server, field_manager="test")
        self._stack.push_async_callback(self.close)
        try:
            await self.open()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def open(self) -> None:
        """Start the parts of the cluster besides the API server."""

    async def close(self) -> None:
        """End those parts."""

    # -- time

    @property
    def seconds(self) -> float:
        """Since the mark."""
        return self.sim.clock.monotonic() - self.began

    async def mark(self) -> None:
        """Count from the next whole second, because timestamps have whole seconds."""
        await self.sim.clock.sleep(1.0 - self.sim.clock.now().microsecond / 1e6)
        self.began = self.sim.clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self.sim.clock.sleep(seconds)

    async def until(self, seconds: float) -> None:
        """Wait until some seconds after the mark, and a moment for the events of that second."""
        await self.sim.clock.sleep(seconds - self.seconds + MOMENT)

    def at(self, when: str | None) -> float:
        """A time of the API as seconds after the mark."""
        assert when is not None
        ago = (self.sim.clock.now() - times.parse(when)).total_seconds()
        return round(self.seconds - ago, 1)

    # -- objects

    async def watch(self, kind: Kind[Any], handler: Callable[[Change[Any]], None]) -> None:
        """Call `handler` with each change, until the end of the cluster."""
        informer = Informer(self.client, kind, clock=self.sim.clock, rand=self.sim.rand)
        informer.add_handler(handler)
        self._stack.push_async_callback(informer.close)
        informer.start()
        await informer.wait_synced()

    async def raw(self, plural: str, name: str) -> Object:
        """A whole object, with the fields that Refloat does not know."""
        folders = {"jobs": f"/apis/batch/v1/namespaces/{NAMESPACE}", "nodes": "/api/v1"}
        folder = folders.get(plural, f"/api/v1/namespaces/{NAMESPACE}")
        body: Object = json.loads(await self.server.call("GET", f"{folder}/{plural}/{name}"))
        return body

    async def find_pod(self, name: str) -> Pod | None:
        with contextlib.suppress(errors.NotFound):
            return await self.client.get(kinds.PODS, name, namespace=NAMESPACE)
        return None


class Cluster(ControlPlane):
    """A cluster whose nodes are ready. Time counts from a whole second after that."""

    def __init__(
        self,
        sim: Sim,
        controllers: ControllerSelection = ALL_CONTROLLERS,
        *,
        gates: Gates | None = None,
        server_gates: Gates | None = None,
        recovery: FailureRecoveryPolicy | None = None,
    ) -> None:
        """`controllers` has the controllers and the number of nodes.

        The API server has `gates` too, or `server_gates`, as during a rollout.
        """
        super().__init__(sim, gates=server_gates or gates or Gates())
        self.journal = journal.Journal(sim.clock.monotonic)
        self.metrics = CollectorRegistry()
        """Of the controllers that started last."""
        self._first = (controllers, gates, recovery)
        self.parts: list[EmbeddedControllers] = []

    async def open(self) -> None:
        await self.watch(kinds.PODS, self.journal.handler(journal.describe_pod))
        await self.watch(kinds.JOBS, self.journal.handler(journal.describe_job))
        await self.watch(kinds.NODES, self.journal.handler(journal.describe_node))
        await self.start_all()
        await self.mark()

    async def start_all(self) -> None:
        """Start the controllers and nodes, and wait until the nodes are ready."""
        self.start(*self._first)
        await self.sleep(START_SECONDS)

    async def close(self) -> None:
        for part in self.parts:
            await part.close()

    def start(
        self,
        controllers: ControllerSelection,
        gates: Gates | None = None,
        recovery: FailureRecoveryPolicy | None = None,
    ) -> None:
        """Start more controllers or nodes; their gates may differ."""
        self.metrics = CollectorRegistry()
        env = EmbeddedEnv(
            self.connect,
            controllers,
            gates=gates or Gates(),
            clock=self.sim.clock,
            rand=self.sim.rand,
            registry=self.metrics,
            recovery=recovery,
        )
        part = EmbeddedControllers(env)
        self.parts.append(part)
        part.start()

    async def stop_last(self) -> None:
        """End the controllers or nodes that started last."""
        await self.parts.pop().close()

    def connect(self, user: Identity) -> LocalClient:
        """The client of a controller or node."""
        manager = user.name.rpartition(":")[2]
        return LocalClient(self.server.as_user(user), field_manager=manager)

    @property
    def fleet(self) -> Fleet:
        """The simulated nodes."""
        return next(each.fleet for each in self.parts if each.fleet is not None)

    async def scenarios(self) -> ScenarioCluster:
        """This cluster for scenarios, until its end."""
        clock, rand = self.sim.clock, self.sim.rand
        scenarios = ScenarioCluster(self.client, clock, rand, faults=self.fleet)
        self._stack.push_async_callback(scenarios.close)
        await scenarios.open()
        return scenarios

    # -- changes

    async def submit(self, name: str = "j", *, script: Object | None = None, **spec: Any) -> None:
        """Create a Job. By default its containers run until they are stopped.

        `pod` and `annotations` go into the pod template, the rest into the Job's spec.
        """
        pod, annotations = spec.pop("pod", {}), spec.pop("annotations", {})
        body = manifests.job(
            name,
            simulate=script or {"main": {"seconds": None}},
            spec=spec,
            pod_spec=pod,
            pod_metadata={"annotations": annotations},
        )
        await self.client.create(kinds.JOBS, body, namespace=NAMESPACE)

    async def taint(self, node: str, *taints: Object) -> None:
        """Add taints to a node."""
        present = (await self.raw("nodes", node))["spec"].get("taints", [])
        await self.client.patch(kinds.NODES, node, {"spec": {"taints": [*present, *taints]}})

    # -- observations

    def pods(self, job: str = "j") -> list[Pod]:
        """All pods that a Job ever had, in order, in their newest versions."""
        return [
            pod
            for pod in self._all(Pod)
            if (owner := pod.metadata.controller) is not None and owner.name == job
        ]

    def job(self, name: str = "j") -> Job:
        return next(each for each in self._all(Job) if each.metadata.name == name)

    def node(self, name: str) -> Node:
        return next(each for each in self._all(Node) if each.metadata.name == name)

    def _all(self, kind: type[Obj]) -> Iterable[Obj]:
        return [each for each in self.journal.objects.values() if isinstance(each, kind)]

    def history(self, obj: ApiObject, *, since: float = -1.0) -> list[Line]:
        """The states of an object after the mark, each with its second."""
        lines = self.journal.lines.get(obj.metadata.uid, ())
        after = ((when - self.began, text) for when, text in lines)
        return [(round(when), text) for when, text in after if when > since]

    def node_of(self, pod: Pod) -> str:
        """The node of a pod, from the newest version of the pod."""
        newest = self.journal.objects[pod.metadata.uid]
        assert isinstance(newest, Pod)
        return newest.spec.node_name

    async def last_beat(self, node: str) -> float:
        """The second of the newest renewal of a node's Lease."""
        lease = await self.client.get(kinds.LEASES, node, namespace=LEASE_NAMESPACE)
        return self.at(lease.spec.renew_time)

    def lost_at(self, node: str) -> int:
        """The second in which the node's Ready condition became Unknown."""
        lines = self.history(self.node(node))
        return next(when for when, text in lines if "Ready=Unknown" in text)
