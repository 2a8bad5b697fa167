# SPDX-License-Identifier: Apache-2.0
"""Writes that a client keeps for long, and answers that are lost or late."""

from datetime import timedelta

import pytest

from refloat.client import fence
from refloat.client.requests import Request
from refloat.policy.recovery import zombie
from refloat.policy.recovery.failure_recovery import (
    Budget,
    FailureRecoveryPolicy,
    TaintNodeOutOfService,
)
from refloat.sim.faulty_client import FaultyClient
from tests.simulation.recovery_cluster import FREED_AFTER, SAFE, RecoveryCluster, lost_node, zombies
from tests.virtual import virtual

HOURLY = FailureRecoveryPolicy(budget=Budget(1, timedelta(hours=1)))


class Kept:
    """What the transport does with a write that waits for its limit, or is repeated."""

    def __init__(self, cluster: RecoveryCluster, *, was_sent: bool, heals: bool) -> None:
        self._cluster = cluster
        self._was_sent = was_sent
        self._heals = heals
        self.sent: list[float] = []

    async def __call__(self, _: Request) -> None:
        first = self._cluster.faulty.writes == 1
        if not first or self._was_sent:
            self._send()
        if not first:
            return
        if self._heals:
            await self._cluster.recover()
        await self._cluster.sim.clock.sleep(5)
        self._send()

    def _send(self) -> None:
        fence.check()
        self.sent.append(round(self._cluster.seconds))


@pytest.mark.parametrize("was_sent", [True, False], ids=["sent again", "sent late"])
@virtual(RecoveryCluster)
async def test_a_node_that_heals_while_a_write_waits_keeps_its_pod(
    cluster: RecoveryCluster, was_sent: bool
) -> None:
    answers = Kept(cluster, was_sent=was_sent, heals=True)
    await cluster.node()
    await cluster.start(before=answers)
    await cluster.zombie()
    await cluster.until(5000)
    assert answers.sent == ([FREED_AFTER] if was_sent else [])
    assert await cluster.phase() == "Running"
    assert cluster.event_log.notes(zombie.REASON) == []


@virtual(
    RecoveryCluster,
    FailureRecoveryPolicy(taint=(TaintNodeOutOfService("rules[0]", timedelta(minutes=10)),)),
)
async def test_node_that_heals_before_its_taint_is_not_tainted(cluster: RecoveryCluster) -> None:
    answers = Kept(cluster, was_sent=True, heals=True)
    await cluster.node()
    await cluster.running(annotations=SAFE)
    await cluster.start(before=answers)
    await cluster.until(5000)
    assert answers.sent == [600]
    assert await cluster.taints() == []


@virtual(RecoveryCluster, HOURLY)
async def test_node_that_stays_lost_is_read_anew_its_pod_freed(cluster: RecoveryCluster) -> None:
    """And a write that was never sent spends nothing of the budget."""
    answers = Kept(cluster, was_sent=False, heals=False)
    await cluster.node()
    await cluster.start(before=answers)
    await cluster.zombie()
    await cluster.until(FREED_AFTER + 10)
    assert len(answers.sent) == 1
    assert await cluster.phase() == "Failed"
    assert len(cluster.event_log.notes(zombie.REASON)) == 1


@virtual(RecoveryCluster, HOURLY)
async def test_a_write_that_was_sent_counts_as_spent(cluster: RecoveryCluster) -> None:
    """The write may have happened."""
    await cluster.node()
    await cluster.start(before=Kept(cluster, was_sent=True, heals=False))
    await cluster.zombie()
    await cluster.until(FREED_AFTER + 3600)
    assert await cluster.phase() == "Running"
    await cluster.until(FREED_AFTER + 3606)
    assert await cluster.phase() == "Failed"


@virtual(lost_node, seeds=5)
async def test_a_pod_that_was_freed_is_not_decided_on_again(cluster: RecoveryCluster) -> None:
    await cluster.zombie()
    await cluster.until(FREED_AFTER + 5)
    assert len(cluster.event_log.notes(zombie.REASON)) == 1
    assert cluster.decided("terminated", "Annotation") == 1
    assert cluster.decided("ignored", "AlreadyEnded") == 0


@virtual(RecoveryCluster, seeds=5)
async def test_an_answer_that_is_lost_is_told_of_once(cluster: RecoveryCluster) -> None:
    await cluster.node()
    await cluster.start(loses=(1,))
    await cluster.zombie()
    await cluster.until(FREED_AFTER + 60)
    assert len(cluster.event_log.notes(zombie.REASON)) == 1
    assert cluster.decided("terminated", "Annotation") == 1
    assert cluster.faulty.writes == 1


@virtual(RecoveryCluster, seeds=5)
async def test_answer_that_comes_after_the_watch_is_told_of_once(cluster: RecoveryCluster) -> None:

    class Slow(FaultyClient):
        async def _call(self, request: Request) -> bytes:
            answer = await super()._call(request)
            if request.method == "PATCH":
                await cluster.sleep(2)
            return answer

    await cluster.node()
    await cluster.start(__class__=Slow)
    await cluster.zombie()
    await cluster.until(FREED_AFTER + 60)
    assert len(cluster.event_log.notes(zombie.REASON)) == 1
    assert cluster.decided("terminated", "Annotation") == 1


@virtual(lost_node, HOURLY)
async def test_pod_that_ends_by_itself_leaves_line_of_the_budget(cluster: RecoveryCluster) -> None:
    names = await zombies(cluster, 2)
    await cluster.until(FREED_AFTER + 5)
    metric = "refloat_failure_recovery_held"
    assert cluster.sample(metric, cause="Budget") == 1
    (waits,) = [name for name in names if await cluster.phase(name) == "Running"]
    await cluster.status(waits, phase="Succeeded")
    await cluster.until(FREED_AFTER + 6)
    assert cluster.sample(metric, cause="Budget") == 0
