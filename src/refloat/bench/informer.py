# SPDX-License-Identifier: Apache-2.0
"""`refloat bench informer`: what it costs to hold many pods and to follow them.

10,000 pods of 6 KB in an API server of its own, over TLS; the informer is in
another process, with the indexes of the Job and recovery controllers. CPU is
all of that process: TLS, HTTP, lines, decoding, sharing, indexing, handlers.
The stock figures are those of the official Python client, of which there is
no informer that can be compared.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from refloat.api.meta import Object
from refloat.base.clock import RealClock
from refloat.base.rand import Rand
from refloat.bench import pods, processes
from refloat.bench.results import Row
from refloat.client import kinds, kubeconfig
from refloat.client.http import HttpClient
from refloat.client.settings import Settings

PODS = 10_000
EVENTS = 5_000
WRITERS = 32

# What the server decides itself.
_SERVERS_OWN = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields")


async def measure(progress: Callable[[str], None]) -> list[Row]:
    """Fill a server, follow it in both ways, and change what is followed."""
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        data_dir = Path(folder) / "data"
        async with processes.server(data_dir):
            config = data_dir / "kubeconfig"
            client = HttpClient(
                kubeconfig.load([config]),
                clock=RealClock(),
                rand=Rand(),
                settings=Settings(qps=0, connections=WRITERS),
            )
            try:
                progress(f"{PODS} pods")
                names = await _fill(client)
                rows = []
                for mode in ("stream", "list"):
                    progress(f"follow by {mode}")
                    rows += await _followed(client, config, names, mode)
                return rows
            finally:
                await client.close()


async def _followed(
    client: HttpClient, config: Path, names: list[tuple[str, str]], mode: str
) -> list[Row]:
    async with _follower(config, mode) as answers:
        full = json.loads(await answers.readline())
        await _all(_touch(client, *each) for each in names[: EVENTS // 2])
        seen = json.loads(await answers.readline())
    count = full["count"]
    resident, listed = full["resident"] / count / 1024, full["cpu"] / count * 1e6
    event = seen["cpu"] / seen["count"] * 1e6
    return [
        _row(f"{mode}: memory per pod", resident, "KB", stock=99.6, aim=3),
        _row(f"{mode}: CPU per pod", listed, "us", stock=1300, aim=60),
        _row(f"{mode}: CPU per event", event, "us", stock=614, aim=80),
    ]


def _row(what: str, value: float, unit: str, *, stock: float, aim: float) -> Row:
    return Row(what, value, unit, stock=stock, aim=aim, smaller_is_better=True)


@asynccontextmanager
async def _follower(config: Path, mode: str) -> AsyncIterator[asyncio.StreamReader]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from refloat.bench.follower import main; main()",
        str(config),
        str(EVENTS),
        mode,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _fill(client: HttpClient) -> list[tuple[str, str]]:
    for number in range(pods.NAMESPACES):
        await client.create(kinds.NAMESPACES, {"metadata": {"name": f"team-{number:02d}"}})
    maker = pods.PodMaker()
    made = [maker.pod(number) for number in range(PODS)]
    await _all(_create(client, pod) for pod in made)
    return [(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in made]


async def _create(client: HttpClient, pod: Object) -> None:
    metadata = {key: each for key, each in pod["metadata"].items() if key not in _SERVERS_OWN}
    namespace, name = metadata["namespace"], metadata["name"]
    await client.create(kinds.PODS, {**pod, "metadata": metadata}, namespace=namespace)
    status = {"status": pod["status"]}
    await client.patch(kinds.PODS, name, status, namespace=namespace, subresource="status")


async def _touch(client: HttpClient, namespace: str, name: str) -> None:
    for message in ("still there", None):
        patch = {"status": {"message": message}}
        await client.patch(kinds.PODS, name, patch, namespace=namespace, subresource="status")


async def _all(work: Iterable[Any]) -> None:
    """Do it all, some at a time."""
    left = iter(work)

    async def worker() -> None:
        for each in left:
            await each

    await asyncio.gather(*(worker() for _ in range(WRITERS)))
