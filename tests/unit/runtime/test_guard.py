# SPDX-License-Identifier: Apache-2.0
"""What the guard leaves for the transport; what it stops itself is in `test_election`."""

from typing import Any

import pytest

from refloat.client import fence
from refloat.client.contract import Kind
from refloat.client.kinds import LEASES
from refloat.runtime.errors import LeadershipLost
from refloat.runtime.guard import Guard
from refloat.sim.run import Sim
from tests.unit.runtime.clusters import ClusterClient, RegistryCluster
from tests.virtual import virtual


class SlowClient(ClusterClient):
    """Waits, for its rate limit, say, and asks the fence before it sends."""

    async def delete(
        self, kind: Kind[Any], name: str, *, namespace: str = "", options: object = None
    ) -> None:
        await self._clock.sleep(10)
        fence.check()
        self.calls.append("sent")


class Leader:
    def __init__(self) -> None:
        self.leads = True

    def check(self) -> None:
        if not self.leads:
            raise LeadershipLost("somebody else leads")


@virtual()
async def test_leadership_that_is_lost_while_a_write_waits_stops_it_before_it_is_sent(
    sim: Sim,
) -> None:
    leader, client = Leader(), SlowClient(RegistryCluster().world, sim.clock)
    guard = Guard(client, leader.check)
    sim.clock.call_at(5, lambda: setattr(leader, "leads", False))
    with pytest.raises(LeadershipLost, match="somebody else leads"):
        await guard.delete(LEASES, "x", namespace="default")
    assert client.calls == []


@virtual()
async def test_a_leader_that_still_leads_sends(sim: Sim) -> None:
    client = SlowClient(RegistryCluster().world, sim.clock)
    await Guard(client, Leader().check).delete(LEASES, "x", namespace="default")
    assert client.calls == ["sent"]


@virtual()
async def test_a_fence_ends_with_its_call(sim: Sim) -> None:
    leader, client = Leader(), SlowClient(RegistryCluster().world, sim.clock)
    await Guard(client, leader.check).delete(LEASES, "x", namespace="default")
    leader.leads = False
    fence.check()
    await client.delete(LEASES, "x", namespace="default")
    assert client.calls == ["sent", "sent"]
