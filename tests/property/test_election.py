# SPDX-License-Identifier: Apache-2.0
"""No two processes act as the leader at once, whatever freezes, hangs, jumps or races."""

import asyncio

import pytest

from refloat.client import errors
from refloat.client.kinds import LEASES
from refloat.runtime.errors import LeadershipLost
from refloat.sim.run import Sim
from tests.unit.runtime.clusters import RegistryCluster
from tests.unit.runtime.processes import ElectionProcess
from tests.virtual import virtual

CONTENDERS = 3
FAULTS = 25
TOUCH = {"metadata": {"labels": {"touched": "yes"}}}


class Contest:
    """Processes that contend, act while they lead, and come again after they lost."""

    def __init__(self, sim: Sim, cluster: RegistryCluster) -> None:
        self.sim = sim
        self.cluster = cluster
        self.alive: list[ElectionProcess] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.born = 0
        self.acts: list[tuple[float, str]] = []

    def enter(self, freezes: dict[int, float] | None = None) -> ElectionProcess:
        self.born += 1
        process = ElectionProcess(f"p{self.born}", self.cluster, self.sim.clock, self.sim.rand)
        process.clock.freezes = freezes or {}
        process.work_client.wrote = lambda: self.judge(process)
        self.alive.append(process)
        self.tasks.append(asyncio.ensure_future(self.live(process)))
        return process

    def judge(self, acting: ElectionProcess | None = None) -> None:
        """At each moment at most one process may begin a write, and only that process does."""
        leaders = [each.name for each in self.alive if each.elector.leads]
        assert len(leaders) <= 1, f"{leaders} lead at {self.sim.clock.monotonic()}"
        if acting is not None:
            assert leaders == [acting.name], f"{acting.name} acts while {leaders} lead"
            self.acts.append((self.sim.clock.monotonic(), acting.name))

    async def live(self, process: ElectionProcess) -> None:
        await process.elector.acquire()
        try:
            while True:
                await process.guard.patch(LEASES, "refloat", TOUCH, namespace="kube-system")
                await process.clock.sleep(0.7)
        except LeadershipLost:
            await process.elector.close()
        except errors.ClientError:
            await process.elector.release()
        self.alive.remove(process)
        self.enter()

    async def watch(self, seconds: float) -> None:
        end = self.sim.clock.monotonic() + seconds
        while self.sim.clock.monotonic() < end:
            self.judge()
            await self.sim.clock.sleep(0.25)
            for task in self.tasks:
                if task.done():
                    task.result()
            self.tasks = [task for task in self.tasks if not task.done()]

    def disturb(self) -> None:
        """One fault, to one process."""
        rand = self.sim.rand
        victim = rand.choice(self.alive)
        match rand.below(6):
            case 0:
                victim.clock.freeze(rand.below(40) / 2)
            case 1:
                victim.clock.freezes[victim.clock.points + rand.below(6) + 1] = rand.below(60) / 2
            case 2:
                victim.client.hangs = not victim.client.hangs
            case 3:
                victim.client.down = None if victim.client.down else errors.Unavailable("away")
            case 4:
                victim.clock.wall_offset += (rand.random() - 0.5) * 7200
            case _:
                victim.client.lost.append(errors.Timeout("the answer was lost"))
                victim.client.latency = rand.below(4) / 2

    def calm(self) -> None:
        for each in self.alive:
            each.client.hangs, each.client.down, each.client.lost = False, None, []
            each.client.latency, each.clock.freezes = 0.0, {}

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for each in self.alive:
            await each.elector.close()


@virtual(seeds=120)
async def test_no_two_leaders_act_at_once_and_one_does_in_the_end(sim: Sim) -> None:
    contest = Contest(sim, await RegistryCluster.started())
    for _ in range(CONTENDERS):
        contest.enter()
    for _ in range(FAULTS):
        contest.disturb()
        await contest.watch(sim.rand.below(20) / 2)
    contest.calm()
    await contest.watch(60)
    quiet = sim.clock.monotonic()
    await contest.watch(10)
    assert [when for when, _ in contest.acts if when > quiet], "nobody leads"
    await contest.close()


@pytest.mark.parametrize("seconds", [4, 9, 12, 16, 60])
@pytest.mark.parametrize("point", range(1, 25))
@virtual(seeds=2)
async def test_a_leader_that_is_frozen_at_any_await_never_acts_beside_another(
    sim: Sim, point: int, seconds: int
) -> None:
    contest = Contest(sim, await RegistryCluster.started())
    contest.enter({point: seconds})
    await sim.clock.sleep(0.1)
    contest.enter()
    await contest.watch(seconds + 60)
    await contest.close()


@virtual(seeds=50)
async def test_of_many_that_start_at_once_one_leads(sim: Sim) -> None:
    contest = Contest(sim, await RegistryCluster.started())
    for _ in range(10):
        contest.enter()
    await contest.watch(20)
    assert len({name for _, name in contest.acts}) == 1
    await contest.close()
