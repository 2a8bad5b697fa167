# SPDX-License-Identifier: Apache-2.0
"""A node counts as down by its Ready condition and its lease, and not by a taint alone."""

from datetime import timedelta

import pytest

from refloat.client.requests import Request
from refloat.policy.recovery import zombie
from refloat.policy.recovery.failure_recovery import FailureRecoveryPolicy
from refloat.runtime.lease_observer import LATE_ANSWER_SECONDS
from refloat.sim.faulty_client import nothing
from tests.simulation.recovery_cluster import (
    FREED_AFTER,
    GRACE_SECONDS,
    LOST,
    NODE_GRACE,
    RecoveryCluster,
    healthy_node,
    lost_node,
)
from tests.simulation.test_zombies import DELETES, freed, left_alone
from tests.virtual import virtual


@virtual(RecoveryCluster)
async def test_node_without_lease_keeps_its_pods_until_it_has_one(cluster: RecoveryCluster) -> None:
    """Nothing shows that the node is silent."""
    await cluster.node(lease=False)
    await cluster.start()
    await cluster.zombie()
    await left_alone(cluster, until=1000)
    assert cluster.decided("ignored", "NodeLeaseMissing") == 1
    await cluster.lease()
    await freed(cluster, 1000 + NODE_GRACE + 0.05)


@virtual(RecoveryCluster)
async def test_a_node_without_a_ready_condition_keeps_its_pods(cluster: RecoveryCluster) -> None:
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


@virtual(healthy_node, DELETES, seeds=5)
async def test_ready_node_with_a_live_lease_is_not_forced(cluster: RecoveryCluster) -> None:
    """`kubectl taint node n node.kubernetes.io/unreachable:NoExecute`, by any hand."""
    await cluster.zombie()
    await cluster.zombie("over", finalizers=["example.com/held"])
    await cluster.status("over", phase="Failed")
    await cluster.until(FREED_AFTER + 30)
    await cluster.taint("n", *LOST)
    for _ in range(1000):
        await cluster.sleep(0.7)
        await cluster.renew()
    assert await cluster.phase() == "Running"
    assert (await cluster.get_pod("over")).metadata.deletion_grace_period_seconds == GRACE_SECONDS
    assert cluster.event_log.notes(zombie.REASON) == []
    assert cluster.faulty.writes == 0
    assert cluster.decided("ignored", "NodeReady") == 2


@virtual(healthy_node)
async def test_ready_node_with_a_silent_lease_is_not_forced(cluster: RecoveryCluster) -> None:
    """Until the Ready condition changes: the controller reads that without another event."""
    await cluster.zombie()
    await cluster.taint("n", *LOST)
    await left_alone(cluster, until=1000)
    await cluster.lose()
    await cluster.until(1000.1)
    assert await cluster.freed_at() == 1000


@virtual(lost_node)
async def test_not_ready_node_with_a_live_lease_is_not_forced(cluster: RecoveryCluster) -> None:
    await cluster.zombie()
    for _ in range(100):
        await cluster.sleep(NODE_GRACE - 1)
        await cluster.renew()
    assert await cluster.phase() == "Running"
    assert cluster.decided("waiting", "LeaseSilence") == 1  # and not a hundred times


@virtual(lost_node, FailureRecoveryPolicy(node_grace=timedelta(seconds=300)))
async def test_a_configured_grace_period_counts(cluster: RecoveryCluster) -> None:
    await cluster.zombie()
    await freed(cluster, 300)


# -- a server that stands still


@pytest.mark.parametrize("what", ["/nodes/", "/leases/"])
@virtual(RecoveryCluster)
async def test_a_node_whose_renewal_waits_before_a_frozen_server_is_not_forced(
    cluster: RecoveryCluster, what: str
) -> None:
    """The server answers the look after a freeze, and the renewal lands just after that."""

    async def frozen(request: Request) -> None:
        if what in request.path:
            cluster.faulty.before_read = nothing
            await cluster.sleep(LATE_ANSWER_SECONDS + 1)

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
