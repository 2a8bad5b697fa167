# SPDX-License-Identifier: Apache-2.0
"""`refloat bench nodes`: the embedded cluster with thousands of simulated nodes.

One `refloat up` runs everything: the API server on disk, all controllers, and all
nodes with their heartbeats and pods. CPU is that of this process and does not
depend on other load of the machine; seconds by the clock do. Rates are per second
of CPU. The stock figure is that of a Kubernetes control plane with simulated
kubelets on the same kind of machine.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from refloat.api import structs, times
from refloat.api.coordination import NODE_NAMESPACE
from refloat.api.core import Node, Pod
from refloat.api.meta import Object
from refloat.app import control_socket
from refloat.app.simulated_nodes import CAPACITY
from refloat.base.clock import RealClock
from refloat.base.rand import Rand
from refloat.bench import clients, job_load, processes
from refloat.bench.results import Progress, Row, cost
from refloat.client import kinds
from refloat.controllers.scheduler.scheduler_cache import SchedulerCache
from refloat.policy.scheduling import demand as demands

NODES = 5_000
PODS = 50_000

# A stock control plane takes 60 to 100 s for this Job, at best.
JOB_PODS, JOB_NODES, STOCK_SECONDS = 1_000, 20, 60.0

# Pods of one Job, and pods of the measurements of the scheduler.
PODS_PER_JOB = 1_000
BOUND_PODS = 5_000

IDLE_SECONDS = 30.0
LOST_SHARE = 10
"""One node in so many is lost."""

# A heartbeat comes every 10 s, plus up to 4 %, and a lease is good for 40 s. A node
# that is silent for two heartbeats has missed one.
LONGEST_SILENCE = 20.0

POLL_SECONDS = 5.0
LONGEST_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class NodeSizes:
    """The sizes of all measurements."""

    nodes: int
    pods: int

    @property
    def lost(self) -> int:
        return max(1, self.nodes // LOST_SHARE)

    @property
    def bound(self) -> int:
        return min(self.pods, BOUND_PODS)


async def measure(progress: Progress, *, nodes: int = NODES, pods: int = PODS) -> list[Row]:
    sizes = NodeSizes(nodes, pods)
    rows = decisions(sizes, progress)
    rows += await _binds(sizes, progress)
    rows += await _one_job(progress)
    progress(f"{sizes.nodes} nodes join")
    async with _cluster(sizes.nodes) as cluster:
        rows.append(cost(f"{sizes.nodes:,} nodes: join, CPU", cluster.server.cpu_seconds(), "s"))
        rows += await _fill(sizes, cluster, progress)
        rows += await _idle(cluster.server, progress)
        return rows + await _loss(sizes, cluster, progress)


# -- the scheduler --------------------------------------------------------------------


def decisions(sizes: NodeSizes, progress: Progress) -> list[Row]:
    """Choose a node for each pod, one after the other, without a write."""
    progress(f"places for {sizes.bound} pods on {sizes.nodes} nodes")
    cluster = SchedulerCache(Rand(1))
    for number in range(sizes.nodes):
        cluster.put_node(msgspec.convert(_node(number), Node))
    pods = [msgspec.convert(_pod(number), Pod) for number in range(sizes.bound)]
    cache = demands.Demands()
    started = time.process_time()
    for pod in pods:
        demand = cache.of(pod)
        node = cluster.choose(demand)
        assert node is not None
        cluster.put_pod(pod, node, demand)
    cpu = time.process_time() - started
    return [Row("scheduler: decisions", sizes.bound / cpu, "/s", aim=5_000)]


async def _binds(sizes: NodeSizes, progress: Progress) -> list[Row]:
    """Bind pods that wait for a scheduler; CPU from the first bind to the last."""
    progress(f"{sizes.bound} pods bound on {sizes.nodes} nodes")
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        data_dir = Path(folder) / "data"
        config = data_dir / "kubeconfig"
        async with processes.server(data_dir), clients.connected(config) as client:
            await clients.for_each(
                range(sizes.nodes), lambda n: client.create(kinds.NODES, _node(n))
            )
            await clients.for_each(
                range(sizes.bound),
                lambda n: client.create(kinds.PODS, _pod(n), namespace=job_load.NAMESPACE),
            )
        async with (
            processes.server(data_dir, "--controllers", "scheduler") as server,
            clients.connected(config) as client,
        ):
            cpus = await clients.watch_until(
                client,
                kinds.PODS,
                sizes.bound,
                lambda pod: server.cpu_seconds() if pod.spec.node_name else None,
                namespace=job_load.NAMESPACE,
            )
            cpu = server.cpu_seconds() - min(cpus.values())
    return [Row("scheduler: binds", sizes.bound / max(cpu, processes.TICK_SECONDS), "/s", aim=400)]


def _node(number: int) -> Object:
    """A node that is Ready, without an agent."""
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"capacity": CAPACITY, "allocatable": CAPACITY, "conditions": [ready]}
    return {"metadata": {"name": f"bench-{number}"}, "status": status}


def _pod(number: int) -> Object:
    resources = {"requests": {"cpu": "50m", "memory": "64Mi"}}
    container = {"name": "main", "image": "registry.example.com/work:v1", "resources": resources}
    name = f"bench-{number}"
    return {"metadata": {"name": name, "uid": name}, "spec": {"containers": [container]}}


# -- a Job ----------------------------------------------------------------------------


async def _one_job(progress: Progress) -> list[Row]:
    progress(f"a Job of {JOB_PODS} pods on {JOB_NODES} nodes")
    async with _cluster(JOB_NODES) as cluster:
        body = job_load.job("work", JOB_PODS, parallelism=JOB_PODS, managed_by=None)
        seconds, cpu = await job_load.run_job(cluster.client, cluster.server, body)
    label = f"{JOB_PODS:,} pods, {JOB_NODES} nodes"
    return [
        cost(f"{label}: makespan", seconds, "s", aim=10, stock=STOCK_SECONDS),
        cost(f"{label}: CPU", cpu, "s"),
    ]


# -- the whole cluster ----------------------------------------------------------------


async def _fill(sizes: NodeSizes, cluster: clients.UpCluster, progress: Progress) -> list[Row]:
    progress(f"{sizes.pods} pods start")
    before = cluster.server.cpu_seconds()
    for first in range(0, sizes.pods, PODS_PER_JOB):
        name, count = f"j-{first}", min(PODS_PER_JOB, sizes.pods - first)
        body = job_load.job(name, count, parallelism=count, seconds=None, managed_by=None)
        await cluster.client.create(kinds.JOBS, body, namespace=job_load.NAMESPACE)
        await job_load.all_ready(cluster.client, name, count)
    cpu = (cluster.server.cpu_seconds() - before) / sizes.pods * 1000
    return [cost(f"{sizes.pods:,} pods: start, CPU each", cpu, "ms")]


async def _idle(server: processes.MeasuredProcess, progress: Progress) -> list[Row]:
    progress(f"{IDLE_SECONDS:g} s of heartbeats alone")
    await asyncio.sleep(IDLE_SECONDS / 3)  # until the last events are written
    before = server.cpu_seconds()
    await asyncio.sleep(IDLE_SECONDS)
    share = (server.cpu_seconds() - before) / IDLE_SECONDS
    return [
        cost("idle: CPU of one core", share * 100, "%", aim=30),
        cost("memory", server.resident_bytes() / 1e6, "MB", aim=1_500),
    ]


async def _loss(sizes: NodeSizes, cluster: clients.UpCluster, progress: Progress) -> list[Row]:
    """Crash many nodes at once, and wait until all their pods are not ready.

    Meanwhile the other nodes must not fall silent for long, and none may become Unknown.
    """
    progress(f"{sizes.lost} nodes are lost")
    client, server = cluster.client, cluster.server
    lost = {f"node-{number}": None for number in range(sizes.lost)}
    before = server.cpu_seconds()
    for name in lost:
        request = {"do": "crash", "node": name}
        await asyncio.to_thread(control_socket.ask, cluster.data_dir, request)
    until, silence = time.monotonic() + LONGEST_SECONDS, 0.0
    while True:
        renewals = [
            times.parse(lease.spec.renew_time)
            async for lease in clients.objects(client, kinds.LEASES, namespace=NODE_NAMESPACE)
            if lease.metadata.name not in lost and lease.spec.renew_time
        ]
        if renewals:
            silence = max(silence, (RealClock().now() - min(renewals)).total_seconds())
        unknown = {
            node.metadata.name: None
            async for node in clients.objects(client, kinds.NODES)
            if (ready := structs.find(node.status.conditions, "Ready")) is not None
            and ready.status == "Unknown"
        }
        ready_pods = [
            pod
            async for pod in clients.objects(client, kinds.PODS, namespace=job_load.NAMESPACE)
            if pod.spec.node_name in lost and structs.is_true(pod.status.conditions, "Ready")
        ]
        if lost.keys() <= unknown.keys() and not ready_pods:
            break
        if time.monotonic() > until:
            raise RuntimeError(f"nodes that were lost were not noticed in {LONGEST_SECONDS:g} s")
        await asyncio.sleep(POLL_SECONDS)
    label, others = f"{sizes.lost:,} nodes lost", len(unknown.keys() - lost.keys())
    return [
        cost(f"{label}: CPU", server.cpu_seconds() - before, "s"),
        cost(f"{label}: silence", silence, "s", aim=LONGEST_SILENCE),
        cost(f"{label}: others missed", float(others), "", aim=0),
    ]


@asynccontextmanager
async def _cluster(nodes: int) -> AsyncIterator[clients.UpCluster]:
    """A whole cluster with all nodes Ready."""
    async with clients.up("--simulated-nodes", str(nodes)) as cluster:
        await clients.nodes_ready(cluster.client, nodes)
        yield cluster
