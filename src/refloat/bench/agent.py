# SPDX-License-Identifier: Apache-2.0
"""`refloat bench agent`: nodes that run processes.

First the runtime and its keeper alone, then whole clusters as users start them:
API server and controllers share the machine with agents, keepers and containers.
A container runs `true`.
"""

import asyncio
import tempfile
import time
from pathlib import Path

import msgspec

from refloat.agent.process.runtime import ProcessRuntime
from refloat.agent.process.settings import ProcessSettings
from refloat.agent.process.volumes import FileContent
from refloat.api.core import SUCCEEDED, Pod
from refloat.api.meta import Object
from refloat.base.clock import RealClock
from refloat.bench import clients, job_load
from refloat.bench.processes import MeasuredProcess
from refloat.bench.results import Progress, Row, cost
from refloat.client import kinds
from refloat.client.http import HttpClient

CONTAINERS = 500
"""Containers that the runtime alone starts."""
# As many as an agent starts at once.
AT_ONCE = 10

PODS = 100
"""Pods at once on one node, which takes at most 110."""

JOB_PODS, JOB_NODES = 200, 3

IDLE_SECONDS = 20.0

# Enough for any of the steps on a busy machine.
LONGEST_SECONDS = 300.0


async def measure(progress: Progress) -> list[Row]:
    rows = await _runtime(progress)
    async with clients.up("--nodes", "1") as cluster:
        await clients.nodes_ready(cluster.client, 1)
        rows += await _idle(cluster.data_dir, progress)
        rows += await _pods(cluster.client, progress)
    async with clients.up("--nodes", str(JOB_NODES)) as cluster:
        await clients.nodes_ready(cluster.client, JOB_NODES)
        rows += await _job(cluster, progress)
    return rows


# -- the runtime alone ------------------------------------------------------------------


class _NoInputs:
    """Containers without environment variables and volumes."""

    async def environment(self, pod: Object, container: Object) -> dict[str, str]:
        return {}

    async def files(self, pod: Object, volume: Object) -> dict[str, FileContent] | None:
        return None

    async def folder(self, pod: Object, volume: Object) -> Path | None:
        return None


def _pod(name: str, node: str = "") -> Object:
    container = {"name": "main", "image": "any", "command": ["true"]}
    spec = {"restartPolicy": "Never", "nodeName": node, "containers": [container]}
    metadata = {"name": name, "namespace": job_load.NAMESPACE, "uid": name}
    return {"metadata": metadata, "spec": spec}


async def _runtime(progress: Progress) -> list[Row]:
    progress(f"{CONTAINERS} processes, without an API server")
    pods = {f"p{number}": _pod(f"p{number}") for number in range(CONTAINERS)}
    unfinished = dict.fromkeys(pods)
    done = asyncio.Event()

    async def whole(pod: Pod) -> Object:
        return pods[pod.metadata.uid]

    def changed(uid: str) -> None:
        if all(status.current.has_ended for status in runtime.containers(uid).values()):
            unfinished.pop(uid, None)
            runtime.remove(uid)
        if not unfinished:
            done.set()

    async def start(body: Object) -> None:
        await runtime.start(msgspec.convert(body, Pod), "main", 0)

    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        settings = ProcessSettings(Path(folder) / "node")
        runtime = ProcessRuntime(settings, clock=RealClock(), fetch_pod=whole, inputs=_NoInputs())
        runtime.listen(changed)
        await runtime.open()
        try:
            started = time.monotonic()
            await clients.for_each(pods.values(), start, at_once=AT_ONCE)
            async with asyncio.timeout(LONGEST_SECONDS):
                await done.wait()
            seconds = time.monotonic() - started
        finally:
            await runtime.shutdown()
    return [Row("runtime: processes", CONTAINERS / seconds, "/s", aim=100)]


# -- whole clusters ---------------------------------------------------------------------


async def _idle(data_dir: Path, progress: Progress) -> list[Row]:
    progress(f"an idle agent and its keeper, for {IDLE_SECONDS:.0f} s")
    pair = [_process(data_dir, word) for word in ("--name n1 ", "keeper/__main__.py")]
    for process in pair:
        await process.settled()
    before = sum(process.cpu_seconds() for process in pair)
    await asyncio.sleep(IDLE_SECONDS)
    share = (sum(process.cpu_seconds() for process in pair) - before) / IDLE_SECONDS
    agent, keeper = (process.resident_bytes() / 1e6 for process in pair)
    return [
        cost("agent and keeper", agent + keeper, "MB", aim=60),
        cost("  the agent", agent, "MB"),
        cost("  the keeper", keeper, "MB"),
        cost("  of a core, idle", 100 * share, "%", aim=1),
    ]


def _process(data_dir: Path, word: str) -> MeasuredProcess:
    """The process of node n1 with this word in its command line."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue  # the process has just ended
        if f"{data_dir}/nodes/n1" in command and word in command:
            return MeasuredProcess(int(folder.name))
    raise RuntimeError(f"no process of {data_dir} has {word!r} in its command line")


async def _pods(client: HttpClient, progress: Progress) -> list[Row]:
    progress(f"{PODS} pods on one node")
    started = time.monotonic()
    for number in range(PODS):
        pod = _pod(f"p{number}", "n1")
        await client.create(kinds.PODS, pod, namespace=job_load.NAMESPACE)
    async with asyncio.timeout(LONGEST_SECONDS):
        await clients.watch_until(
            client,
            kinds.PODS,
            PODS,
            lambda pod: pod.status.phase == SUCCEEDED or None,
            namespace=job_load.NAMESPACE,
        )
    return [Row("pods through the API", PODS / (time.monotonic() - started), "/s", aim=20)]


async def _job(cluster: clients.UpCluster, progress: Progress) -> list[Row]:
    progress(f"a Job of {JOB_PODS} pods on {JOB_NODES} nodes")
    body = job_load.job("work", JOB_PODS, parallelism=JOB_PODS, managed_by=None)
    body["spec"]["template"]["spec"]["containers"][0]["command"] = ["true"]
    seconds, _ = await job_load.run_job(cluster.client, cluster.server, body)
    return [cost(f"{JOB_PODS} pods, {JOB_NODES} nodes", seconds, "s", aim=20)]
