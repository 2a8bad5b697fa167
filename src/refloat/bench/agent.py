# SPDX-License-Identifier: Apache-2.0
"""`refloat bench agent`: nodes that run processes.

First the runtime alone, with its keeper, as an agent uses it; then whole
clusters as users start them, whose API server and controllers share the
machine with agents, keepers and containers. A container runs `true`.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from refloat.agent.process.runtime import ProcessRuntime
from refloat.agent.process.settings import ProcessSettings
from refloat.agent.process.volumes import File
from refloat.api import structs
from refloat.api.core import SUCCEEDED, Pod
from refloat.api.meta import Object
from refloat.base.clock import RealClock
from refloat.base.rand import Rand
from refloat.bench import jobs, processes
from refloat.bench.processes import Process
from refloat.bench.results import Row
from refloat.client import kinds, kubeconfig
from refloat.client.http import HttpClient
from refloat.client.settings import Settings

Progress = Callable[[str], None]

CONTAINERS = 500
"""Those that the runtime alone starts, so many at once as an agent does."""
AT_ONCE = 10

PODS = 100
"""On one node at once; it takes 110."""

JOB_PODS, JOB_NODES = 200, 3

IDLE_SECONDS = 20.0

# What a command that does nothing may take, on a busy machine.
LONGEST_SECONDS = 300.0


async def measure(progress: Progress) -> list[Row]:
    rows = await _runtime(progress)
    async with _cluster(1) as (data_dir, client):
        rows += await _idle(data_dir, progress)
        rows += await _pods(client, progress)
    async with _cluster(JOB_NODES) as (_, client):
        rows += await _job(client, progress)
    return rows


# -- the runtime alone ------------------------------------------------------------------


class _Nothing:
    """What containers are given: nothing."""

    async def environment(self, pod: Object, container: Object) -> dict[str, str]:
        return {}

    async def files(self, pod: Object, volume: Object) -> dict[str, File] | None:
        return None

    async def folder(self, pod: Object, volume: Object) -> Path | None:
        return None


def _pod(name: str, node: str = "") -> Object:
    container = {"name": "main", "image": "any", "command": ["true"]}
    spec = {"restartPolicy": "Never", "nodeName": node, "containers": [container]}
    metadata = {"name": name, "namespace": jobs.NAMESPACE, "uid": name}
    return {"metadata": metadata, "spec": spec}


async def _runtime(progress: Progress) -> list[Row]:
    progress(f"{CONTAINERS} processes, without an API server")
    pods = {f"p{number}": _pod(f"p{number}") for number in range(CONTAINERS)}
    waiting = dict.fromkeys(pods)
    over = asyncio.Event()

    async def whole(pod: Pod) -> Object:
        return pods[pod.metadata.uid]

    def changed(uid: str) -> None:
        if all(each.current.has_ended for each in runtime.containers(uid).values()):
            waiting.pop(uid, None)
            runtime.remove(uid)
        if not waiting:
            over.set()

    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        settings = ProcessSettings(Path(folder) / "node")
        runtime = ProcessRuntime(settings, clock=RealClock(), whole=whole, resources=_Nothing())
        runtime.listen(changed)
        await runtime.open()
        try:
            started = time.monotonic()
            await _start_all(runtime, pods)
            async with asyncio.timeout(LONGEST_SECONDS):
                await over.wait()
            seconds = time.monotonic() - started
        finally:
            await runtime.shutdown()
    return [Row("runtime: processes", CONTAINERS / seconds, "/s", aim=100)]


async def _start_all(runtime: ProcessRuntime, pods: dict[str, Object]) -> None:
    left = list(pods.values())

    async def work() -> None:
        while left:
            await runtime.start(msgspec.convert(left.pop(), Pod), "main", 0)

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


# -- whole clusters ---------------------------------------------------------------------


async def _idle(data_dir: Path, progress: Progress) -> list[Row]:
    progress(f"an agent and its keeper that do nothing, for {IDLE_SECONDS:.0f} s")
    both = [_process(data_dir, each) for each in ("--name n1 ", "keeper/__main__.py")]
    for each in both:
        await each.settled()
    before = sum(each.cpu_seconds() for each in both)
    await asyncio.sleep(IDLE_SECONDS)
    share = (sum(each.cpu_seconds() for each in both) - before) / IDLE_SECONDS
    agent, keeper = (each.resident_bytes() / 1e6 for each in both)
    return [
        Row("agent and keeper", agent + keeper, "MB", aim=60, smaller_is_better=True),
        Row("  the agent", agent, "MB", smaller_is_better=True),
        Row("  the keeper", keeper, "MB", smaller_is_better=True),
        Row("  of a core, idle", 100 * share, "%", aim=1, smaller_is_better=True),
    ]


def _process(data_dir: Path, word: str) -> Process:
    """The process of a node below this directory that has this in its command line."""
    for each in Path("/proc").iterdir():
        if not each.name.isdigit():
            continue
        try:
            command = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue  # it has just ended
        if f"{data_dir}/nodes/n1" in command and word in command:
            return Process(int(each.name))
    raise RuntimeError(f"no process of {data_dir} has {word!r} in its command line")


async def _pods(client: HttpClient, progress: Progress) -> list[Row]:
    progress(f"{PODS} pods on one node")
    left = {f"p{number}": None for number in range(PODS)}
    watch = client.watch(kinds.PODS, namespace=jobs.NAMESPACE, initial_events=True)
    started = time.monotonic()
    for name in left:
        await client.create(kinds.PODS, _pod(name, "n1"), namespace=jobs.NAMESPACE)
    async with asyncio.timeout(LONGEST_SECONDS):
        async for event in watch:
            if event.object is not None and event.object.status.phase == SUCCEEDED:
                left.pop(event.object.metadata.name, None)
            if not left:
                break
    await watch.aclose()
    return [Row("pods through the API", PODS / (time.monotonic() - started), "/s", aim=20)]


async def _job(client: HttpClient, progress: Progress) -> list[Row]:
    progress(f"a Job of {JOB_PODS} pods on {JOB_NODES} nodes")
    wanted = jobs.job("work", JOB_PODS, parallelism=JOB_PODS, managed_by=None)
    wanted["spec"]["template"]["spec"]["containers"][0]["command"] = ["true"]
    started = time.monotonic()
    await client.create(kinds.JOBS, wanted, namespace=jobs.NAMESPACE)
    await jobs.completed(client, "work")
    seconds = time.monotonic() - started
    what = f"{JOB_PODS} pods, {JOB_NODES} nodes"
    return [Row(what, seconds, "s", aim=20, smaller_is_better=True)]


@asynccontextmanager
async def _cluster(nodes: int) -> AsyncIterator[tuple[Path, HttpClient]]:
    """A cluster whose nodes are ready, and a way to it."""
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        data_dir = Path(folder) / "data"
        async with processes.server(data_dir, "--nodes", str(nodes)):
            client = HttpClient(
                kubeconfig.load([data_dir / "kubeconfig"]),
                clock=RealClock(),
                rand=Rand(),
                settings=Settings(qps=0),
            )
            try:
                for number in range(1, nodes + 1):
                    await _until_ready(client, f"n{number}")
                yield data_dir, client
            finally:
                await client.close()


async def _until_ready(client: HttpClient, name: str) -> None:
    async with asyncio.timeout(LONGEST_SECONDS):
        watch = client.watch(kinds.NODES, initial_events=True)
        async for event in watch:
            node = event.object
            if node is None or node.metadata.name != name:
                continue
            if structs.is_true(node.status.conditions, "Ready"):
                break
        await watch.aclose()
