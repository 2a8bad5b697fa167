# SPDX-License-Identifier: Apache-2.0
"""`refloat bench job`: what the Job controller costs, and whether that grows.

The manager is a process of its own and reaches a `refloat up` with simulated
nodes over TLS, so that its CPU and memory are its own. CPU is all of the
process's, from the creation of a Job to its last counted pod. Each figure has
a server and a manager of its own. The stock figures are
kube-controller-manager's, measured on the same kind of machine with a real
API server.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from refloat.api.batch import PodFailurePolicy
from refloat.api.core import Pod
from refloat.bench import clients, jobs, processes
from refloat.bench.results import Row
from refloat.client import kinds
from refloat.client.http import HttpClient
from refloat.policy.pod_failure import Judge

Progress = Callable[[str], None]

PODS = 2_000
"""The pods of the largest Job; the other sizes follow from it."""

# The Job that kube-controller-manager was measured with.
STOCK_PODS = 2_000
PARALLELISM = 500

SMALL = 100
WRITERS = 32
PODS_PER_NODE = 100

IDLE_SECONDS = 5.0

# What KEP-3329 has its objective for.
QPS = 50
SYNC_PODS = 10

_DURATION = "job_controller_job_sync_duration_seconds"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything, for a largest Job of so many pods."""

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
    sizes = Sizes(pods)
    rows = await _one_job(sizes, progress)
    rows += await _flatness(sizes, progress)
    rows += _judged(sizes, progress)
    rows += await _failures(sizes, progress)
    rows += await _idle(sizes, progress)
    return rows + await _syncs(sizes, progress)


# -- what is measured ---------------------------------------------------------------


async def _one_job(sizes: Sizes, progress: Progress) -> list[Row]:
    """The Job that kube-controller-manager was measured with."""
    progress(f"a Job of {sizes.main} pods, {PARALLELISM} at once")
    async with _cluster(PARALLELISM) as (config, client), _managed(config) as manager:
        seconds, cpu = await _run(client, manager, pods=sizes.main)
        memory = manager.peak_bytes() / 1e6
    is_stock = sizes.main == STOCK_PODS
    named = f"{sizes.main:,} pods"
    return [
        _row(f"{named}: makespan", seconds, "s", stock=60 if is_stock else None),
        _row(f"{named}: CPU per pod", cpu / sizes.main * 1000, "ms", stock=2.6, aim=1.3),
        _row(f"{named}: memory", memory, "MB", stock=168 if is_stock else None, aim=84),
    ]


async def _flatness(sizes: Sizes, progress: Progress) -> list[Row]:
    """Few pods and many, and by index, to be held against each other."""
    rows = [_row(f"{SMALL} pods: CPU per pod", await _small(sizes, progress), "ms", aim=1.3)]
    # If the main Job was the largest, it has been measured already.
    modes = ("NonIndexed", "Indexed") if sizes.pods > sizes.main else ("Indexed",)
    for mode in modes:
        progress(f"a Job of {sizes.pods} pods, {mode}")
        async with _cluster(PARALLELISM) as (config, client), _managed(config) as manager:
            _, cpu = await _run(client, manager, pods=sizes.pods, mode=mode)
            memory = manager.peak_bytes() / 1e6
        named = f"{sizes.pods:,} {mode}"
        rows.append(_row(f"{named}: CPU per pod", cpu / sizes.pods * 1000, "ms", aim=1.3))
        rows.append(_row(f"{named}: memory", memory, "MB"))
    return rows


async def _small(sizes: Sizes, progress: Progress) -> float:
    """CPU per pod of small Jobs, one after the other; the first only opens the connections."""
    count = max(1, sizes.main // SMALL)
    progress(f"{count} Jobs of {SMALL} pods")
    async with _cluster(SMALL) as (config, client), _managed(config) as manager:
        await _run(client, manager, pods=SMALL, name="first")
        costs = [
            (await _run(client, manager, pods=SMALL, name=f"small-{number}"))[1]
            for number in range(count)
        ]
    return sum(costs) / len(costs) / SMALL * 1000


def _judged(sizes: Sizes, progress: Progress) -> list[Row]:
    """Failed pods before a policy of twenty rules, nothing else."""
    progress(f"{sizes.failed} failed pods judged")
    judge = Judge(msgspec.convert(jobs.policy(), PodFailurePolicy))
    status = jobs.failed_status()
    pods = [
        msgspec.convert({"metadata": {"name": f"pod-{n}"}, "status": status}, Pod)
        for n in range(sizes.failed)
    ]
    started = time.perf_counter()
    for pod in pods:
        judge.judge(pod)
    seconds = time.perf_counter() - started
    return [_row(f"{sizes.failed:,} pods judged", seconds, "s", aim=sizes.failed / 10_000)]


async def _failures(sizes: Sizes, progress: Progress) -> list[Row]:
    """Failures that a manager finds when it starts, until all of them are counted."""
    progress(f"{sizes.failed} failed pods")
    wanted = jobs.job(
        "failing",
        sizes.failed,
        parallelism=sizes.failed,
        podFailurePolicy=jobs.policy(),
        backoffLimit=2**31 - 1,
    )
    async with _cluster() as (config, client):
        owner = await client.create(kinds.JOBS, wanted, namespace=jobs.NAMESPACE)
        names = [f"failing-{number:05d}" for number in range(sizes.failed)]
        shares = [names[start::WRITERS] for start in range(WRITERS)]
        await asyncio.gather(*(jobs.add_failed_pods(client, owner, share) for share in shares))
        progress(f"{sizes.failed} failed pods counted")
        started = time.monotonic()
        async with _managed(config, settle=False) as manager:
            await jobs.reached(client, "failing", lambda job: job.status.failed == sizes.failed)
            seconds = time.monotonic() - started
            cpu = manager.cpu_seconds()
    named = f"{sizes.failed:,} failures"
    return [
        _row(f"{named}: counted", seconds, "s", aim=max(5, sizes.failed * 30 / 10_000)),
        _row(f"{named}: CPU each", cpu / sizes.failed * 1000, "ms"),
    ]


async def _idle(sizes: Sizes, progress: Progress) -> list[Row]:
    """Jobs whose pods just run, against none at all."""
    progress(f"{sizes.jobs} idle Jobs")
    async with _cluster(sizes.jobs) as (config, client), _managed(config) as manager:
        before = await _spent(manager)
        for number in range(sizes.jobs):
            wanted = jobs.job(f"idle-{number}", 1, parallelism=1, seconds=None)
            await client.create(kinds.JOBS, wanted, namespace=jobs.NAMESPACE)
        last = f"idle-{sizes.jobs - 1}"
        await jobs.reached(client, last, lambda job: job.status.ready == 1)
        await manager.settled()
        more = await _spent(manager) - before
    return [_row(f"{sizes.jobs:,} idle Jobs: CPU", max(0.0, more) * 1000, "ms/s", aim=5)]


async def _syncs(sizes: Sizes, progress: Progress) -> list[Row]:
    """How long syncs take at 50 requests a second, as KEP-3329 has its objective."""
    progress(f"{sizes.jobs} Jobs of {SYNC_PODS} pods at {QPS} requests a second")
    limits = ("--kube-api-qps", str(QPS), "--kube-api-burst", str(QPS))
    at_once = sizes.jobs * SYNC_PODS
    async with _cluster(at_once) as (config, client), _managed(config, *limits) as manager:
        names = [f"sync-{number}" for number in range(sizes.jobs)]
        for name in names:
            wanted = jobs.job(name, SYNC_PODS, parallelism=SYNC_PODS)
            await client.create(kinds.JOBS, wanted, namespace=jobs.NAMESPACE)
        for name in names:
            await jobs.completed(client, name)
        late = await _percentile(manager.metrics, 0.99)
    return [_row(f"{sizes.jobs:,} Jobs: sync, p99", late, "s", aim=15)]


# -- how ----------------------------------------------------------------------------


def _row(
    what: str, value: float, unit: str, *, stock: float | None = None, aim: float | None = None
) -> Row:
    return Row(what, value, unit, stock=stock, aim=aim, smaller_is_better=True)


@asynccontextmanager
async def _cluster(pods: int = 0) -> AsyncIterator[tuple[Path, HttpClient]]:
    """A server with simulated nodes for so many pods, if any, and a way to it."""
    nodes = str(pods // PODS_PER_NODE + 1)
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        data_dir = Path(folder) / "data"
        inside = ("--controllers", "scheduler", "--simulated-nodes", nodes)
        async with processes.server(data_dir, *(inside if pods else ())):
            config = data_dir / "kubeconfig"
            async with clients.connected(config) as client:
                yield config, client


@asynccontextmanager
async def _managed(
    config: Path, *more: str, settle: bool = True
) -> AsyncIterator[processes.Manager]:
    arguments = more or ("--kube-api-qps", "0")
    async with processes.manager(config, "--controllers", "job-controller", *arguments) as manager:
        if settle:
            await manager.settled()
        yield manager


async def _run(
    client: HttpClient,
    manager: processes.Process,
    *,
    pods: int,
    name: str = "work",
    mode: str = "NonIndexed",
) -> tuple[float, float]:
    """The seconds that a Job takes, and those of CPU that it takes of the manager."""
    wanted = jobs.job(name, pods, parallelism=min(pods, PARALLELISM), completionMode=mode)
    started, spent = time.monotonic(), manager.cpu_seconds()
    await client.create(kinds.JOBS, wanted, namespace=jobs.NAMESPACE)
    await jobs.completed(client, name)
    return time.monotonic() - started, manager.cpu_seconds() - spent


async def _spent(process: processes.Process) -> float:
    """CPU seconds per second."""
    before = process.cpu_seconds()
    await asyncio.sleep(IDLE_SECONDS)
    return (process.cpu_seconds() - before) / IDLE_SECONDS


async def _percentile(address: str, share: float) -> float:
    """Of all syncs that a manager has made."""
    async with aiohttp.ClientSession() as session, session.get(address) as answer:
        return quantile(await answer.text(), _DURATION, share)


def quantile(text: str, name: str, share: float) -> float:
    """A quantile of a histogram, over all its labels, between the bounds of its bucket."""
    counts: dict[float, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples if family.name == name else ():
            if sample.name == f"{name}_bucket":
                bound = float(sample.labels["le"])
                counts[bound] = counts.get(bound, 0.0) + sample.value
    wanted = share * counts.get(float("inf"), 0.0)
    low, below = 0.0, 0.0
    for bound, count in sorted(counts.items()):
        if count >= wanted and count > below:
            if bound == float("inf"):
                return low
            return low + (bound - low) * (wanted - below) / (count - below)
        low, below = bound, count
    raise ValueError(f"nothing is counted in {name}")
