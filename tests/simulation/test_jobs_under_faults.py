# SPDX-License-Identifier: Apache-2.0
"""The whole cluster while answers to writes of all its controllers are lost or come late."""

import contextlib
from typing import Any

import pytest

from refloat.apiserver.identity import Identity
from refloat.base.tasks import Tasks
from refloat.client import errors, kinds
from refloat.client.contract import DeleteOptions
from refloat.client.local import LocalClient
from refloat.client.requests import Request
from refloat.sim.cluster import NAMESPACE, Cluster
from refloat.sim.run import Sim
from tests.virtual import virtual

PATIENCE = 30.0
LATER = 35.0
JOBS = 8


class FaultyConnection:
    """What happens to writes, while `bad`."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.bad = False
        self.tasks = Tasks()


class Faulty(LocalClient):
    """Each fourth write: its answer is lost, or the write comes after the client has given up."""

    wire: FaultyConnection

    async def _call(self, request: Request) -> bytes:
        wire = self.wire
        if request.method == "GET" or "/leases" in request.path or not wire.bad:
            return await super()._call(request)
        chance = wire.sim.rand.random()
        if chance < 0.125:
            with contextlib.suppress(errors.ClientError):
                await super()._call(request)
            raise errors.Unavailable("internal error", code=500)
        if chance < 0.25:
            wire.tasks.spawn(self._late(request), name="late")
            await wire.sim.clock.sleep(PATIENCE)
            raise errors.Timeout("no answer in time")
        return await super()._call(request)

    async def _late(self, request: Request) -> None:
        await self.wire.sim.clock.sleep(LATER)
        with contextlib.suppress(errors.ClientError):
            await super()._call(request)


class FaultyCluster(Cluster):
    def __init__(self, sim: Sim) -> None:
        super().__init__(sim)
        self.wire = FaultyConnection(sim)

    async def close(self) -> None:
        await super().close()
        await self.wire.tasks.close()

    def connect(self, user: Identity) -> LocalClient:
        client = Faulty(self.server.as_user(user), field_manager=user.name.rpartition(":")[2])
        client.wire = self.wire
        return client


async def left(cluster: Cluster) -> list[str]:
    pages = cluster.client.list(kinds.PODS, namespace=NAMESPACE)
    return [pod.metadata.name async for page in pages for pod in page.items]


@pytest.mark.parametrize("how", ["Background", "Foreground"])
@virtual(FaultyCluster, seeds=2)
async def test_jobs_deleted_under_faults_leave_no_pods(cluster: FaultyCluster, how: Any) -> None:
    cluster.wire.bad = True
    for number in range(JOBS):
        await cluster.submit(f"j{number}", completions=3, parallelism=3)
    for number in range(JOBS):
        await cluster.sleep(20 * cluster.sim.rand.random())
        options = DeleteOptions(propagation=how)
        name = f"j{number}"
        await cluster.client.delete(kinds.JOBS, name, namespace=NAMESPACE, options=options)
    await cluster.sleep(60)
    cluster.wire.bad = False
    await cluster.sleep(600)
    assert await left(cluster) == []


@virtual(FaultyCluster, seeds=2)
async def test_no_job_counts_more_pods_than_there_were_under_faults(cluster: FaultyCluster) -> None:
    cluster.wire.bad = True
    script = {"main": {"seconds": 1, "exitCode": 1}}
    for number in range(JOBS):
        await cluster.submit(f"j{number}", script=script, backoffLimit=2)
    await cluster.sleep(600)
    cluster.wire.bad = False
    await cluster.sleep(1200)
    counts = [cluster.job(f"j{number}").status.failed for number in range(JOBS)]
    pods = [len(cluster.pods(f"j{number}")) for number in range(JOBS)]
    assert counts == pods == [3] * JOBS
