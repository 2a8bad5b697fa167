# SPDX-License-Identifier: Apache-2.0
"""`refloat bench nodes`: the embedded cluster with thousands of simulated nodes.

One `refloat up` has all of it: API server on disk, all controllers, all nodes
with their heartbeats and pods. CPU is all of that process's and does not
depend on what else the machine does; seconds by the clock do. Rates are per
second of CPU. The stock figure is a control plane of Kubernetes with
simulated kubelets on the same kind of machine.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from refloat.api import structs, times
from refloat.api.batch import Job
from refloat.api.coordination import NODE_NAMESPACE
from refloat.api.core import Node, Pod
from refloat.api.meta import Object
from refloat.app import control
from refloat.app.nodes import CAPACITY
from refloat.base.clock import RealClock
from refloat.base.rand import Rand
from refloat.bench import clients, jobs, processes
from refloat.bench.results import Row
from refloat.client import kinds
from refloat.client.http import HttpClient
from refloat.policy import demand as demands
from refloat.policy.cluster import Cluster

Progress = Callable[[str], None]

NODES = 5_000
PODS = 50_000

# The Job that a stock control plane takes 60 to 100 s for, at best.
JOB_PODS, JOB_NODES, STOCK_SECONDS = 1_000, 20, 60.0

# Pods of one Job; and those that are bound by themselves.
PODS_PER_JOB = 1_000
BOUND_PODS = 5_000

IDLE_SECONDS = 30.0
LOST_SHARE = 10
"""One node in so many is lost at once."""

# A beat comes every 10 s and up to 4 % more; a lease is good for 40 s. Whoever
# is silent for two beats has missed one.
LONGEST_SILENCE = 20.0

LOOK_SECONDS = 5.0
LONGEST_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many of everything."""

    nodes: int
    pods: int

    @property
    def lost(self) -> int:
        return max(1, self.nodes // LOST_SHARE)

    @property
    def bound(self) -> int:
        return min(self.pods, BOUND_PODS)


async def measure(progress: Progress, *, nodes: int = NODES, pods: int = PODS) -> list[Row]:
    sizes = Sizes(nodes, pods)
    rows = _decisions(sizes, progress)
    rows += await _binds(sizes, progress)
    rows += await _one_job(progress)
    return rows + await _whole(sizes, progress)


# -- the scheduler --------------------------------------------------------------------


def _decisions(sizes: Sizes, progress: Progress) -> list[Row]:
    """A place for each pod, one after the other, and nothing written."""
    progress(f"places for {sizes.bound} pods on {sizes.nodes} nodes")
    cluster = Cluster(Rand(1))
    for number in range(sizes.nodes):
        cluster.put_node(msgspec.convert(_node(number), Node))
    pods = [msgspec.convert(_pod(number), Pod) for number in range(sizes.bound)]
    known = demands.Demands()
    started = time.process_time()
    for pod in pods:
        wanted = known.of(pod)
        place = cluster.choose(wanted)
        assert place is not None
        cluster.put_pod(pod, place, wanted)
    spent = time.process_time() - started
    return [_row("scheduler: decisions", sizes.bound / spent, "/s", aim=5_000, more=True)]


async def _binds(sizes: Sizes, progress: Progress) -> list[Row]:
    """Pods that wait for a scheduler, until the last of them is bound."""
    progress(f"{sizes.bound} pods bound on {sizes.nodes} nodes")
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        data_dir = Path(folder) / "data"
        async with processes.server(data_dir), clients.connected(data_dir / "kubeconfig") as client:
            await clients.each(range(sizes.nodes), lambda n: client.create(kinds.NODES, _node(n)))
            await clients.each(
                range(sizes.bound),
                lambda n: client.create(kinds.PODS, _pod(n), namespace=jobs.NAMESPACE),
            )
        inside = ("--controllers", "scheduler")
        async with (
            processes.server(data_dir, *inside) as server,
            clients.connected(data_dir / "kubeconfig") as client,
        ):
            spent = await _until_bound(client, server, sizes.bound)
    return [_row("scheduler: binds", sizes.bound / spent, "/s", aim=400, more=True)]


async def _until_bound(client: HttpClient, server: processes.Process, count: int) -> float:
    """Seconds of CPU from the first bind to the last."""
    bound: dict[str, None] = {}
    first = server.cpu_seconds()
    watch = client.watch(kinds.PODS, namespace=jobs.NAMESPACE, initial_events=True)
    async for event in watch:
        pod = event.object
        if pod is None or not pod.spec.node_name:
            continue
        if not bound:
            first = server.cpu_seconds()
        bound[pod.metadata.name] = None
        if len(bound) == count:
            break
    await watch.aclose()
    return server.cpu_seconds() - first


def _node(number: int) -> Object:
    """A node that is ready, with no agent behind it."""
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
    async with _cluster(JOB_NODES) as (_, server, client):
        wanted = jobs.job("work", JOB_PODS, parallelism=JOB_PODS, managed_by=None)
        started, spent = time.monotonic(), server.cpu_seconds()
        await client.create(kinds.JOBS, wanted, namespace=jobs.NAMESPACE)
        await jobs.completed(client, "work")
        seconds, cpu = time.monotonic() - started, server.cpu_seconds() - spent
    named = f"{JOB_PODS:,} pods, {JOB_NODES} nodes"
    return [
        _row(f"{named}: makespan", seconds, "s", aim=10, stock=STOCK_SECONDS),
        _row(f"{named}: CPU", cpu, "s"),
    ]


# -- all of it ------------------------------------------------------------------------


async def _whole(sizes: Sizes, progress: Progress) -> list[Row]:
    progress(f"{sizes.nodes} nodes join")
    async with _cluster(sizes.nodes) as (data_dir, server, client):
        rows = [_row(f"{sizes.nodes:,} nodes: join, CPU", server.cpu_seconds(), "s")]
        rows += await _fill(sizes, server, client, progress)
        rows += await _idle(server, progress)
        return rows + await _loss(sizes, data_dir, server, client, progress)


async def _fill(
    sizes: Sizes, server: processes.Process, client: HttpClient, progress: Progress
) -> list[Row]:
    progress(f"{sizes.pods} pods start")
    spent = server.cpu_seconds()
    for first in range(0, sizes.pods, PODS_PER_JOB):
        count = min(PODS_PER_JOB, sizes.pods - first)
        wanted = jobs.job(f"j-{first}", count, parallelism=count, seconds=None, managed_by=None)
        await client.create(kinds.JOBS, wanted, namespace=jobs.NAMESPACE)
        await jobs.reached(client, f"j-{first}", partial(_are_ready, count))
    each = (server.cpu_seconds() - spent) / sizes.pods * 1000
    return [_row(f"{sizes.pods:,} pods: start, CPU each", each, "ms")]


def _are_ready(count: int, job: Job) -> bool:
    return job.status.ready == count


async def _idle(server: processes.Process, progress: Progress) -> list[Row]:
    progress(f"{IDLE_SECONDS:g} s of nothing but heartbeats")
    await asyncio.sleep(IDLE_SECONDS / 3)  # events that were told are still being written
    before = server.cpu_seconds()
    await asyncio.sleep(IDLE_SECONDS)
    share = (server.cpu_seconds() - before) / IDLE_SECONDS
    return [
        _row("idle: CPU of one core", share * 100, "%", aim=30),
        _row("memory", server.resident_bytes() / 1e6, "MB", aim=1_500),
    ]


async def _loss(
    sizes: Sizes, data_dir: Path, server: processes.Process, client: HttpClient, progress: Progress
) -> list[Row]:
    """Many nodes at once, until all their pods say that they are not ready."""
    progress(f"{sizes.lost} nodes are lost")
    lost = {f"node-{number}": None for number in range(sizes.lost)}
    spent = server.cpu_seconds()
    for name in lost:
        await asyncio.to_thread(control.ask, data_dir, {"do": "crash", "node": name})
    silence, missed = await _until_noticed(client, lost)
    named = f"{sizes.lost:,} nodes lost"
    return [
        _row(f"{named}: CPU", server.cpu_seconds() - spent, "s"),
        _row(f"{named}: silence", silence, "s", aim=LONGEST_SILENCE),
        _row(f"{named}: others missed", float(missed), "", aim=0),
    ]


async def _until_noticed(client: HttpClient, lost: dict[str, None]) -> tuple[float, int]:
    """The longest silence of the others meanwhile, and how many of them were called lost."""
    until = time.monotonic() + LONGEST_SECONDS
    silence = 0.0
    while time.monotonic() < until:
        silence = max(silence, await _longest_silence(client, lost))
        unknown = await _unknown(client)
        if all(name in unknown for name in lost) and not await _still_ready(client, lost):
            return silence, len(unknown.keys() - lost.keys())
        await asyncio.sleep(LOOK_SECONDS)
    raise RuntimeError(f"nodes that were lost were not noticed in {LONGEST_SECONDS:g} s")


async def _longest_silence(client: HttpClient, lost: dict[str, None]) -> float:
    renewed = [
        times.parse(lease.spec.renew_time)
        async for page in client.list(kinds.LEASES, namespace=NODE_NAMESPACE)
        for lease in page.items
        if lease.metadata.name not in lost and lease.spec.renew_time
    ]
    return (RealClock().now() - min(renewed)).total_seconds() if renewed else 0.0


async def _unknown(client: HttpClient) -> dict[str, None]:
    """The nodes that are called lost."""
    found: dict[str, None] = {}
    async for page in client.list(kinds.NODES):
        for node in page.items:
            ready = structs.find(node.status.conditions, "Ready")
            if ready is not None and ready.status == "Unknown":
                found[node.metadata.name] = None
    return found


async def _still_ready(client: HttpClient, lost: dict[str, None]) -> bool:
    """Whether a pod of those nodes says that it is ready."""
    async for page in client.list(kinds.PODS, namespace=jobs.NAMESPACE):
        for pod in page.items:
            if pod.spec.node_name in lost and structs.is_true(pod.status.conditions, "Ready"):
                return True
    return False


# -- how ------------------------------------------------------------------------------


def _row(
    what: str,
    value: float,
    unit: str,
    *,
    aim: float | None = None,
    stock: float | None = None,
    more: bool = False,
) -> Row:
    return Row(what, value, unit, stock=stock, aim=aim, smaller_is_better=not more)


@asynccontextmanager
async def _cluster(nodes: int) -> AsyncIterator[tuple[Path, processes.Running, HttpClient]]:
    """A whole cluster, once all of its nodes are ready."""
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        data_dir = Path(folder) / "data"
        async with (
            processes.server(data_dir, "--simulated-nodes", str(nodes)) as server,
            clients.connected(data_dir / "kubeconfig") as client,
        ):
            await until_ready(client, nodes)
            yield data_dir, server, client


async def until_ready(client: HttpClient, count: int) -> None:
    ready: dict[str, None] = {}
    watch = client.watch(kinds.NODES, initial_events=True)
    async for event in watch:
        node = event.object
        if node is not None and structs.is_true(node.status.conditions, "Ready"):
            ready[node.metadata.name] = None
        if len(ready) == count:
            break
    await watch.aclose()
