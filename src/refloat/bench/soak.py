# SPDX-License-Identifier: Apache-2.0
"""`refloat bench soak`: ten minutes of mixed load, and the growth of memory.

Workers create, read, patch, list and delete pods while others watch. The number
of objects stays the same, so memory must too. The history of the store fills up
first; so growth counts from the end of the first third.
"""

import asyncio
import contextlib
import os
import time

from refloat.bench import clients
from refloat.bench.api import PODS_PATH, create_pod, patch_status, pod
from refloat.bench.clients import RawClient
from refloat.bench.results import Progress, Row, cost

SECONDS = float(os.environ.get("REFLOAT_SOAK_SECONDS", "600"))
WORKERS = 16
WATCHERS = 8
SAMPLE_SECONDS = 5.0


async def measure(progress: Progress) -> list[Row]:
    until = time.monotonic() + SECONDS
    counts = [0] * WORKERS
    samples: list[float] = []
    async with clients.up() as cluster:
        client = RawClient(cluster.server)
        load = [
            *(asyncio.ensure_future(_watch(client, until)) for _ in range(WATCHERS)),
            *(asyncio.ensure_future(_work(client, n, until, counts)) for n in range(WORKERS)),
        ]
        try:
            while time.monotonic() < until:
                await asyncio.sleep(min(SAMPLE_SECONDS, SECONDS / 20))
                samples.append(cluster.server.resident_bytes() / 1e6)
                progress(f"{sum(counts)} requests, {samples[-1]:.0f} MB")
            await asyncio.gather(*load)
        finally:
            await client.close()
    early = max(samples[len(samples) // 3 : len(samples) // 2])
    late = max(samples[-len(samples) // 4 :])
    return [
        Row("mixed load", sum(counts) / SECONDS, "/s"),
        Row("memory after a third", early, "MB"),
        cost("memory at the end", late, "MB", aim=early * 1.05),
    ]


async def _work(client: RawClient, worker: int, until: float, counts: list[int]) -> None:
    """Create, patch, read and delete one pod after the other, with lists in between."""
    turn = 0
    while time.monotonic() < until:
        name = f"soak-{worker}-{turn}"
        turn += 1
        await create_pod(client, pod(name))
        await patch_status(client, name)
        await client.call("GET", f"{PODS_PATH}/{name}")
        await client.call("GET", f"{PODS_PATH}?limit=10&labelSelector=example.com/label-1")
        await client.call("DELETE", f"{PODS_PATH}/{name}")
        counts[worker] += 5


async def _watch(client: RawClient, until: float) -> None:
    """Watch again and again, as clients do."""
    while (rest := until - time.monotonic()) > 0:
        seconds = max(1, min(20, int(rest)))
        stream = await client.stream(f"{PODS_PATH}?watch=1&timeoutSeconds={seconds}")
        with contextlib.closing(stream):
            while await stream.read():
                pass
