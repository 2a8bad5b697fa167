# SPDX-License-Identifier: Apache-2.0
"""`refloat bench api`: the API server over TLS, with durable writes.

The stock figures are of a kube-apiserver with etcd (its fsync switched off)
on a machine with two cores, with the same load: 32 connections, pods of
2.5 KB.
"""

import asyncio
import json
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from refloat.bench import processes
from refloat.bench.results import Row

CONNECTIONS = 32
PODS = 3000
WATCHERS = 100
WATCHED_PODS = 2000

PODS_PATH = "/api/v1/namespaces/default/pods"
MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}


def pod(name: str) -> bytes:
    """A pod of about 2.5 KB, as a batch system writes them."""
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


@dataclass(frozen=True, slots=True)
class Client:
    session: aiohttp.ClientSession
    url: str

    async def call(self, method: str, path: str, **more: Any) -> None:
        async with self.session.request(method, self.url + path, **more) as answer:
            body = await answer.read()
            if answer.status >= 400:
                raise RuntimeError(f"{method} {path}: {answer.status} {body[:200]!r}")


async def measure(progress: Callable[[str], None]) -> list[Row]:
    """Run everything on a server of its own."""
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        data_dir = Path(folder) / "data"
        async with processes.server(data_dir) as running:
            return await _measure(running, progress)


async def _measure(running: processes.Running, progress: Callable[[str], None]) -> list[Row]:
    tls = ssl.create_default_context(cafile=str(running.authority))
    connector = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=tls)
    headers = {"Authorization": f"Bearer {running.token}"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        client = Client(session, running.url)
        rows = [Row("ready", running.ready_seconds, "s", stock=9, aim=1, smaller_is_better=True)]
        rows += await _rates(client, running, progress)
        progress(f"{WATCHERS} watchers, {WATCHED_PODS} pods")
        rows += await _watched(client, running, tls, headers)
        return rows


async def _rates(
    client: Client, running: processes.Running, progress: Callable[[str], None]
) -> list[Row]:
    names = [f"bench-{n:05d}" for n in range(PODS)]
    bodies = {name: pod(name) for name in names}
    phases: list[tuple[str, float, Callable[[str], Awaitable[None]]]] = [
        (
            "pod creates",
            400,
            lambda name: client.call("POST", PODS_PATH, data=bodies[name], headers=_JSON),
        ),
        (
            "status patches",
            360,
            lambda name: client.call(
                "PATCH", f"{PODS_PATH}/{name}/status", data=STATUS, headers=MERGE_PATCH
            ),
        ),
        ("gets", 940, lambda name: client.call("GET", f"{PODS_PATH}/{name}")),
    ]
    rows = []
    for what, stock, act in phases:
        progress(f"{PODS} {what}")
        rate = await _rate(names, act)
        rows.append(Row(what, rate, "/s", stock=stock, aim=2.5 * stock))
    resident = running.resident_bytes() / 1e6
    memory = Row("memory, 3,000 pods", resident, "MB", stock=890, aim=120, smaller_is_better=True)
    progress(f"{PODS} deletes")
    rate = await _rate(names, lambda name: client.call("DELETE", f"{PODS_PATH}/{name}"))
    return [*rows, Row("deletes", rate, "/s", stock=350, aim=875), memory]


_JSON = {"Content-Type": "application/json"}


async def _rate(names: Iterable[str], act: Callable[[str], Awaitable[None]]) -> float:
    """How many of these acts a second, with all connections busy."""
    left: Iterator[str] = iter(names)
    done = 0

    async def work() -> None:
        nonlocal done
        for name in left:
            await act(name)
            done += 1

    started = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(CONNECTIONS)))
    return done / (time.perf_counter() - started)


async def _watched(
    client: Client,
    running: processes.Running,
    tls: ssl.SSLContext,
    headers: dict[str, str],
) -> list[Row]:
    """Creates while a hundred watchers look on, and how late they see them."""
    sent: dict[bytes, float] = {}
    lags: list[float] = []
    connector = aiohttp.TCPConnector(limit=0, ssl=tls)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        watches = [
            asyncio.ensure_future(_watch(session, running.url, sent, lags, sampled=n == 0))
            for n in range(WATCHERS)
        ]
        await asyncio.sleep(1)

        async def create(name: str) -> None:
            sent[name.encode()] = time.perf_counter()
            await client.call("POST", PODS_PATH, data=pod(name), headers=_JSON)

        rate = await _rate([f"watched-{n:05d}" for n in range(WATCHED_PODS)], create)
        await asyncio.gather(*watches)
    lags.sort()
    late = lags[int(len(lags) * 0.99)]
    return [
        Row(f"creates, {WATCHERS} watchers", rate, "/s", stock=None, aim=400),
        Row("delivery lag, p99", late, "s", aim=1, smaller_is_better=True),
    ]


async def _watch(
    session: aiohttp.ClientSession,
    url: str,
    sent: dict[bytes, float],
    lags: list[float],
    *,
    sampled: bool,
) -> None:
    """Read a watch until all pods were seen; one watcher keeps the times."""
    timeout = aiohttp.ClientTimeout(total=None)
    seen = 0
    async with session.get(f"{url}{PODS_PATH}?watch=1", timeout=timeout) as answer:
        rest = b""
        async for chunk in answer.content.iter_any():
            *lines, rest = (rest + chunk).split(b"\n")
            now = time.perf_counter()
            seen += len(lines)
            if sampled:
                lags += [now - sent[_name(line)] for line in lines]
            if seen >= WATCHED_PODS:
                return


def _name(line: bytes) -> bytes:
    name: str = json.loads(line)["object"]["metadata"]["name"]
    return name.encode()
