# SPDX-License-Identifier: Apache-2.0
"""`refloat bench soak`: mixed load for ten minutes, and what it does to memory.

Creates, reads, patches, lists, watches and deletes, all at once; the number
of objects stays the same, so memory must too. The store's history fills up
first, so growth is counted from the end of the first third.
"""

import asyncio
import os
import ssl
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import aiohttp

from refloat.bench import processes
from refloat.bench.api import MERGE_PATCH, PODS_PATH, STATUS, Client, pod
from refloat.bench.results import Row

SECONDS = float(os.environ.get("REFLOAT_SOAK_SECONDS", "600"))
WORKERS = 16
WATCHERS = 8
SAMPLE_SECONDS = 5.0


async def measure(progress: Callable[[str], None]) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="refloat-soak-") as folder:
        async with processes.server(Path(folder) / "data") as running:
            return await _measure(running, progress)


async def _measure(running: processes.Running, progress: Callable[[str], None]) -> list[Row]:
    tls = ssl.create_default_context(cafile=str(running.authority))
    connector = aiohttp.TCPConnector(limit=0, ssl=tls)
    headers = {"Authorization": f"Bearer {running.token}"}
    until = time.monotonic() + SECONDS
    done: list[int] = [0]
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        client = Client(session, running.url)
        watches = [
            asyncio.ensure_future(_watch(session, running.url, until)) for _ in range(WATCHERS)
        ]
        work = [asyncio.ensure_future(_work(client, n, until, done)) for n in range(WORKERS)]
        samples = await _sample(running, until, done, progress)
        await asyncio.gather(*work, *watches)
    early = max(samples[len(samples) // 3 : len(samples) // 2])
    late = max(samples[-len(samples) // 4 :])
    return [
        Row("mixed load", done[0] / SECONDS, "/s"),
        Row("memory after a third", early, "MB"),
        Row("memory at the end", late, "MB", aim=early * 1.05, smaller_is_better=True),
    ]


async def _sample(
    running: processes.Running, until: float, done: list[int], progress: Callable[[str], None]
) -> list[float]:
    samples = []
    while time.monotonic() < until:
        await asyncio.sleep(min(SAMPLE_SECONDS, SECONDS / 20))
        samples.append(running.resident_bytes() / 1e6)
        progress(f"{done[0]} requests, {samples[-1]:.0f} MB")
    return samples


async def _work(client: Client, worker: int, until: float, done: list[int]) -> None:
    """One object's life over and over, with lists in between."""
    turn = 0
    while time.monotonic() < until:
        name = f"soak-{worker}-{turn}"
        turn += 1
        await client.call(
            "POST", PODS_PATH, data=pod(name), headers={"Content-Type": "application/json"}
        )
        path = f"{PODS_PATH}/{name}"
        await client.call("PATCH", f"{path}/status", data=STATUS, headers=MERGE_PATCH)
        await client.call("GET", path)
        await client.call("GET", f"{PODS_PATH}?limit=10&labelSelector=example.com/label-1")
        await client.call("DELETE", path)
        done[0] += 5


async def _watch(session: aiohttp.ClientSession, url: str, until: float) -> None:
    """Watch and come back again and again, as clients do."""
    timeout = aiohttp.ClientTimeout(total=None)
    while (left := until - time.monotonic()) > 0:
        seconds = max(1, min(20, int(left)))
        address = f"{url}{PODS_PATH}?watch=1&timeoutSeconds={seconds}"
        async with session.get(address, timeout=timeout) as answer:
            async for _ in answer.content.iter_any():
                pass
