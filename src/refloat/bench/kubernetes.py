# SPDX-License-Identifier: Apache-2.0
"""`refloat bench kubernetes`: Refloat's Job controller beside Kubernetes' own.

One run on one real control plane, with the same simulated nodes: the same Job
is given to a kube-controller-manager that runs the Job controller and nothing
else, and then to `refloat manager`. Both may ask the API server as often as
they like. All other controllers run in a kube-controller-manager of their own,
whose cost is nobody's here. CPU and memory are those of the whole process.
"""

import asyncio
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refloat.app import certificates
from refloat.bench import clients, control_plane, jobs, processes
from refloat.bench.control_plane import ControlPlane
from refloat.bench.daemons import Daemon, Probe
from refloat.bench.pods import PodMaker
from refloat.bench.processes import Process
from refloat.bench.results import Row
from refloat.client import kinds
from refloat.client.contract import DeleteOptions
from refloat.client.http import HttpClient
from refloat.controllers.job.settings import REFLOAT

Progress = Callable[[str], None]

PODS = 2_000
PARALLELISM = 500
NODES = 10
CACHED_PER_POD = 5
"""How many pods the caches hold, for each pod of the Job."""

WRITERS = 16

_UNLIMITED = ("--kube-api-qps=5000", "--kube-api-burst=5000")
_FLAGS = {
    control_plane.CONTROLLER_MANAGER: ("--controllers=*,-job-controller", *_UNLIMITED),
    control_plane.SCHEDULER: _UNLIMITED,
}


@dataclass(frozen=True, slots=True)
class Figures:
    """What one of the two took."""

    makespan: float
    cpu: float
    peak: int


async def measure(progress: Progress, pods: int = PODS) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        settings = control_plane.Settings(control_plane.find_binaries(), Path(folder), more=_FLAGS)
        with control_plane.running(settings, progress) as plane:
            arguments = ("--kubeconfig", str(plane.kubeconfig), "--simulated-nodes", str(NODES))
            async with (
                processes.refloat("agent", *arguments),
                clients.connected(plane.kubeconfig) as client,
            ):
                return await _measure(plane, client, progress, pods)


async def _measure(
    plane: ControlPlane, client: HttpClient, progress: Progress, count: int
) -> list[Row]:
    own = await _job(plane, client, progress, count, refloats=False)
    ours = await _job(plane, client, progress, count, refloats=True)
    cached = count * CACHED_PER_POD
    progress(f"{cached} pods for the caches")
    await _fill(client, cached)
    own_cache = await _resident(plane, progress, refloats=False)
    our_cache = await _resident(plane, progress, refloats=True)
    named, per_pod = f"{count:,} pods", 1000 / count
    return [
        _row(f"{named}: makespan", ours.makespan, "s", stock=own.makespan, share=1.0),
        _row(f"{named}: CPU per pod", ours.cpu * per_pod, "ms", stock=own.cpu * per_pod),
        _row(f"{named}: memory", ours.peak / 1e6, "MB", stock=own.peak / 1e6),
        _row(f"{cached:,} pods cached", our_cache / 1e6, "MB", stock=own_cache / 1e6),
    ]


def _row(what: str, value: float, unit: str, *, stock: float, share: float = 0.5) -> Row:
    """The aim is a share of what Kubernetes' own takes."""
    return Row(
        what,
        value,
        unit,
        stock=round(stock, 2),
        aim=round(stock * share, 2),
        smaller_is_better=True,
    )


# -- what is measured ---------------------------------------------------------------


async def _job(
    plane: ControlPlane, client: HttpClient, progress: Progress, count: int, *, refloats: bool
) -> Figures:
    """One Job from its creation to its end; nothing of it is left behind."""
    manager = REFLOAT if refloats else None
    name = "refloats" if refloats else "kubernetes"
    progress(f"a Job of {count} pods, {name}")
    wanted = jobs.job(name, count, parallelism=min(count, PARALLELISM), managed_by=manager)
    async with _controller(plane, refloats=refloats) as process:
        started, spent = time.monotonic(), process.cpu_seconds()
        await client.create(kinds.JOBS, wanted, namespace=jobs.NAMESPACE)
        await jobs.completed(client, name)
        seconds, spent = time.monotonic() - started, process.cpu_seconds() - spent
        peak = process.peak_bytes()
    gone = DeleteOptions(propagation="Background")
    await client.delete(kinds.JOBS, name, namespace=jobs.NAMESPACE, options=gone)
    await _wait_empty(client)
    return Figures(seconds, spent, peak)


async def _resident(plane: ControlPlane, progress: Progress, *, refloats: bool) -> int:
    progress("caches of " + ("refloat" if refloats else "kube-controller-manager"))
    async with _controller(plane, refloats=refloats) as process:
        return process.resident_bytes()


async def _fill(client: HttpClient, count: int) -> None:
    """Pods that nobody schedules, and so nobody touches."""
    maker = PodMaker()
    left = iter(range(count))

    async def write() -> None:
        for number in left:
            made = maker.pod(number)
            meta: dict[str, Any] = made["metadata"]
            metadata = {key: meta[key] for key in ("name", "labels", "annotations") if key in meta}
            spec = {key: each for key, each in made["spec"].items() if key not in _PLACED}
            spec["schedulerName"] = "nobody"
            body = {"metadata": metadata, "spec": spec}
            await client.create(kinds.PODS, body, namespace=jobs.NAMESPACE)

    await asyncio.gather(*(write() for _ in range(WRITERS)))


# What belongs to a pod that runs somewhere; the server says the rest itself.
_PLACED = ("nodeName", "priority", "preemptionPolicy")


# -- how ----------------------------------------------------------------------------


@asynccontextmanager
async def _controller(plane: ControlPlane, *, refloats: bool) -> AsyncIterator[Process]:
    """One of the two, with its caches full."""
    if refloats:
        arguments = ("--controllers", "job-controller", *_UNLIMITED)
        async with processes.manager(plane.kubeconfig, *arguments) as manager:
            await manager.settled()
            yield manager
    else:
        with _controller_manager(plane) as process:
            await process.settled()
            yield process


@contextmanager
def _controller_manager(plane: ControlPlane) -> Iterator[Process]:
    """A kube-controller-manager with the Job controller alone."""
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
        *(f"--{which}kubeconfig={access}" for which in ("", "authentication-", "authorization-")),
        *_UNLIMITED,
    ]
    daemon = Daemon(command, folder / "job-controller.log")
    try:
        context = ssl.create_default_context(cafile=pki.authority)
        daemon.wait_until(Probe(port, "/healthz", context), "health")
        yield Process(daemon.pid)
    finally:
        daemon.stop()


async def _wait_empty(client: HttpClient) -> None:
    """Until the pods of the last Job are gone."""
    until = time.monotonic() + jobs.LONGEST_SECONDS
    while time.monotonic() < until:
        async for page in client.list(kinds.PODS, namespace=jobs.NAMESPACE, limit=1):
            if not page.items:
                return
            break
        await asyncio.sleep(1)
    raise RuntimeError("pods of the last Job are still there")
