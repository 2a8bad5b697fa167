# SPDX-License-Identifier: Apache-2.0
"""`refloat bench kubernetes`: Refloat's Job controller beside Kubernetes' own.

Both run on one real control plane with the same simulated nodes. First a
kube-controller-manager with the Job controller alone runs a Job, then `refloat
manager` runs the same Job, both without a rate limit. All other controllers run in
a second kube-controller-manager, which is not measured. CPU and memory are those
of the whole process.
"""

import asyncio
import ssl
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refloat.app import certificates
from refloat.bench import clients, control_plane, job_load, processes
from refloat.bench.control_plane import KubernetesControlPlane
from refloat.bench.daemons import Daemon, Probe
from refloat.bench.pods import PodMaker
from refloat.bench.processes import MeasuredProcess
from refloat.bench.results import Progress, Row, cost
from refloat.client import kinds
from refloat.client.contract import DeleteOptions
from refloat.client.http import HttpClient
from refloat.controllers.job.settings import REFLOAT

PODS = 2_000
PARALLELISM = 500
NODES = 10
CACHED_PER_POD = 5
"""Pods in the caches for each pod of the Job."""

_UNLIMITED = ("--kube-api-qps=5000", "--kube-api-burst=5000")
_FLAGS = {
    control_plane.CONTROLLER_MANAGER: ("--controllers=*,-job-controller", *_UNLIMITED),
    control_plane.SCHEDULER: _UNLIMITED,
}


@dataclass(frozen=True, slots=True)
class JobCost:
    """The cost of one Job for one of the two controllers."""

    seconds: float
    cpu: float
    peak_bytes: int


async def measure(progress: Progress, pods: int = PODS) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        settings = control_plane.ControlPlaneSettings(
            control_plane.find_binaries(), Path(folder), more=_FLAGS
        )
        with control_plane.running(settings, progress) as plane:
            arguments = ("--kubeconfig", str(plane.kubeconfig), "--simulated-nodes", str(NODES))
            async with (
                processes.refloat("agent", *arguments),
                clients.connected(plane.kubeconfig) as client,
            ):
                return await _measure(plane, client, progress, pods)


async def _measure(
    plane: KubernetesControlPlane, client: HttpClient, progress: Progress, count: int
) -> list[Row]:
    own = await _job(plane, client, progress, count, refloats=False)
    ours = await _job(plane, client, progress, count, refloats=True)
    cached = count * CACHED_PER_POD
    progress(f"{cached} pods for the caches")
    await _fill(client, cached)
    own_cache = await _resident(plane, progress, refloats=False)
    our_cache = await _resident(plane, progress, refloats=True)
    label, per_pod = f"{count:,} pods", 1000 / count
    return [
        _row(f"{label}: makespan", ours.seconds, "s", stock=own.seconds, share=1.0),
        _row(f"{label}: CPU per pod", ours.cpu * per_pod, "ms", stock=own.cpu * per_pod),
        _row(f"{label}: memory", ours.peak_bytes / 1e6, "MB", stock=own.peak_bytes / 1e6),
        _row(f"{cached:,} pods cached", our_cache / 1e6, "MB", stock=own_cache / 1e6),
    ]


def _row(what: str, value: float, unit: str, *, stock: float, share: float = 0.5) -> Row:
    """The aim is a share of the cost of Kubernetes' own controller."""
    return cost(what, value, unit, stock=round(stock, 2), aim=round(stock * share, 2))


# -- the measurements ---------------------------------------------------------------


async def _job(
    plane: KubernetesControlPlane,
    client: HttpClient,
    progress: Progress,
    count: int,
    *,
    refloats: bool,
) -> JobCost:
    """Run one Job from its creation to its end, then delete the Job and its pods."""
    manager = REFLOAT if refloats else None
    name = "refloats" if refloats else "kubernetes"
    progress(f"a Job of {count} pods, {name}")
    body = job_load.job(name, count, parallelism=min(count, PARALLELISM), managed_by=manager)
    async with _controller(plane, refloats=refloats) as process:
        seconds, cpu = await job_load.run_job(client, process, body)
        peak = process.peak_bytes()
    options = DeleteOptions(propagation="Background")
    await client.delete(kinds.JOBS, name, namespace=job_load.NAMESPACE, options=options)
    until = time.monotonic() + job_load.LONGEST_SECONDS
    while (await anext(client.list(kinds.PODS, namespace=job_load.NAMESPACE, limit=1))).items:
        if time.monotonic() > until:
            raise RuntimeError("pods of the last Job are still there")
        await asyncio.sleep(1)
    return JobCost(seconds, cpu, peak)


async def _resident(plane: KubernetesControlPlane, progress: Progress, *, refloats: bool) -> int:
    progress("caches of " + ("refloat" if refloats else "kube-controller-manager"))
    async with _controller(plane, refloats=refloats) as process:
        return process.resident_bytes()


async def _fill(client: HttpClient, count: int) -> None:
    """Create pods that no scheduler and no node touches."""
    maker = PodMaker()

    async def create(number: int) -> None:
        pod = maker.pod(number)
        meta: dict[str, Any] = pod["metadata"]
        metadata = {key: meta[key] for key in ("name", "labels", "annotations") if key in meta}
        spec = {key: field for key, field in pod["spec"].items() if key not in _ADMISSION_FIELDS}
        body = {"metadata": metadata, "spec": {**spec, "schedulerName": "none"}}
        await client.create(kinds.PODS, body, namespace=job_load.NAMESPACE)

    await clients.for_each(range(count), create)


# The scheduler or the API server sets these fields.
_ADMISSION_FIELDS = ("nodeName", "priority", "preemptionPolicy")


# -- the processes ------------------------------------------------------------------


@asynccontextmanager
async def _controller(
    plane: KubernetesControlPlane, *, refloats: bool
) -> AsyncIterator[MeasuredProcess]:
    """One of the two controllers, and no other controller, with full caches."""
    if refloats:
        arguments = ("--controllers", "job-controller", *_UNLIMITED)
        async with processes.manager(plane.kubeconfig, *arguments) as manager:
            await manager.settled()
            yield manager
        return
    folder = plane.settings.folder
    pki = certificates.Paths.below(folder / "pki")
    (port,) = control_plane.free_ports(1)
    access = plane.kubeconfig
    command: list[str | Path] = [
        plane.settings.binaries / control_plane.CONTROLLER_MANAGER,
        "--controllers=job-controller",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={pki.server}",
        f"--tls-private-key-file={pki.server_key}",
        *(f"--{role}kubeconfig={access}" for role in ("", "authentication-", "authorization-")),
        *_UNLIMITED,
    ]
    daemon = Daemon(command, folder / "job-controller.log")
    try:
        context = ssl.create_default_context(cafile=pki.authority)
        daemon.wait_until(Probe(port, "/healthz", context), "health")
        process = MeasuredProcess(daemon.pid)
        await process.settled()
        yield process
    finally:
        daemon.stop()
