# SPDX-License-Identifier: Apache-2.0
"""A node counts as down by its Ready condition and its lease, and not by a taint alone."""

from datetime import timedelta

import pytest

from refloat.client.requests import Request
from refloat.policy.recovery import zombie
from refloat.policy.recovery.failure_recovery import FailureRecoveryPolicy
from refloat.runtime.lease_observer import LATE_ANSWER_SECONDS
from refloat.sim.faulty_client import nothing
from refloat.sim.run import Sim, run
from tests.simulation.recovery_cluster import (
    FREED_AFTER,
    GRACE_SECONDS,
    LOST,
    NODE_GRACE,
    RecoveryCluster,
    lost_node,
)
from tests.simulation.test_zombies import DELETES, freed, left_alone
from tests.virtual import virtual


@virtual()
async def test_a_node_without_a_lease_keeps_its_pods_until_it_has_one(sim: Sim) -> None:
    """Nothing shows that the node is silent."""
    async with RecoveryCluster(sim) as cluster:
        await cluster.node(lease=False)
        await cluster.start()
        await cluster.zombie()
        await left_alone(cluster, until=1000)
        assert cluster.decided("ignored", "NodeLeaseMissing") == 1
        await cluster.lease()
        await freed(cluster, 1000 + NODE_GRACE + 0.05)


@virtual()
async def test_a_node_without_a_ready_condition_keeps_its_pods(sim: Sim) -> None:
    async with RecoveryCluster(sim) as cluster:
        await cluster.bare_node("n", taints=list(LOST))
        await cluster.lease()
        await cluster.start()
        await cluster.zombie()
        await left_alone(cluster, until=1000)
        assert cluster.decided("ignored", "NodeConditionMissing") == 1
        await cluster.lose()
        await cluster.until(1000.1)
        assert await cluster.phase() == "Failed"


# -- a taint is no evidence


@virtual(seeds=5)
async def test_a_ready_node_that_renews_its_lease_is_not_forced_by_a_taint(sim: Sim) -> None:
    """`kubectl taint node n node.kubernetes.io/unreachable:NoExecute`, by any hand."""
    async with RecoveryCluster(sim, DELETES) as cluster:
        await cluster.node(lost=False)
        await cluster.start()
        await cluster.zombie()
        await cluster.zombie("over", finalizers=["example.com/held"])
        await cluster.status("over", phase="Failed")
        await cluster.until(FREED_AFTER + 30)
        await cluster.taint("n", *LOST)
        for _ in range(1000):
            await sim.clock.sleep(0.7)
            await cluster.renew()
        assert await cluster.phase() == "Running"
        assert (
            await cluster.get_pod("over")
        ).metadata.deletion_grace_period_seconds == GRACE_SECONDS
        assert cluster.event_log.notes(zombie.REASON) == []
        assert cluster.faulty.writes == 0
        assert cluster.decided("ignored", "NodeReady") == 2


@virtual()
async def test_a_ready_node_is_not_forced_however_long_its_lease_is_silent(sim: Sim) -> None:
    """Until the Ready condition changes: the controller reads that without another event."""
    async with RecoveryCluster(sim) as cluster:
        await cluster.node(lost=False)
        await cluster.start()
        await cluster.zombie()
        await cluster.taint("n", *LOST)
        await left_alone(cluster, until=1000)
        await cluster.lose()
        await cluster.until(1000.1)
        assert await cluster.freed_at() == 1000


@virtual()
async def test_a_node_that_is_not_ready_but_renews_its_lease_is_not_forced(sim: Sim) -> None:
    async with lost_node(sim) as cluster:
        await cluster.zombie()
        for _ in range(100):
            await sim.clock.sleep(NODE_GRACE - 1)
            await cluster.renew()
        assert await cluster.phase() == "Running"
        assert cluster.decided("waiting", "LeaseSilence") == 1  # and not a hundred times


@virtual()
async def test_a_configured_grace_period_counts(sim: Sim) -> None:
    policy = FailureRecoveryPolicy(node_grace=timedelta(seconds=300))
    async with lost_node(sim, policy) as cluster:
        await cluster.zombie()
        await freed(cluster, 300)


# -- a server that stands still


@pytest.mark.parametrize("what", ["/nodes/", "/leases/"])
def test_a_node_whose_renewal_waits_before_a_frozen_server_is_not_forced(what: str) -> None:
    """The server answers the look after a freeze, and the renewal lands just after that."""

    async def program(sim: Sim) -> None:
        async with RecoveryCluster(sim) as cluster:

            async def frozen(request: Request) -> None:
                if what in request.path:
                    cluster.faulty.before_read = nothing
                    await sim.clock.sleep(LATE_ANSWER_SECONDS + 1)

            await cluster.node()
            await cluster.start(before_read=frozen)
            await cluster.zombie()
            await cluster.until(FREED_AFTER + LATE_ANSWER_SECONDS + 2)
            assert await cluster.phase() == "Running"
            await cluster.renew()
            renewed = cluster.seconds
            await left_alone(cluster, until=renewed + NODE_GRACE - 1)
            await cluster.until(renewed + NODE_GRACE + 1)
            assert await cluster.phase() == "Failed"

    run(program, seed=0)
