# SPDX-License-Identifier: Apache-2.0
"""A node counts as down by its Ready condition and its lease, and not by a taint alone."""

from datetime import timedelta

import pytest

from refloat.client.requests import Request
from refloat.policy import zombie
from refloat.policy.failure_recovery import FailureRecoveryPolicy
from refloat.runtime.lease_observer import LATE_ANSWER_SECONDS
from refloat.sim.run import Sim, run
from tests.simulation.job_world import nothing
from tests.simulation.recovery_world import (
    FREED_AFTER,
    GRACE_SECONDS,
    LOST,
    NODE_GRACE,
    stage,
)
from tests.simulation.test_zombies import DELETES, freed, left_alone
from tests.virtual import virtual


@virtual()
async def test_a_node_without_a_lease_keeps_its_pods_until_it_has_one(sim: Sim) -> None:
    """Nothing shows that it is silent."""
    async with stage(sim) as s:
        await s.node(lease=False)
        await s.start()
        await s.zombie()
        await left_alone(s, until=1000)
        assert s.decided("ignored", "NodeLeaseMissing") == 1
        await s.lease()
        await freed(s, 1000 + NODE_GRACE + 0.05)


@virtual()
async def test_a_node_without_a_ready_condition_keeps_its_pods(sim: Sim) -> None:
    async with stage(sim) as s:
        await s.world.node("n", taints=list(LOST))
        await s.lease()
        await s.start()
        await s.zombie()
        await left_alone(s, until=1000)
        assert s.decided("ignored", "NodeConditionMissing") == 1
        await s.lose()
        await s.until(1000.1)
        assert await s.phase() == "Failed"


# -- a taint is no evidence


@virtual(seeds=5)
async def test_a_ready_node_that_renews_its_lease_is_not_forced_by_a_taint(sim: Sim) -> None:
    """`kubectl taint node n node.kubernetes.io/unreachable:NoExecute`, by any hand."""
    async with stage(sim, DELETES) as s:
        await s.node(lost=False)
        await s.start()
        await s.zombie()
        await s.zombie("over", finalizers=["example.com/held"])
        await s.world.status("over", phase="Failed")
        await s.until(FREED_AFTER + 30)
        await s.taint("n", *LOST)
        for _ in range(1000):
            await sim.clock.sleep(0.7)
            await s.renew()
        assert await s.phase() == "Running"
        assert (await s.pod("over")).metadata.deletion_grace_period_seconds == GRACE_SECONDS
        assert s.told(zombie.REASON) == []
        assert s.world.mortal.writes == 0
        assert s.decided("ignored", "NodeReady") == 2


@virtual()
async def test_a_ready_node_is_not_forced_however_long_its_lease_is_silent(sim: Sim) -> None:
    """Until its Ready condition says something else: that is looked at without another event."""
    async with stage(sim) as s:
        await s.node(lost=False)
        await s.start()
        await s.zombie()
        await s.taint("n", *LOST)
        await left_alone(s, until=1000)
        await s.lose()
        await s.until(1000.1)
        assert await s.freed_at() == 1000


@virtual()
async def test_a_node_that_is_not_ready_but_renews_its_lease_is_not_forced(sim: Sim) -> None:
    async with stage(sim) as s:
        await s.node()
        await s.start()
        await s.zombie()
        for _ in range(100):
            await sim.clock.sleep(NODE_GRACE - 1)
            await s.renew()
        assert await s.phase() == "Running"
        assert s.decided("waiting", "LeaseSilence") == 1  # and not a hundred times


@virtual()
async def test_a_configured_grace_period_counts(sim: Sim) -> None:
    policy = FailureRecoveryPolicy(node_grace=timedelta(seconds=300))
    async with stage(sim, policy) as s:
        await s.node()
        await s.start()
        await s.zombie()
        await freed(s, 300)


# -- a server that stands still


@pytest.mark.parametrize("what", ["/nodes/", "/leases/"])
def test_a_node_whose_renewal_waits_before_a_frozen_server_is_not_forced(what: str) -> None:
    """The server answers the look after a freeze, and the renewal lands just after that."""

    async def program(sim: Sim) -> None:
        async with stage(sim) as s:

            async def frozen(request: Request) -> None:
                if what in request.path:
                    s.world.mortal.before_read = nothing
                    await sim.clock.sleep(LATE_ANSWER_SECONDS + 1)

            await s.node()
            await s.start(before_read=frozen)
            await s.zombie()
            await s.until(FREED_AFTER + LATE_ANSWER_SECONDS + 2)
            assert await s.phase() == "Running"
            await s.renew()
            renewed = s.seconds
            await left_alone(s, until=renewed + NODE_GRACE - 1)
            await s.until(renewed + NODE_GRACE + 1)
            assert await s.phase() == "Failed"

    run(program, seed=0)
