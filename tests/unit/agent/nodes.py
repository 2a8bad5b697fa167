# SPDX-License-Identifier: Apache-2.0
"""Simulated nodes on a whole API server, in virtual time."""

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from refloat.agent.fleet import POD_INDEXES, Fleet, Member
from refloat.agent.node import NodeSettings
from refloat.agent.simulated import ANNOTATION, SimulatedRuntime
from refloat.agent.static_pods import Key, StaticPods
from refloat.agent.usage import SimulatedUsage
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.apiserver.local_server import LocalConnection
from refloat.client import kinds
from refloat.client.local import LocalClient
from refloat.policy.job.job_gates import ALL_ON, JobGates
from refloat.policy.node.eviction_thresholds import EvictionSettings
from refloat.policy.node.kubelet_eviction import Usage
from refloat.policy.node.node_shutdown import ShutdownSettings
from refloat.runtime.controller import Instruments
from refloat.runtime.informer import Informer
from refloat.runtime.queue_metrics import QueueMetrics
from refloat.runtime.reconcile_metrics import ReconcileMetrics
from refloat.sim import api_server
from refloat.sim.run import Sim
from tests import builders
from tests.virtual import virtual

PODS = "/api/v1/namespaces/default/pods"


def instruments() -> Instruments:
    registry = CollectorRegistry()
    return Instruments(ReconcileMetrics(registry), QueueMetrics(registry))


def pod(name: str = "p", *, policy: str = "Never", script: Any = None, **more: Any) -> Object:
    """A pod on node n0 whose containers do what the script says."""
    spec = {"restartPolicy": policy, **more.pop("spec", {})}
    annotations = {ANNOTATION: json.dumps(script)} if script is not None else {}
    node = more.pop("node", "n0")
    return builders.pod(name, node=node, spec=spec, annotations=annotations, **more)


def container(name: str, **more: Any) -> Object:
    return {"name": name, "image": "busybox", **more}


@dataclass(frozen=True)
class Ways:
    """How the nodes of a test are."""

    eviction: EvictionSettings = field(default_factory=EvictionSettings)
    shutdown: ShutdownSettings = field(default_factory=ShutdownSettings)
    job_gates: JobGates = ALL_ON
    labels: dict[str, str] = field(default_factory=dict)
    force_eviction: bool = False


class CountedUsage(SimulatedUsage):
    """Counts the measurements."""

    measured = 0

    async def measure(self) -> Usage:
        self.measured += 1
        return await super().measure()


@dataclass
class Nodes:
    """What a test has in hands."""

    sim: Sim
    api: LocalConnection
    client: LocalClient
    runtimes: dict[str, SimulatedRuntime]
    settings: list[NodeSettings]
    ways: Ways
    fleet: Fleet = field(init=False)
    informer: Informer[Pod] = field(init=False)
    history: list[Object] = field(default_factory=list)
    events: list[tuple[str, str, str]] = field(default_factory=list)
    node_events: list[tuple[str, str, str]] = field(default_factory=list)
    usage: dict[str, CountedUsage] = field(default_factory=dict)
    manifests: dict[Key, Object] = field(default_factory=dict)
    """What files of node n0 ask for."""

    def look(self) -> Mapping[Key, Object]:
        return dict(self.manifests)

    async def create(self, obj: Object) -> Object:
        return await self.call("POST", PODS, obj)

    async def call(self, method: str, path: str, obj: Object | None = None) -> Object:
        body = msgspec.json.encode(obj) if obj is not None else b""
        answer: Object = msgspec.json.decode(await self.api.call(method, path, body))
        return answer

    async def status(self, name: str = "p") -> Object:
        status: Object = (await self.call("GET", f"{PODS}/{name}"))["status"]
        return status

    async def node(self, name: str = "n0") -> Object:
        return await self.call("GET", f"/api/v1/nodes/{name}")

    async def patch_status(self, status: Object, name: str = "p") -> None:
        await self.client.patch(
            kinds.PODS,
            name,
            {"status": status},
            patch_type="strategic",
            namespace="default",
            subresource="status",
        )

    async def delete(self, name: str = "p", **options: Any) -> None:
        await self.call("DELETE", f"{PODS}/{name}", options)

    async def names(self) -> list[str]:
        return [each["metadata"]["name"] for each in (await self.call("GET", PODS))["items"]]

    async def after(self, seconds: float) -> None:
        await self.sim.clock.sleep(seconds)

    def phases(self, name: str = "p") -> list[str]:
        """The phases that the pod went through."""
        names: list[str] = []
        for each in self.history:
            phase = each["status"].get("phase")
            if each["metadata"]["name"] == name and names[-1:] != [phase]:
                names.append(phase)
        return names

    async def restart(self) -> None:
        """Restart the agent; the containers run on."""
        await self.crash_agent()
        await self.boot()

    async def crash_agent(self) -> None:
        await self.fleet.stop()
        await self.informer.close()

    async def boot(self) -> None:
        self.fleet, self.informer = _fleet(self)
        self.informer.start()
        await self.informer.wait_synced()
        self.fleet.start()


def _fleet(nodes: Nodes) -> tuple[Fleet, Informer[Pod]]:
    sim = nodes.sim
    informer = Informer(
        nodes.client, kinds.PODS, clock=sim.clock, rand=sim.rand, indexes=POD_INDEXES
    )
    fleet = Fleet(
        nodes.client,
        [_member(nodes, each) for each in nodes.settings],
        informer,
        clock=sim.clock,
        rand=sim.rand,
        instruments=instruments(),
        record_event=lambda pod, kind, reason, note: nodes.events.append((kind, reason, note)),
        record_node_event=lambda name, *event: nodes.node_events.append(event),
        job_gates=nodes.ways.job_gates,
        force_eviction=nodes.ways.force_eviction,
    )
    return fleet, informer


def _member(nodes: Nodes, settings: NodeSettings) -> Member:
    runtime = nodes.runtimes[settings.name]
    usage = nodes.usage.setdefault(settings.name, CountedUsage(runtime, settings.capacity))
    return Member(
        settings,
        runtime,
        usage,
        eviction=nodes.ways.eviction,
        shutdown=nodes.ways.shutdown,
        static=StaticPods(nodes, nodes.sim.clock) if settings.name == "n0" else None,
    )


@asynccontextmanager
async def running(
    sim: Sim, count: int = 1, *, pods: str = "110", ways: Ways | None = None
) -> AsyncIterator[Nodes]:
    """Nodes n0, n1... that run; what happens to pods is in `history`."""
    async with api_server.serve(sim) as api:
        client = LocalClient(api, field_manager="agent")
        ways = ways or Ways()
        capacity = {"cpu": "8", "memory": "8Gi", "ephemeral-storage": "100Gi", "pods": pods}
        settings = [
            NodeSettings(f"n{n}", capacity=capacity, labels=ways.labels) for n in range(count)
        ]
        runtimes = {each.name: SimulatedRuntime(sim.clock) for each in settings}
        nodes = Nodes(sim, api, client, runtimes, settings, ways)
        watching = asyncio.ensure_future(_watch(nodes))
        await nodes.boot()
        await sim.clock.sleep(0.1)
        try:
            yield nodes
        finally:
            await nodes.crash_agent()
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


on_nodes = functools.partial(virtual, running)
"""Runs a test in virtual time on running nodes, which are the test's first parameter."""


async def _watch(nodes: Nodes) -> None:
    lines = nodes.api.watch(f"{PODS}?watch=true")
    try:
        async for chunk in lines:
            for line in filter(None, chunk.split(b"\n")):
                event = msgspec.json.decode(line)
                nodes.history.append({**event["object"], "event": event["type"]})
    finally:
        await lines.aclose()
