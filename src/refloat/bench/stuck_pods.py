# SPDX-License-Identifier: Apache-2.0
"""Pods that hang in Terminating on a lost node, and waits until Refloat frees them."""

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
from refloat.bench import clients, job_load
from refloat.client import kinds
from refloat.client.contract import Client, Selector
from refloat.policy.node import node_taints
from refloat.policy.recovery import zombie

NODE = "lost"

ANNOTATION = {zombie.ANNOTATIONS[0]: "true"}

# A lease is renewed four times before its end.
LEASE_SECONDS, BEAT_SECONDS = 4, 1.0

FAILED = Selector(fields="status.phase=Failed")

_READY = {"type": "Ready", "status": "True"}
_RUNNING = {"status": {"phase": "Running", "conditions": [_READY]}}


def node(pods: int, *, unreachable: bool) -> Object:
    """A node for so many pods, without an agent."""
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
async def renewed_lease(client: Client) -> AsyncIterator[None]:
    """Renew the lease of the node until the block ends."""
    spec = {"holderIdentity": NODE, "leaseDurationSeconds": LEASE_SECONDS}
    body = {"metadata": {"name": NODE}, "spec": {**spec, "renewTime": _now()}}
    await client.create(kinds.LEASES, body, namespace=NODE_NAMESPACE)
    renewals = asyncio.ensure_future(_renew(client))
    try:
        yield
    finally:
        renewals.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await renewals


async def _renew(client: Client) -> None:
    while True:
        await asyncio.sleep(BEAT_SECONDS)
        patch = {"spec": {"renewTime": _now()}}
        await client.patch(kinds.LEASES, NODE, patch, namespace=NODE_NAMESPACE)


def _now() -> str:
    return times.format_micro(RealClock().now())


async def lose(client: Client, count: int) -> list[str]:
    """Create a lost node and so many running pods on it; their names."""
    await client.create(kinds.NODES, node(count, unreachable=True))
    async with renewed_lease(client):
        pass
    names = [f"zombie-{number:05d}" for number in range(count)]

    async def create(name: str) -> None:
        await client.create(kinds.PODS, _pod(name), namespace=job_load.NAMESPACE)
        await run(client, name)

    await clients.for_each(names, create)
    return names


def _pod(name: str) -> Object:
    container = {"name": "main", "image": "registry.example.com/team/work:v1"}
    spec = {"nodeName": NODE, "terminationGracePeriodSeconds": 1, "containers": [container]}
    return {"metadata": {"name": name, "annotations": ANNOTATION}, "spec": spec}


async def run(client: Client, name: str) -> None:
    """Report the pod as running, as its node would."""
    await client.patch(
        kinds.PODS, name, _RUNNING, namespace=job_load.NAMESPACE, subresource="status"
    )


async def delete(client: Client, names: list[str]) -> None:
    await clients.for_each(
        names, lambda name: client.delete(kinds.PODS, name, namespace=job_load.NAMESPACE)
    )


async def last_threshold(client: Client, period: timedelta) -> datetime:
    """The time from which Refloat may free the last of the terminating pods."""
    pods = clients.objects(client, kinds.PODS, namespace=job_load.NAMESPACE)
    return max([zombie.deleted_at(pod) async for pod in pods if pod.is_terminating]) + period


async def freed(client: Client, count: int) -> list[float]:
    """Wait until so many pods are Failed; when the watch showed each."""
    moments = await clients.watch_until(
        client,
        kinds.PODS,
        count,
        lambda _: time.time(),
        namespace=job_load.NAMESPACE,
        selector=FAILED,
    )
    return sorted(moments.values())


async def event_times(client: Client, reason: str, count: int) -> list[float]:
    """Wait for so many events with this reason; the time in each."""
    moments = await clients.watch_until(
        client,
        kinds.EVENTS,
        count,
        lambda event: times.parse(event.event_time).timestamp() if event.event_time else None,
        namespace=job_load.NAMESPACE,
        selector=Selector(fields=f"reason={reason}"),
    )
    return sorted(moments.values())


def most_within(moments: list[float], seconds: float) -> int:
    """The most of these ordered times in any window of this length."""
    most, first = 0, 0
    for last, moment in enumerate(moments):
        while moments[first] <= moment - seconds:
            first += 1
        most = max(most, last - first + 1)
    return most
