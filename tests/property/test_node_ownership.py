# SPDX-License-Identifier: Apache-2.0
"""Over many schedules: a node has one owner in the end, and none gives up without a living other.

Processes start on one folder, on copies of it and on other machines, are killed, and have their
wires held, cut and mended; what was sent before arrives late, also from the dead.
"""

from collections.abc import Callable

import pytest

from refloat.client import errors
from refloat.sim import api_server
from refloat.sim.api_server import SimulatedServer
from refloat.sim.run import Sim, run
from tests.unit.agent.lease_agents import LEASE_SECONDS, TIMEOUT_SECONDS, Agent, owner
from tests.virtual import seeds

SCHEDULES = 60
PARTS = 4
STEPS = 14

# Until the last late request is answered, a lease has run out, and its next owner has renewed
# the lease so often that others know.
CALM_SECONDS = TIMEOUT_SECONDS + 4 * LEASE_SECONDS


class Schedule:
    """Some processes, and what happens to them."""

    def __init__(self, sim: Sim, api: SimulatedServer) -> None:
        self.sim, self.api = sim, api
        self.agents: list[Agent] = []

    @property
    def alive(self) -> list[Agent]:
        return [each for each in self.agents if each.is_alive]

    def start(self) -> None:
        """At most two at once: on one folder, on copies of it, or on different ones."""
        if len(self.alive) < 2:
            agent = Agent(self.sim, self.api, self.sim.rand.choice(["a", "a", "b"]))
            self.agents.append(agent)
            agent.start()

    async def step(self) -> None:
        rand = self.sim.rand
        acts: list[Callable[[], object]] = [self.start]
        for each in self.alive:
            acts += [each.wire.hold, each.wire.deliver, self._lose(each), self._break(each)]
        for each in self.agents:
            acts.append(each.wire.deliver)
        rand.choice(acts)()
        if self.alive and rand.below(5) == 0:
            agent = rand.choice(self.alive)
            await agent.kill()
        await self.sim.clock.sleep(60 * rand.random() ** 2)

    def _lose(self, agent: Agent) -> Callable[[], None]:
        def act() -> None:
            agent.wire.lose_answers = not agent.wire.lose_answers

        return act

    def _break(self, agent: Agent) -> Callable[[], None]:
        def act() -> None:
            agent.wire.error = None if agent.wire.error else errors.Unavailable("broken")

        return act

    def mend(self) -> None:
        for each in self.agents:
            each.wire.deliver()
            each.wire.lose_answers, each.wire.error = False, None


async def _play(sim: Sim) -> None:
    async with api_server.serve(sim) as api:
        schedule = Schedule(sim, api)
        schedule.start()
        for _ in range(STEPS):
            await schedule.step()
            _check_none_gave_up_alone(schedule)
        schedule.mend()
        if not schedule.alive:
            schedule.start()
        await sim.clock.sleep(CALM_SECONDS)
        _check_none_gave_up_alone(schedule)
        (last,) = schedule.alive
        assert last.is_sure
        assert last.replaced == []
        assert await owner(api) == f"{last.instance}/{last.incarnation}"
        for each in schedule.agents:
            await each.kill()


def _check_none_gave_up_alone(schedule: Schedule) -> None:
    """An agent that gave up saw another one renew: that one renewed after the agent began."""
    for each in schedule.agents:
        if each.replaced:
            others = [other for other in schedule.agents if other is not each]
            last = max((at for other in others for at in other.renewed), default=-1.0)
            assert last > each.started_at, "no other agent has renewed since it began"


@pytest.mark.parametrize("part", range(PARTS))
def test_one_process_owns_the_node_in_the_end_and_none_gives_up_without_a_living_other(
    part: int,
) -> None:
    for seed in seeds(SCHEDULES):
        if seed % PARTS == part:
            run(_play, seed=seed)


async def _alone(sim: Sim) -> None:
    """One living process after a dead one on its folder, or on another machine."""
    async with api_server.serve(sim) as api:
        rand = sim.rand
        dead = Agent(sim, api, rand.choice("ab"))
        dead.start()
        await sim.clock.sleep(10 + 40 * rand.random())
        dead.wire.hold()
        await sim.clock.sleep(90 * rand.random())
        await dead.kill()
        agent = Agent(sim, api, "a")
        agent.start()
        delivered = False
        for _ in range(STEPS):
            act = rand.below(5)
            if act == 0 and not delivered:
                delivered = True
                dead.wire.deliver()
            elif act == 1:
                agent.wire.hold()
            elif act == 2:
                agent.wire.lose_answers = not agent.wire.lose_answers
            else:
                agent.wire.deliver()
            await sim.clock.sleep(60 * rand.random() ** 2)
            assert agent.replaced == []
        dead.wire.deliver()
        agent.wire.deliver()
        agent.wire.lose_answers = False
        await sim.clock.sleep(CALM_SECONDS)
        assert (agent.replaced, agent.is_sure) == ([], True)
        assert await owner(api) == f"a/{agent.incarnation}"


def test_a_process_that_follows_a_dead_one_never_gives_up() -> None:
    for seed in seeds(SCHEDULES):
        run(_alone, seed=seed)
