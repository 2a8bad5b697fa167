# SPDX-License-Identifier: Apache-2.0
"""The leases of 100 nodes, renewed over the wire all the while."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from tests.hostile.client import NODES, AttackTarget, HostileConnection, node

PERIOD_SECONDS = 10.0
"""As nodes do."""

LATE_SECONDS = 10.0
"""A lease is good for 40 s and renewed every 10 s: a renewal that takes longer is late."""

_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


@dataclass
class LeaseRenewals:
    """What became of the renewals since the last reset."""

    count: int = 0
    refused: int = 0  # answers that are no success
    slowest: float = 0.0  # seconds from sending to the answer

    def reset(self) -> None:
        self.count, self.refused, self.slowest = 0, 0, 0.0


@asynccontextmanager
async def renewed(
    target: AttackTarget, period: float = PERIOD_SECONDS
) -> AsyncIterator[LeaseRenewals]:
    """Register the nodes and renew their leases until the end of the block."""
    renewals = LeaseRenewals()
    for number in range(NODES):
        await _register(target, number)
    tasks = [asyncio.create_task(_renew(target, n, renewals, period)) for n in range(NODES)]
    try:
        yield renewals
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.1)  # for the connections to be closed


async def _register(target: AttackTarget, number: int) -> None:
    name = node(number)
    body = {"metadata": {"name": name}}
    code = await target.ask(name, "POST", "/api/v1/nodes", {"kind": "Node", **body})
    assert code in (201, 409), code
    spec = {"holderIdentity": name, "leaseDurationSeconds": 40}
    code = await target.ask(name, "POST", _LEASES, {**body, "spec": spec})
    assert code in (201, 409), code


async def _renew(target: AttackTarget, number: int, renewals: LeaseRenewals, period: float) -> None:
    await asyncio.sleep(period * number / NODES)
    wire = await target.connect()
    try:
        while True:
            started = time.monotonic()
            code = await _renew_once(wire, number)
            took = time.monotonic() - started
            renewals.count += 1
            renewals.refused += code != 200
            renewals.slowest = max(renewals.slowest, took)
            await asyncio.sleep(max(0.0, period - took))
    finally:
        wire.close()


async def _renew_once(wire: HostileConnection, number: int) -> int:
    name = node(number)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    body = {"spec": {"renewTime": f"{stamp}.000000Z"}}
    media = "application/merge-patch+json"
    wire.send(name, "PATCH", f"{_LEASES}/{name}", body, Content_Type=media)
    head = await wire.reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    with suppress(asyncio.IncompleteReadError):
        await wire.reader.readexactly(length)
    return int(head.split()[1])
