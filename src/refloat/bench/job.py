# SPDX-License-Identifier: Apache-2.0
"""`refloat bench job`: the cost of the Job controller, for few pods and for many.

`refloat manager` runs beside a `refloat up` with simulated nodes and uses TLS, so
that the figures are those of the manager alone. CPU is that of the whole process,
from the creation of a Job to the last counted pod. Each figure has a new server
and a new manager. The stock figures are those of kube-controller-manager with a
real API server on the same kind of machine.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from refloat.api.batch import PodFailurePolicy
from refloat.api.core import Pod
from refloat.bench import clients, job_load, processes
from refloat.bench.results import Progress, Row, cost
from refloat.client import kinds
from refloat.client.http import HttpClient
from refloat.policy.job import pod_failure

PODS = 2_000
"""The pods of the largest Job; the other sizes follow from this number."""

# The size of the Job of the stock figures.
STOCK_PODS = 2_000
PARALLELISM = 500

SMALL = 100
PODS_PER_NODE = 100

IDLE_SECONDS = 5.0

# The load of the service level objective in KEP-3329.
QPS = 50
SYNC_PODS = 10

_DURATION = "job_controller_job_sync_duration_seconds"


@dataclass(frozen=True, slots=True)
class JobSizes:
    """The sizes of all measurements, for a largest Job of so many pods."""

    pods: int

    @property
    def main(self) -> int:
        return min(self.pods, STOCK_PODS)

    @property
    def failed(self) -> int:
        return max(1, self.pods // 2)

    @property
    def jobs(self) -> int:
        return max(1, self.pods // 20)


async def measure(progress: Progress, pods: int = PODS) -> list[Row]:
    sizes = JobSizes(pods)
    rows = await _one_job(sizes, progress)
    rows += [await _small_jobs(sizes, progress)]
    rows += await _large_jobs(sizes, progress)
    rows += _matches(sizes, progress)
    rows += await _failures(sizes, progress)
    rows += await _idle(sizes, progress)
    return rows + await _syncs(sizes, progress)


# -- the measurements ---------------------------------------------------------------


async def _one_job(sizes: JobSizes, progress: Progress) -> list[Row]:
    """The Job of the stock figures."""
    progress(f"a Job of {sizes.main} pods, {PARALLELISM} at once")
    async with _managed_cluster(PARALLELISM) as (client, manager):
        seconds, cpu = await _run(client, manager, pods=sizes.main)
        memory = manager.peak_bytes() / 1e6
    is_stock = sizes.main == STOCK_PODS
    label = f"{sizes.main:,} pods"
    return [
        cost(f"{label}: makespan", seconds, "s", stock=60 if is_stock else None),
        cost(f"{label}: CPU per pod", cpu / sizes.main * 1000, "ms", stock=2.6, aim=1.3),
        cost(f"{label}: memory", memory, "MB", stock=168 if is_stock else None, aim=84),
    ]


async def _large_jobs(sizes: JobSizes, progress: Progress) -> list[Row]:
    rows = []
    # If the main Job was the largest, it has been measured already.
    modes = ("NonIndexed", "Indexed") if sizes.pods > sizes.main else ("Indexed",)
    for mode in modes:
        progress(f"a Job of {sizes.pods} pods, {mode}")
        async with _managed_cluster(PARALLELISM) as (client, manager):
            _, cpu = await _run(client, manager, pods=sizes.pods, mode=mode)
            memory = manager.peak_bytes() / 1e6
        label = f"{sizes.pods:,} {mode}"
        rows.append(cost(f"{label}: CPU per pod", cpu / sizes.pods * 1000, "ms", aim=1.3))
        rows.append(cost(f"{label}: memory", memory, "MB"))
    return rows


async def _small_jobs(sizes: JobSizes, progress: Progress) -> Row:
    """Small Jobs, one after the other; the first only opens the connections."""
    count = max(1, sizes.main // SMALL)
    progress(f"{count} Jobs of {SMALL} pods")
    async with _managed_cluster(SMALL) as (client, manager):
        await _run(client, manager, pods=SMALL, name="first")
        cpus = [
            (await _run(client, manager, pods=SMALL, name=f"small-{number}"))[1]
            for number in range(count)
        ]
    return cost(f"{SMALL} pods: CPU per pod", sum(cpus) / count / SMALL * 1000, "ms", aim=1.3)


def _matches(sizes: JobSizes, progress: Progress) -> list[Row]:
    """Failed pods and a policy of twenty rules, nothing else."""
    progress(f"{sizes.failed} failed pods judged")
    matcher = pod_failure.matcher(msgspec.convert(job_load.policy(), PodFailurePolicy))
    status = job_load.failed_status()
    pods = [
        msgspec.convert({"metadata": {"name": f"pod-{n}"}, "status": status}, Pod)
        for n in range(sizes.failed)
    ]
    started = time.perf_counter()
    for pod in pods:
        matcher.match(pod)
    seconds = time.perf_counter() - started
    return [cost(f"{sizes.failed:,} pods judged", seconds, "s", aim=sizes.failed / 10_000)]


async def _failures(sizes: JobSizes, progress: Progress) -> list[Row]:
    """Failed pods that exist when a manager starts, until the manager has counted them."""
    progress(f"{sizes.failed} failed pods")
    body = job_load.job(
        "failing",
        sizes.failed,
        parallelism=sizes.failed,
        podFailurePolicy=job_load.policy(),
        backoffLimit=2**31 - 1,
    )
    async with clients.up() as cluster:
        owner = await cluster.client.create(kinds.JOBS, body, namespace=job_load.NAMESPACE)
        names = [f"failing-{number:05d}" for number in range(sizes.failed)]
        await clients.for_each(names, job_load.failed_pods(cluster.client, owner))
        progress(f"{sizes.failed} failed pods counted")
        started = time.monotonic()
        async with _manager(cluster.kubeconfig) as manager:
            await job_load.reached(
                cluster.client, "failing", lambda job: job.status.failed == sizes.failed
            )
            seconds = time.monotonic() - started
            cpu = manager.cpu_seconds()
    label = f"{sizes.failed:,} failures"
    return [
        cost(f"{label}: counted", seconds, "s", aim=max(5, sizes.failed * 30 / 10_000)),
        cost(f"{label}: CPU each", cpu / sizes.failed * 1000, "ms"),
    ]


async def _idle(sizes: JobSizes, progress: Progress) -> list[Row]:
    """The CPU for Jobs whose pods just run, above the CPU without Jobs."""
    progress(f"{sizes.jobs} idle Jobs")
    async with _managed_cluster(sizes.jobs) as (client, manager):
        before = await _cpu_share(manager)
        for number in range(sizes.jobs):
            body = job_load.job(f"idle-{number}", 1, parallelism=1, seconds=None)
            await client.create(kinds.JOBS, body, namespace=job_load.NAMESPACE)
        await job_load.all_ready(client, f"idle-{sizes.jobs - 1}", 1)
        await manager.settled()
        more = await _cpu_share(manager) - before
    return [cost(f"{sizes.jobs:,} idle Jobs: CPU", max(0.0, more) * 1000, "ms/s", aim=5)]


async def _syncs(sizes: JobSizes, progress: Progress) -> list[Row]:
    """The duration of syncs at 50 requests a second, for the objective of KEP-3329."""
    progress(f"{sizes.jobs} Jobs of {SYNC_PODS} pods at {QPS} requests a second")
    limits = ("--kube-api-qps", str(QPS), "--kube-api-burst", str(QPS))
    async with _managed_cluster(sizes.jobs * SYNC_PODS, *limits) as (client, manager):
        names = [f"sync-{number}" for number in range(sizes.jobs)]
        for name in names:
            body = job_load.job(name, SYNC_PODS, parallelism=SYNC_PODS)
            await client.create(kinds.JOBS, body, namespace=job_load.NAMESPACE)
        for name in names:
            await job_load.completed(client, name)
        p99 = quantile(await clients.text(manager.metrics), _DURATION, 0.99)
    return [cost(f"{sizes.jobs:,} Jobs: sync, p99", p99, "s", aim=15)]


# -- the processes ------------------------------------------------------------------


@asynccontextmanager
async def _managed_cluster(
    pods: int, *limits: str
) -> AsyncIterator[tuple[HttpClient, processes.ManagerProcess]]:
    """A server with simulated nodes for so many pods, and an idle manager."""
    nodes = str(pods // PODS_PER_NODE + 1)
    flags = ("--controllers", "scheduler", "--simulated-nodes", nodes)
    async with clients.up(*flags) as cluster, _manager(cluster.kubeconfig, *limits) as manager:
        await manager.settled()
        yield cluster.client, manager


def _manager(config: Path, *limits: str) -> AbstractAsyncContextManager[processes.ManagerProcess]:
    limits = limits or ("--kube-api-qps", "0")
    return processes.manager(config, "--controllers", "job-controller", *limits)


async def _run(
    client: HttpClient,
    manager: processes.ManagerProcess,
    *,
    pods: int,
    name: str = "work",
    mode: str = "NonIndexed",
) -> tuple[float, float]:
    body = job_load.job(name, pods, parallelism=min(pods, PARALLELISM), completionMode=mode)
    return await job_load.run_job(client, manager, body)


async def _cpu_share(process: processes.MeasuredProcess) -> float:
    """CPU seconds per second."""
    before = process.cpu_seconds()
    await asyncio.sleep(IDLE_SECONDS)
    return (process.cpu_seconds() - before) / IDLE_SECONDS


def quantile(text: str, name: str, share: float) -> float:
    """A quantile of a histogram over all labels, interpolated within the bucket."""
    counts: dict[float, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples if family.name == name else ():
            if sample.name == f"{name}_bucket":
                bound = float(sample.labels["le"])
                counts[bound] = counts.get(bound, 0.0) + sample.value
    rank = share * counts.get(float("inf"), 0.0)
    low, below = 0.0, 0.0
    for bound, count in sorted(counts.items()):
        if count >= rank and count > below:
            if bound == float("inf"):
                return low
            return low + (bound - low) * (rank - below) / (count - below)
        low, below = bound, count
    raise ValueError(f"nothing is counted in {name}")
