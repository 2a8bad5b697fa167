# SPDX-License-Identifier: Apache-2.0
"""Pods that hang in Terminating on a lost node: how benchmarks make them, and see them freed."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from refloat.api import times
from refloat.api.coordination import NODE_NAMESPACE
from refloat.api.meta import Object
from refloat.base.clock import RealClock
from refloat.bench import clients, jobs
from refloat.client import kinds
from refloat.client.contract import Client, Selector
from refloat.policy import node_taints, zombie

NODE = "lost"

ANNOTATION = {zombie.ANNOTATIONS[0]: "true"}

# A lease of so many seconds is renewed four times in it.
LEASE_SECONDS, BEAT_SECONDS = 4, 1.0

FAILED = Selector(fields="status.phase=Failed")

_READY = {"type": "Ready", "status": "True"}
_RUNNING = {"status": {"phase": "Running", "conditions": [_READY]}}


def node(pods: int, *, unreachable: bool) -> Object:
    """A node for so many pods that nobody serves."""
    capacity = {"cpu": "10000", "memory": "10Ti", "pods": str(pods)}
    status = "Unknown" if unreachable else "True"
    ready = {"type": "Ready", "status": status, "reason": "KubeletReady"}
    taint = {"key": node_taints.UNREACHABLE, "effect": "NoExecute"}
    return {
        "metadata": {"name": NODE},
        "spec": {"taints": [taint]} if unreachable else {},
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": [ready]},
    }


@asynccontextmanager
async def beating(client: Client) -> AsyncIterator[None]:
    """Its lease is renewed until the block ends."""
    spec = {"holderIdentity": NODE, "leaseDurationSeconds": LEASE_SECONDS}
    body = {"metadata": {"name": NODE}, "spec": {**spec, "renewTime": _now()}}
    await client.create(kinds.LEASES, body, namespace=NODE_NAMESPACE)
    beats = asyncio.ensure_future(_beat(client))
    try:
        yield
    finally:
        beats.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await beats


async def _beat(client: Client) -> None:
    while True:
        await asyncio.sleep(BEAT_SECONDS)
        renewed = {"spec": {"renewTime": _now()}}
        await client.patch(kinds.LEASES, NODE, renewed, namespace=NODE_NAMESPACE)


def _now() -> str:
    return times.format_micro(RealClock().now())


async def lose(client: Client, count: int) -> list[str]:
    """A node that is lost already, and the names of so many pods that run on it."""
    await client.create(kinds.NODES, node(count, unreachable=True))
    async with beating(client):
        pass
    names = [f"zombie-{number:05d}" for number in range(count)]

    async def make(name: str) -> None:
        await client.create(kinds.PODS, _pod(name), namespace=jobs.NAMESPACE)
        await run(client, name)

    await clients.each(names, make)
    return names


def _pod(name: str) -> Object:
    container = {"name": "main", "image": "registry.example.com/team/work:v1"}
    spec = {"nodeName": NODE, "terminationGracePeriodSeconds": 1, "containers": [container]}
    return {"metadata": {"name": name, "annotations": ANNOTATION}, "spec": spec}


async def run(client: Client, name: str) -> None:
    """What the node would say of its pod."""
    await client.patch(kinds.PODS, name, _RUNNING, namespace=jobs.NAMESPACE, subresource="status")


async def delete(client: Client, names: list[str]) -> None:
    await clients.each(
        names, lambda name: client.delete(kinds.PODS, name, namespace=jobs.NAMESPACE)
    )


async def last_threshold(client: Client, period: timedelta) -> datetime:
    """When the last of those that are being deleted may be freed."""
    ends = [
        zombie.deleted_at(pod)
        async for page in client.list(kinds.PODS, namespace=jobs.NAMESPACE)
        for pod in page.items
        if pod.is_terminating
    ]
    return max(ends) + period


async def freed(client: Client, count: int) -> list[float]:
    """When each was seen to be Failed, once all of them are."""
    seen: dict[str, float] = {}
    watch = client.watch(kinds.PODS, namespace=jobs.NAMESPACE, selector=FAILED, initial_events=True)
    async for event in watch:
        if event.object is not None and event.type != "DELETED":
            seen.setdefault(event.object.metadata.uid, time.time())
        if len(seen) == count:
            break
    await watch.aclose()
    return sorted(seen.values())


async def told(client: Client, reason: str, count: int) -> list[float]:
    """When each of so many events with this reason was made, once all of them are there."""
    seen: dict[str, float] = {}
    watch = client.watch(
        kinds.EVENTS,
        namespace=jobs.NAMESPACE,
        selector=Selector(fields=f"reason={reason}"),
        initial_events=True,
    )
    async for event in watch:
        if event.object is not None and event.object.event_time:
            made = times.parse(event.object.event_time)
            seen[event.object.metadata.name] = made.timestamp()
        if len(seen) == count:
            break
    await watch.aclose()
    return sorted(seen.values())


def most_within(moments: list[float], seconds: float) -> int:
    """The most of these, in order, that lie in any window of this length."""
    most, first = 0, 0
    for last, moment in enumerate(moments):
        while moments[first] <= moment - seconds:
            first += 1
        most = max(most, last - first + 1)
    return most
