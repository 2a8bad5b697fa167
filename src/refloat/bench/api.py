# SPDX-License-Identifier: Apache-2.0
"""`refloat bench api`: the API server over TLS, with durable writes.

The stock figures are those of a kube-apiserver with etcd (without fsync) on a
machine with two cores under the same load: 32 connections, pods of 2.5 KB.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from refloat.bench import clients
from refloat.bench.clients import RawClient
from refloat.bench.results import Progress, Row, cost

PODS = 3000
WATCHERS = 100
WATCHED_PODS = 2000

PODS_PATH = "/api/v1/namespaces/default/pods"
_MERGE_PATCH = "application/merge-patch+json"


def pod(name: str) -> bytes:
    """A pod of about 2.5 KB, as batch systems create them."""
    env = [{"name": f"SETTING_{n}", "value": f"value-{n}-{'x' * 24}"} for n in range(16)]
    container = {
        "name": "main",
        "image": "registry.example.com/team/trainer:v1.2.3",
        "command": ["python", "-m", "train", "--config", "/etc/train/config.yaml"],
        "env": env,
        "resources": {
            "requests": {"cpu": "500m", "memory": "1Gi"},
            "limits": {"cpu": "1", "memory": "2Gi"},
        },
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    }
    labels = {f"example.com/label-{n}": f"value-{n}" for n in range(6)}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": labels,
                "annotations": {"example.com/note": "n" * 300},
            },
            "spec": {
                "restartPolicy": "Never",
                "containers": [container],
                "volumes": [{"name": "scratch", "emptyDir": {}}],
            },
        }
    ).encode()


STATUS = json.dumps(
    {
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "podIP": "10.0.0.1",
        }
    }
).encode()


async def create_pod(client: RawClient, body: bytes) -> None:
    await client.call("POST", PODS_PATH, body)


async def patch_status(client: RawClient, name: str) -> None:
    await client.call("PATCH", f"{PODS_PATH}/{name}/status", STATUS, _MERGE_PATCH)


async def measure(progress: Progress) -> list[Row]:
    names = [f"bench-{n:05d}" for n in range(PODS)]
    bodies = {name: pod(name) for name in names}

    async def phase(what: str, stock: float, act: Callable[[str], Awaitable[None]]) -> Row:
        progress(f"{PODS} {what}")
        return Row(what, await _rate(names, act), "/s", stock=stock, aim=2.5 * stock)

    async with clients.up() as cluster:
        server = cluster.server
        client = RawClient(server)
        try:
            rows = [
                cost("ready", server.ready_seconds, "s", stock=9, aim=1),
                await phase("pod creates", 400, lambda name: create_pod(client, bodies[name])),
                await phase("status patches", 360, partial(patch_status, client)),
                await phase("gets", 940, lambda name: client.call("GET", f"{PODS_PATH}/{name}")),
            ]
            megabytes = server.resident_bytes() / 1e6
            rows += [
                await phase(
                    "deletes", 350, lambda name: client.call("DELETE", f"{PODS_PATH}/{name}")
                ),
                cost("memory, 3,000 pods", megabytes, "MB", stock=890, aim=120),
            ]
            progress(f"{WATCHERS} watchers, {WATCHED_PODS} pods")
            return rows + await _watched_creates(client)
        finally:
            await client.close()


async def _rate(names: Sequence[str], act: Callable[[str], Awaitable[None]]) -> float:
    """How many of these calls finish per second, with all connections busy."""
    started = time.perf_counter()
    await clients.for_each(names, act)
    return len(names) / (time.perf_counter() - started)


async def _watched_creates(client: RawClient) -> list[Row]:
    """The rate of creates with a hundred watchers, and the delay of their events."""
    create_times: dict[str, float] = {}
    lags: list[float] = []
    watches = [
        asyncio.ensure_future(_watch(client, create_times, lags if n == 0 else None))
        for n in range(WATCHERS)
    ]
    await asyncio.sleep(1)

    async def create(name: str) -> None:
        create_times[name] = time.perf_counter()
        await create_pod(client, pod(name))

    rate = await _rate([f"watched-{n:05d}" for n in range(WATCHED_PODS)], create)
    await asyncio.gather(*watches)
    lags.sort()
    return [
        Row(f"creates, {WATCHERS} watchers", rate, "/s", aim=400),
        cost("delivery lag, p99", lags[int(len(lags) * 0.99)], "s", aim=1),
    ]


async def _watch(
    client: RawClient, create_times: dict[str, float], lags: list[float] | None
) -> None:
    """Watch until all pods have arrived; add the delay of each event to `lags`."""
    count = 0
    rest = b""
    with contextlib.closing(await client.stream(f"{PODS_PATH}?watch=1")) as stream:
        while count < WATCHED_PODS:
            if not (piece := await stream.read()):
                raise RuntimeError(f"the server ended a watch after {count} events")
            *lines, rest = (rest + piece).split(b"\n")
            now = time.perf_counter()
            count += len(lines)
            if lags is not None:
                names = [json.loads(line)["object"]["metadata"]["name"] for line in lines]
                lags += [now - create_times[name] for name in names]
