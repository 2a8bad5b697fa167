# SPDX-License-Identifier: Apache-2.0
"""`refloat bench zombies`: many pods at once that hang on a lost node.

On Kubernetes, where a control plane has been built, `refloat manager` frees
pods that opted in by annotation, at Kubernetes' waits, and may ask the API
server as often as it likes. The stock figures are Kueue's for the same on the
same kind of machine. CPU is all of the process's, from the deletion of the
pods until the last event is told; seconds count from when the last pod may be
freed to when a watch shows that it is.

On the embedded cluster a node with all pods of some Jobs falls silent, and
the cluster does all the rest: taint, evict, free, replace. Then there are
pods that are only reported, and pods that a budget holds.
"""

import json
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from refloat.api.batch import Job
from refloat.api.meta import Object
from refloat.app import timings
from refloat.base.errors import UsageError
from refloat.bench import clients, control_plane, jobs, nodes, processes, stuck
from refloat.bench.results import Row
from refloat.client import kinds
from refloat.client.http import HttpClient
from refloat.controllers.failure_recovery import events
from refloat.policy import node_taints, zombie

Progress = Callable[[str], None]

PODS = 2_000

# What Kueue takes for as many, with a stock API server.
STOCK_PODS, STOCK_SECONDS, STOCK_CPU_MS, STOCK_MB = 2_000, 19.8, 2.95, 116.0
HALF = 0.5

JOBS = 20
PODS_PER_NODE = 100
FREED_SECONDS = 10.0

REPORTED_PER_POD = 5
"""How many pods are reported, for each that is freed."""

# A budget of a fifth of the pods, so that there are five windows.
WINDOWS, WINDOW_SECONDS = 5, 5
LATE = 1.05
"""How much later than on the dot the last pod of a budget may come free."""

_GATE = ("--feature-gates", "FailureRecoveryPolicy=true")
_UNLIMITED = ("--kube-api-qps", "0")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many of everything, for so many zombies."""

    pods: int

    @property
    def per_job(self) -> int:
        return max(1, self.pods // JOBS)

    @property
    def in_jobs(self) -> int:
        return self.per_job * JOBS

    @property
    def nodes(self) -> int:
        """For the replacements."""
        return self.in_jobs // PODS_PER_NODE + 2

    @property
    def reported(self) -> int:
        return self.pods * REPORTED_PER_POD

    @property
    def budget(self) -> int:
        return max(1, self.pods // WINDOWS)

    @property
    def budgeted(self) -> int:
        return self.budget * WINDOWS


async def measure(progress: Progress, pods: int = PODS) -> list[Row]:
    sizes = Sizes(pods)
    rows = await _kubernetes(sizes, progress)
    rows += await _embedded(sizes, progress)
    rows += await _reported(sizes, progress)
    return rows + await _budget(sizes, progress)


# -- on Kubernetes --------------------------------------------------------------------


async def _kubernetes(sizes: Sizes, progress: Progress) -> list[Row]:
    """Nobody but the manager acts: the pods are what a node and its eviction left behind."""
    try:
        binaries = control_plane.find_binaries()
    except UsageError as error:
        progress(f"nothing on Kubernetes: {error}")
        return []
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        settings = control_plane.Settings(binaries, Path(folder), api_only=True)
        with control_plane.running(settings, progress) as plane:
            async with clients.connected(plane.kubeconfig) as client:
                return await _managed(plane.kubeconfig, client, sizes, progress)


async def _managed(config: Path, client: HttpClient, sizes: Sizes, progress: Progress) -> list[Row]:
    progress(f"{sizes.pods} pods on a lost node of Kubernetes")
    names = await stuck.lose(client, sizes.pods)
    async with processes.manager(config, *_GATE, *_UNLIMITED) as manager:
        await manager.settled()
        spent = manager.cpu_seconds()
        await stuck.delete(client, names)
        due = await stuck.last_threshold(client, timings.KUBERNETES.recovery_period)
        progress(f"{sizes.pods} pods are freed")
        moments = await stuck.freed(client, sizes.pods)
        await stuck.told(client, zombie.REASON, sizes.pods)
        each = (manager.cpu_seconds() - spent) / sizes.pods * 1000
        memory = manager.peak_bytes() / 1e6
    return [
        _stock("Kubernetes: last freed", moments[-1] - due.timestamp(), "s", sizes, STOCK_SECONDS),
        _stock("Kubernetes: CPU each", each, "ms", sizes, STOCK_CPU_MS),
        _stock("Kubernetes: memory", memory, "MB", sizes, STOCK_MB),
    ]


def _stock(what: str, value: float, unit: str, sizes: Sizes, stock: float) -> Row:
    """The aim is half of what Kueue takes; it was measured with one number of pods only."""
    if sizes.pods != STOCK_PODS:
        return _row(what, value, unit)
    return Row(what, value, unit, stock=stock, aim=stock * HALF, smaller_is_better=True)


# -- Jobs on the embedded cluster -----------------------------------------------------


async def _embedded(sizes: Sizes, progress: Progress) -> list[Row]:
    progress(f"{JOBS} Jobs of {sizes.per_job} pods on one node")
    async with _cluster("--simulated-nodes", str(sizes.nodes)) as (server, client):
        await nodes.until_ready(client, sizes.nodes)
        spares = [f"node-{number}" for number in range(sizes.nodes)]
        await clients.each(spares, partial(_cordon, client, cordoned=True))
        async with stuck.beating(client):
            await client.create(kinds.NODES, stuck.node(sizes.in_jobs, unreachable=False))
            await _fill(client, sizes)
        progress(f"{sizes.in_jobs} pods are lost, freed and replaced")
        spent = server.cpu_seconds()
        await clients.each(spares, partial(_cordon, client, cordoned=False))
        moments = await stuck.freed(client, sizes.in_jobs)
        due = await stuck.last_threshold(client, timings.FAST.recovery_period)
        for name in _names():
            await jobs.reached(client, name, partial(_goes_on, sizes.per_job))
        replaced = time.time()
        cpu = server.cpu_seconds() - spent
    aim = FREED_SECONDS if sizes.pods <= PODS else None
    named = f"{sizes.in_jobs:,} in Jobs"
    return [
        _row(f"{named}: last freed", moments[-1] - due.timestamp(), "s", aim=aim),
        _row(f"{named}: replaced", replaced - due.timestamp(), "s", aim=aim),
        _row(f"{named}: CPU each", cpu / sizes.in_jobs * 1000, "ms"),
    ]


def _names() -> list[str]:
    return [f"job-{number}" for number in range(JOBS)]


async def _cordon(client: HttpClient, name: str, *, cordoned: bool) -> None:
    change = {"spec": {"unschedulable": cordoned or None}}
    await client.patch(kinds.NODES, name, change)


async def _fill(client: HttpClient, sizes: Sizes) -> None:
    """The node is full of pods that run."""
    for name in _names():
        await client.create(kinds.JOBS, _job(name, sizes.per_job), namespace=jobs.NAMESPACE)
    running: dict[str, None] = {}
    watch = client.watch(kinds.PODS, namespace=jobs.NAMESPACE, initial_events=True)
    async for event in watch:
        pod = event.object
        if pod is None or not pod.spec.node_name or pod.metadata.name in running:
            continue
        running[pod.metadata.name] = None
        if len(running) == sizes.in_jobs:
            break
    await watch.aclose()
    await clients.each(running, partial(stuck.run, client))


def _job(name: str, pods: int) -> Object:
    """It may lose its pods to a lost node as often as that happens."""
    disrupted = [{"type": "DisruptionTarget", "status": "True"}]
    made = jobs.job(
        name,
        pods,
        parallelism=pods,
        seconds=None,
        managed_by=None,
        completionMode="Indexed",
        # Else all failures of a Job together make it wait, for ten minutes in Kubernetes.
        backoffLimitPerIndex=1,
        podReplacementPolicy="Failed",
        podFailurePolicy={"rules": [{"action": "Ignore", "onPodConditions": disrupted}]},
    )
    template = made["spec"]["template"]
    template["metadata"]["annotations"] |= stuck.ANNOTATION
    at_once = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}
    template["spec"]["tolerations"] = [
        {"key": key, **at_once} for key in (node_taints.UNREACHABLE, node_taints.NOT_READY)
    ]
    template["spec"]["terminationGracePeriodSeconds"] = 1
    return made


def _goes_on(pods: int, job: Job) -> bool:
    return job.status.ready == pods


# -- reports and budgets --------------------------------------------------------------


async def _reported(sizes: Sizes, progress: Progress) -> list[Row]:
    progress(f"{sizes.reported} pods on a lost node, only to be reported")
    async with _alone({"mode": "Report"}) as (server, client):
        names = await stuck.lose(client, sizes.reported)
        await server.settled()
        spent = server.cpu_seconds()
        await stuck.delete(client, names)
        due = await stuck.last_threshold(client, timings.FAST.recovery_period)
        await stuck.told(client, events.WOULD, sizes.reported)
        seconds = time.time() - due.timestamp()
        cpu = server.cpu_seconds() - spent
        pages = client.list(kinds.PODS, namespace=jobs.NAMESPACE, selector=stuck.FAILED)
        touched = sum([len(page.items) async for page in pages])
    named = f"{sizes.reported:,} reported"
    return [
        _row(f"{named}: last told", seconds, "s"),
        _row(f"{named}: CPU each", cpu / sizes.reported * 1000, "ms"),
        _row(f"{named}: touched", float(touched), "", aim=0),
    ]


async def _budget(sizes: Sizes, progress: Progress) -> list[Row]:
    """From the end of the first window to the last pod: all wait for the budget alone by then.

    When each was freed is what its event says: a watch shows some later than others.
    """
    progress(f"{sizes.budgeted} pods, {sizes.budget} in {WINDOW_SECONDS} s")
    budget = {"maxPods": sizes.budget, "window": f"{WINDOW_SECONDS}s"}
    async with _alone({"budget": budget}) as (_, client):
        await stuck.delete(client, await stuck.lose(client, sizes.budgeted))
        await stuck.freed(client, sizes.budgeted)
        moments = await stuck.told(client, zombie.REASON, sizes.budgeted)
    lasts = (WINDOWS - 1) * WINDOW_SECONDS
    named = f"{sizes.budget} in {WINDOW_SECONDS} s"
    most = stuck.most_within(moments, WINDOW_SECONDS)
    return [
        _row(f"{named}: most at once", float(most), "", aim=sizes.budget),
        _row(
            f"{named}: last freed", moments[-1] - moments[sizes.budget - 1], "s", aim=lasts * LATE
        ),
    ]


# -- how ------------------------------------------------------------------------------


def _row(what: str, value: float, unit: str, *, aim: float | None = None) -> Row:
    return Row(what, value, unit, aim=aim, smaller_is_better=True)


@asynccontextmanager
async def _cluster(*more: str) -> AsyncIterator[tuple[processes.Running, HttpClient]]:
    """An embedded cluster with the short waits, and the gate on."""
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        data_dir = Path(folder) / "data"
        async with (
            processes.server(data_dir, "--fast", *_GATE, *more) as server,
            clients.connected(data_dir / "kubeconfig") as client,
        ):
            yield server, client


@asynccontextmanager
async def _alone(policy: Object) -> AsyncIterator[tuple[processes.Running, HttpClient]]:
    """Failure recovery by this policy, and no other controller."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        head = {"apiVersion": "config.refloat.dev/v1alpha1", "kind": "Configuration"}
        json.dump({**head, "failureRecoveryPolicy": policy}, file)
        file.flush()
        inside = ("--controllers", "failure-recovery-controller", "--nodes", "0")
        async with _cluster("--config", file.name, *inside) as both:
            yield both
