# SPDX-License-Identifier: Apache-2.0
"""`refloat bench informer`: memory and CPU of an informer with many pods.

An API server holds 10,000 pods of 6 KB. The informer runs in another process,
over TLS, with the indexes of the Job and recovery controllers. CPU is that of
the whole process: TLS, HTTP, decoding, sharing, indexing, handlers. The stock
figures are those of the official Python client, which has no comparable informer.
"""

import json
from pathlib import Path

from refloat.api.meta import Object
from refloat.bench import clients, informer_process, pods, processes
from refloat.bench.results import Progress, Row, cost
from refloat.client import kinds
from refloat.client.http import HttpClient

PODS = 10_000
EVENTS = 5_000


async def measure(progress: Progress) -> list[Row]:
    """Fill a server, follow the pods by list and by stream, and change them."""
    async with clients.up() as cluster:
        progress(f"{PODS} pods")
        names = await _fill(cluster.client)
        rows = []
        for mode in ("stream", "list"):
            progress(f"follow by {mode}")
            rows += await _follow(cluster.client, cluster.kubeconfig, names, mode)
        return rows


async def _follow(
    client: HttpClient, config: Path, names: list[tuple[str, str]], mode: str
) -> list[Row]:
    async def touch(pod: tuple[str, str]) -> None:
        namespace, name = pod
        for message in ("still there", None):
            patch = {"status": {"message": message}}
            await client.patch(kinds.PODS, name, patch, namespace=namespace, subresource="status")

    arguments = (str(config), str(EVENTS), mode)
    async with processes.python(informer_process.__name__, *arguments) as (_, output):
        filled = json.loads(await output.readline())
        await clients.for_each(names[: EVENTS // 2], touch)
        changed = json.loads(await output.readline())
    count = filled["count"]
    memory, cpu = filled["resident"] / count / 1024, filled["cpu"] / count * 1e6
    event_cpu = changed["cpu"] / changed["count"] * 1e6
    return [
        cost(f"{mode}: memory per pod", memory, "KB", stock=99.6, aim=3),
        cost(f"{mode}: CPU per pod", cpu, "us", stock=1300, aim=60),
        cost(f"{mode}: CPU per event", event_cpu, "us", stock=614, aim=80),
    ]


async def _fill(client: HttpClient) -> list[tuple[str, str]]:
    for number in range(pods.NAMESPACES):
        await client.create(kinds.NAMESPACES, {"metadata": {"name": f"team-{number:02d}"}})
    maker = pods.PodMaker()
    bodies = [maker.pod(number) for number in range(PODS)]

    async def create(pod: Object) -> None:
        metadata = {key: v for key, v in pod["metadata"].items() if key not in pods.SERVER_FIELDS}
        namespace, name = metadata["namespace"], metadata["name"]
        await client.create(kinds.PODS, {**pod, "metadata": metadata}, namespace=namespace)
        status = {"status": pod["status"]}
        await client.patch(kinds.PODS, name, status, namespace=namespace, subresource="status")

    await clients.for_each(bodies, create)
    return [(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in bodies]
