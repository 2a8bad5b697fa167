# SPDX-License-Identifier: Apache-2.0
"""Writes that a client keeps for long, and answers that are lost or late."""

from datetime import timedelta

import pytest

from refloat.client import fence
from refloat.client.requests import Request
from refloat.policy import zombie
from refloat.policy.failure_recovery import (
    Budget,
    FailureRecoveryPolicy,
    TaintNodeOutOfService,
)
from refloat.sim.run import Sim, run
from tests.simulation.controller_world import Faulty
from tests.simulation.recovery_world import FREED_AFTER, SAFE, Stage, stage, zombies
from tests.virtual import virtual

HOURLY = FailureRecoveryPolicy(budget=Budget(1, timedelta(hours=1)))


class Kept:
    """What the transport does with a write that waits for its limit, or is sent again."""

    def __init__(self, s: Stage, *, was_sent: bool, heals: bool) -> None:
        self._stage = s
        self._was_sent = was_sent
        self._heals = heals
        self.sent: list[float] = []

    async def __call__(self, _: Request) -> None:
        first = self._stage.world.mortal.writes == 1
        if not first or self._was_sent:
            self._send()
        if not first:
            return
        if self._heals:
            await self._stage.find()
        await self._stage.sim.clock.sleep(5)
        self._send()

    def _send(self) -> None:
        fence.check()
        self.sent.append(round(self._stage.seconds))


@pytest.mark.parametrize("was_sent", [True, False], ids=["sent again", "sent late"])
def test_a_node_that_heals_while_a_write_waits_keeps_its_pod(was_sent: bool) -> None:
    async def program(sim: Sim) -> None:
        async with stage(sim) as s:
            kept = Kept(s, was_sent=was_sent, heals=True)
            await s.node()
            await s.start(before=kept)
            await s.zombie()
            await s.until(5000)
            assert kept.sent == ([FREED_AFTER] if was_sent else [])
            assert await s.phase() == "Running"
            assert s.told(zombie.REASON) == []

    run(program, seed=0)


@virtual()
async def test_a_node_that_heals_while_its_taint_waits_is_not_tainted(sim: Sim) -> None:
    rule = TaintNodeOutOfService("rules[0]", timedelta(minutes=10))
    async with stage(sim, FailureRecoveryPolicy(taint=(rule,))) as s:
        kept = Kept(s, was_sent=True, heals=True)
        await s.node()
        await s.running(annotations=SAFE)
        await s.start(before=kept)
        await s.until(5000)
        assert kept.sent == [600]
        assert await s.taints() == []


@virtual()
async def test_a_node_that_stays_lost_is_looked_at_anew_and_its_pod_freed(sim: Sim) -> None:
    """And a write that was never sent spends nothing of the budget."""
    async with stage(sim, HOURLY) as s:
        kept = Kept(s, was_sent=False, heals=False)
        await s.node()
        await s.start(before=kept)
        await s.zombie()
        await s.until(FREED_AFTER + 10)
        assert len(kept.sent) == 1
        assert await s.phase() == "Failed"
        assert len(s.told(zombie.REASON)) == 1


@virtual()
async def test_a_write_that_was_sent_counts_as_spent(sim: Sim) -> None:
    """It may have happened."""
    async with stage(sim, HOURLY) as s:
        await s.node()
        await s.start(before=Kept(s, was_sent=True, heals=False))
        await s.zombie()
        await s.until(FREED_AFTER + 3600)
        assert await s.phase() == "Running"
        await s.until(FREED_AFTER + 3606)
        assert await s.phase() == "Failed"


@virtual(seeds=5)
async def test_a_pod_that_was_freed_is_not_decided_on_again(sim: Sim) -> None:
    async with stage(sim) as s:
        await s.node()
        await s.start()
        await s.zombie()
        await s.until(FREED_AFTER + 5)
        assert len(s.told(zombie.REASON)) == 1
        assert s.decided("terminated", "Annotation") == 1
        assert s.decided("ignored", "AlreadyEnded") == 0


@virtual(seeds=5)
async def test_an_answer_that_is_lost_is_told_of_once(sim: Sim) -> None:
    async with stage(sim) as s:
        await s.node()
        await s.start(loses=(1,))
        await s.zombie()
        await s.until(FREED_AFTER + 60)
        assert len(s.told(zombie.REASON)) == 1
        assert s.decided("terminated", "Annotation") == 1
        assert s.world.mortal.writes == 1


@virtual(seeds=5)
async def test_an_answer_that_comes_after_the_watch_is_told_of_once(sim: Sim) -> None:
    async with stage(sim) as s:

        class Slow(Faulty):
            async def _call(self, request: Request) -> bytes:
                answer = await super()._call(request)
                if request.method == "PATCH":
                    await sim.clock.sleep(2)
                return answer

        await s.node()
        await s.start(__class__=Slow)
        await s.zombie()
        await s.until(FREED_AFTER + 60)
        assert len(s.told(zombie.REASON)) == 1
        assert s.decided("terminated", "Annotation") == 1


@virtual()
async def test_a_pod_that_ends_by_itself_leaves_the_line_of_the_budget(sim: Sim) -> None:
    async with stage(sim, HOURLY) as s:
        await s.node()
        await s.start()
        names = await zombies(s, 2)
        await s.until(FREED_AFTER + 5)
        held = "refloat_failure_recovery_held"
        assert s.world.sample(held, cause="Budget") == 1
        (waits,) = [name for name in names if await s.phase(name) == "Running"]
        await s.world.status(waits, phase="Succeeded")
        await s.until(FREED_AFTER + 6)
        assert s.world.sample(held, cause="Budget") == 0
