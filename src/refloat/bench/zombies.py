# SPDX-License-Identifier: Apache-2.0
"""`refloat bench zombies`: many pods at once that hang on a lost node.

On Kubernetes, if a control plane has been built, `refloat manager` frees pods
that opted in by annotation, with the waits of Kubernetes and without a rate limit.
The stock figures are Kueue's on the same kind of machine. CPU is that of the whole
process, from the deletion of the pods to the last event. Seconds count from the
time at which the last pod may be freed until a watch shows that the pod is Failed.

On the embedded cluster a node with all pods of some Jobs falls silent, and the
cluster does the rest: taint, evict, free, replace. Two more measurements have pods
that Refloat only reports, and pods under a budget.
"""

import contextlib
import json
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from refloat.api.meta import Object
from refloat.app import timings
from refloat.base.errors import UsageError
from refloat.bench import clients, control_plane, job_load, processes, stuck_pods
from refloat.bench.results import Progress, Row, cost
from refloat.client import kinds
from refloat.client.http import HttpClient
from refloat.controllers.failure_recovery import events
from refloat.policy.node import node_taints
from refloat.policy.recovery import zombie

PODS = 2_000

# The figures of Kueue for so many pods, with a stock API server.
STOCK_PODS, STOCK_SECONDS, STOCK_CPU_MS, STOCK_MB = 2_000, 19.8, 2.95, 116.0
HALF = 0.5

JOBS = 20
JOB_NAMES = [f"job-{number}" for number in range(JOBS)]
PODS_PER_NODE = 100
FREED_SECONDS = 10.0

REPORTED_PER_POD = 5
"""Pods of the report mode for each pod that is freed."""

# The budget is a fifth of the pods, which makes five windows.
WINDOWS, WINDOW_SECONDS = 5, 5
LATE = 1.05
"""The factor by which the last pod of a budget may be late."""

_GATE = ("--feature-gates", "FailureRecoveryPolicy=true")
_UNLIMITED = ("--kube-api-qps", "0")


@dataclass(frozen=True, slots=True)
class ZombieSizes:
    """The sizes of all measurements, for so many zombies."""

    pods: int

    @property
    def per_job(self) -> int:
        return max(1, self.pods // JOBS)

    @property
    def in_jobs(self) -> int:
        return self.per_job * JOBS

    @property
    def nodes(self) -> int:
        """Nodes for the replacements."""
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
    sizes = ZombieSizes(pods)
    rows = await _on_kubernetes(sizes, progress)
    rows += await _in_jobs(sizes, progress)
    rows += await _report(sizes, progress)
    return rows + await _budget(sizes, progress)


# -- on Kubernetes --------------------------------------------------------------------


async def _on_kubernetes(sizes: ZombieSizes, progress: Progress) -> list[Row]:
    """Only the manager acts, on pods as a lost node and its eviction leave them."""
    try:
        binaries = control_plane.find_binaries()
    except UsageError as error:
        progress(f"not on Kubernetes: {error}")
        return []
    async with contextlib.AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="refloat-bench-"))
        settings = control_plane.ControlPlaneSettings(binaries, Path(folder), api_only=True)
        config = stack.enter_context(control_plane.running(settings, progress)).kubeconfig
        client = await stack.enter_async_context(clients.connected(config))
        progress(f"{sizes.pods} pods on a lost node of Kubernetes")
        names = await stuck_pods.lose(client, sizes.pods)
        manager = await stack.enter_async_context(processes.manager(config, *_GATE, *_UNLIMITED))
        await manager.settled()
        before = manager.cpu_seconds()
        await stuck_pods.delete(client, names)
        due = await stuck_pods.last_threshold(client, timings.KUBERNETES.recovery_period)
        progress(f"{sizes.pods} pods are freed")
        moments = await stuck_pods.freed(client, sizes.pods)
        await stuck_pods.event_times(client, zombie.REASON, sizes.pods)
        cpu = (manager.cpu_seconds() - before) / sizes.pods * 1000
        memory = manager.peak_bytes() / 1e6
    return [
        stock_row(
            "Kubernetes: last freed", moments[-1] - due.timestamp(), "s", sizes, STOCK_SECONDS
        ),
        stock_row("Kubernetes: CPU each", cpu, "ms", sizes, STOCK_CPU_MS),
        stock_row("Kubernetes: memory", memory, "MB", sizes, STOCK_MB),
    ]


def stock_row(what: str, value: float, unit: str, sizes: ZombieSizes, stock: float) -> Row:
    """A figure with half of Kueue's as its aim, if Kueue was measured with this size."""
    if sizes.pods != STOCK_PODS:
        return cost(what, value, unit)
    return cost(what, value, unit, stock=stock, aim=stock * HALF)


# -- Jobs on the embedded cluster -----------------------------------------------------


async def _in_jobs(sizes: ZombieSizes, progress: Progress) -> list[Row]:
    progress(f"{JOBS} Jobs of {sizes.per_job} pods on one node")
    async with _cluster("--simulated-nodes", str(sizes.nodes)) as (server, client):
        await clients.nodes_ready(client, sizes.nodes)
        spares = [f"node-{number}" for number in range(sizes.nodes)]
        await clients.for_each(spares, partial(_cordon, client, cordoned=True))
        async with stuck_pods.renewed_lease(client):
            await client.create(kinds.NODES, stuck_pods.node(sizes.in_jobs, unreachable=False))
            await _fill(client, sizes)
        progress(f"{sizes.in_jobs} pods are lost, freed and replaced")
        before = server.cpu_seconds()
        await clients.for_each(spares, partial(_cordon, client, cordoned=False))
        moments = await stuck_pods.freed(client, sizes.in_jobs)
        due = await stuck_pods.last_threshold(client, timings.FAST.recovery_period)
        for name in JOB_NAMES:
            await job_load.all_ready(client, name, sizes.per_job)
        ready_at = time.time()
        cpu = server.cpu_seconds() - before
    aim = FREED_SECONDS if sizes.pods <= PODS else None
    label = f"{sizes.in_jobs:,} in Jobs"
    return [
        cost(f"{label}: last freed", moments[-1] - due.timestamp(), "s", aim=aim),
        cost(f"{label}: replaced", ready_at - due.timestamp(), "s", aim=aim),
        cost(f"{label}: CPU each", cpu / sizes.in_jobs * 1000, "ms"),
    ]


async def _cordon(client: HttpClient, name: str, *, cordoned: bool) -> None:
    patch = {"spec": {"unschedulable": cordoned or None}}
    await client.patch(kinds.NODES, name, patch)


async def _fill(client: HttpClient, sizes: ZombieSizes) -> None:
    """Fill the node with running pods of the Jobs."""
    for name in JOB_NAMES:
        await client.create(kinds.JOBS, _job(name, sizes.per_job), namespace=job_load.NAMESPACE)
    pods = await clients.watch_until(
        client,
        kinds.PODS,
        sizes.in_jobs,
        lambda pod: pod.spec.node_name or None,
        namespace=job_load.NAMESPACE,
    )
    await clients.for_each(pods, partial(stuck_pods.run, client))


def _job(name: str, pods: int) -> Object:
    """A Job whose policy ignores disrupted pods."""
    conditions = [{"type": "DisruptionTarget", "status": "True"}]
    body = job_load.job(
        name,
        pods,
        parallelism=pods,
        seconds=None,
        managed_by=None,
        completionMode="Indexed",
        # Without a limit per index, the back-off of all failures together delays the Job.
        backoffLimitPerIndex=1,
        podReplacementPolicy="Failed",
        podFailurePolicy={"rules": [{"action": "Ignore", "onPodConditions": conditions}]},
    )
    template = body["spec"]["template"]
    template["metadata"]["annotations"] |= stuck_pods.ANNOTATION
    at_once = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}
    template["spec"]["tolerations"] = [
        {"key": key, **at_once} for key in (node_taints.UNREACHABLE, node_taints.NOT_READY)
    ]
    template["spec"]["terminationGracePeriodSeconds"] = 1
    return body


# -- reports and budgets --------------------------------------------------------------


async def _report(sizes: ZombieSizes, progress: Progress) -> list[Row]:
    progress(f"{sizes.reported} pods on a lost node, in report mode")
    async with _recovery_alone({"mode": "Report"}) as (server, client):
        names = await stuck_pods.lose(client, sizes.reported)
        await server.settled()
        before = server.cpu_seconds()
        await stuck_pods.delete(client, names)
        due = await stuck_pods.last_threshold(client, timings.FAST.recovery_period)
        await stuck_pods.event_times(client, events.WOULD, sizes.reported)
        seconds = time.time() - due.timestamp()
        cpu = server.cpu_seconds() - before
        pages = client.list(kinds.PODS, namespace=job_load.NAMESPACE, selector=stuck_pods.FAILED)
        failures = sum([len(page.items) async for page in pages])
    label = f"{sizes.reported:,} reported"
    return [
        cost(f"{label}: last event", seconds, "s"),
        cost(f"{label}: CPU each", cpu / sizes.reported * 1000, "ms"),
        cost(f"{label}: touched", float(failures), "", aim=0),
    ]


async def _budget(sizes: ZombieSizes, progress: Progress) -> list[Row]:
    """From the end of the first window to the last pod: then all pods wait for the budget alone.

    The times are those in the events, because a watch shows some pods late.
    """
    progress(f"{sizes.budgeted} pods, {sizes.budget} in {WINDOW_SECONDS} s")
    budget = {"maxPods": sizes.budget, "window": f"{WINDOW_SECONDS}s"}
    async with _recovery_alone({"budget": budget}) as (_, client):
        await stuck_pods.delete(client, await stuck_pods.lose(client, sizes.budgeted))
        await stuck_pods.freed(client, sizes.budgeted)
        moments = await stuck_pods.event_times(client, zombie.REASON, sizes.budgeted)
    seconds = (WINDOWS - 1) * WINDOW_SECONDS
    label = f"{sizes.budget} in {WINDOW_SECONDS} s"
    most = stuck_pods.most_within(moments, WINDOW_SECONDS)
    return [
        cost(f"{label}: most at once", float(most), "", aim=sizes.budget),
        cost(
            f"{label}: last freed", moments[-1] - moments[sizes.budget - 1], "s", aim=seconds * LATE
        ),
    ]


# -- the clusters ---------------------------------------------------------------------


@asynccontextmanager
async def _cluster(*flags: str) -> AsyncIterator[tuple[processes.ServerProcess, HttpClient]]:
    """An embedded cluster with short waits and the feature gate."""
    async with clients.up("--fast", *_GATE, *flags) as cluster:
        yield cluster.server, cluster.client


@asynccontextmanager
async def _recovery_alone(
    policy: Object,
) -> AsyncIterator[tuple[processes.ServerProcess, HttpClient]]:
    """Failure recovery with this policy, and no other controller."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        head = {"apiVersion": "config.refloat.dev/v1alpha1", "kind": "Configuration"}
        json.dump({**head, "failureRecoveryPolicy": policy}, file)
        file.flush()
        flags = ("--controllers", "failure-recovery-controller", "--nodes", "0")
        async with _cluster("--config", file.name, *flags) as cluster:
            yield cluster
