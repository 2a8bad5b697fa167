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
from refloat.sim.run import Sim, run
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
def test_a_node_that_heals_while_a_write_waits_keeps_its_pod(was_sent: bool) -> None:
    async def program(sim: Sim) -> None:
        async with RecoveryCluster(sim) as cluster:
            answers = Kept(cluster, was_sent=was_sent, heals=True)
            await cluster.node()
            await cluster.start(before=answers)
            await cluster.zombie()
            await cluster.until(5000)
            assert answers.sent == ([FREED_AFTER] if was_sent else [])
            assert await cluster.phase() == "Running"
            assert cluster.event_log.notes(zombie.REASON) == []

    run(program, seed=0)


@virtual()
async def test_a_node_that_heals_while_its_taint_waits_is_not_tainted(sim: Sim) -> None:
    rule = TaintNodeOutOfService("rules[0]", timedelta(minutes=10))
    async with RecoveryCluster(sim, FailureRecoveryPolicy(taint=(rule,))) as cluster:
        answers = Kept(cluster, was_sent=True, heals=True)
        await cluster.node()
        await cluster.running(annotations=SAFE)
        await cluster.start(before=answers)
        await cluster.until(5000)
        assert answers.sent == [600]
        assert await cluster.taints() == []


@virtual()
async def test_a_node_that_stays_lost_is_looked_at_anew_and_its_pod_freed(sim: Sim) -> None:
    """And a write that was never sent spends nothing of the budget."""
    async with RecoveryCluster(sim, HOURLY) as cluster:
        answers = Kept(cluster, was_sent=False, heals=False)
        await cluster.node()
        await cluster.start(before=answers)
        await cluster.zombie()
        await cluster.until(FREED_AFTER + 10)
        assert len(answers.sent) == 1
        assert await cluster.phase() == "Failed"
        assert len(cluster.event_log.notes(zombie.REASON)) == 1


@virtual()
async def test_a_write_that_was_sent_counts_as_spent(sim: Sim) -> None:
    """The write may have happened."""
    async with RecoveryCluster(sim, HOURLY) as cluster:
        await cluster.node()
        await cluster.start(before=Kept(cluster, was_sent=True, heals=False))
        await cluster.zombie()
        await cluster.until(FREED_AFTER + 3600)
        assert await cluster.phase() == "Running"
        await cluster.until(FREED_AFTER + 3606)
        assert await cluster.phase() == "Failed"


@virtual(seeds=5)
async def test_a_pod_that_was_freed_is_not_decided_on_again(sim: Sim) -> None:
    async with lost_node(sim) as cluster:
        await cluster.zombie()
        await cluster.until(FREED_AFTER + 5)
        assert len(cluster.event_log.notes(zombie.REASON)) == 1
        assert cluster.decided("terminated", "Annotation") == 1
        assert cluster.decided("ignored", "AlreadyEnded") == 0


@virtual(seeds=5)
async def test_an_answer_that_is_lost_is_told_of_once(sim: Sim) -> None:
    async with RecoveryCluster(sim) as cluster:
        await cluster.node()
        await cluster.start(loses=(1,))
        await cluster.zombie()
        await cluster.until(FREED_AFTER + 60)
        assert len(cluster.event_log.notes(zombie.REASON)) == 1
        assert cluster.decided("terminated", "Annotation") == 1
        assert cluster.faulty.writes == 1


@virtual(seeds=5)
async def test_an_answer_that_comes_after_the_watch_is_told_of_once(sim: Sim) -> None:
    async with RecoveryCluster(sim) as cluster:

        class Slow(FaultyClient):
            async def _call(self, request: Request) -> bytes:
                answer = await super()._call(request)
                if request.method == "PATCH":
                    await sim.clock.sleep(2)
                return answer

        await cluster.node()
        await cluster.start(__class__=Slow)
        await cluster.zombie()
        await cluster.until(FREED_AFTER + 60)
        assert len(cluster.event_log.notes(zombie.REASON)) == 1
        assert cluster.decided("terminated", "Annotation") == 1


@virtual()
async def test_a_pod_that_ends_by_itself_leaves_the_line_of_the_budget(sim: Sim) -> None:
    async with lost_node(sim, HOURLY) as cluster:
        names = await zombies(cluster, 2)
        await cluster.until(FREED_AFTER + 5)
        metric = "refloat_failure_recovery_held"
        assert cluster.sample(metric, cause="Budget") == 1
        (waits,) = [name for name in names if await cluster.phase(name) == "Running"]
        await cluster.status(waits, phase="Succeeded")
        await cluster.until(FREED_AFTER + 6)
        assert cluster.sample(metric, cause="Budget") == 0
