# SPDX-License-Identifier: Apache-2.0
"""Of two agents with one name, one runs the node."""

import asyncio
from typing import Any

import pytest

from refloat.agent import claim
from refloat.agent.claim import AGENT, Claim, Taken
from refloat.agent.node import Heartbeats, NodeSettings
from refloat.api.meta import Object
from refloat.base.clock import Clock
from refloat.client import errors, kinds
from refloat.client.contract import Kind
from refloat.client.local import LocalClient
from refloat.runtime.guard import Guard
from refloat.sim.run import Sim
from tests.simulation import api_program
from tests.virtual import virtual

LEASE_SECONDS = 40.0


class Line(Guard):
    """A client of which some answers are lost."""

    lose = False

    async def patch(self, kind: Kind[Any], name: str, patch: Any, **more: Any) -> Any:
        answer = await super().patch(kind, name, patch, **more)
        if self.lose:
            self.lose = False
            raise errors.Unavailable("the answer was lost")
        return answer


class Agent:
    """The part of an agent that says whose the node is."""

    def __init__(self, sim: Sim, client: LocalClient, instance: str) -> None:
        self.client = Line(client, lambda: None)
        self.claim = Claim(self.client, "n1", instance, sim.clock)
        self.replaced: list[str] = []
        self.waited: list[float] = []
        self.clock: Clock = sim.clock
        settings = NodeSettings("n1", instance=instance)
        self.beats = Heartbeats(
            self.client, [settings], clock=sim.clock, rand=sim.rand, replaced=self.replaced.append
        )

    async def settle(self) -> None:
        await self.claim.settle(self.waited.append)

    async def beat(self) -> None:
        await self.beats.reconcile("n1")

    async def lease(self) -> Object:
        found = await self.client.get(kinds.LEASES, "n1", namespace="kube-node-lease")
        return {"agent": (found.metadata.annotations or {}).get(AGENT), "spec": found.spec}


async def after(sim: Sim, seconds: float, agent: Agent) -> None:
    await sim.clock.sleep(seconds)
    await agent.beat()


@virtual()
async def test_the_first_agent_runs_the_node_at_once(sim: Sim) -> None:
    async with api_program.serving(sim) as api:
        first = Agent(sim, LocalClient(api, field_manager="kubelet"), "a")
        await first.settle()
        await first.beat()
        await first.beat()
        assert (first.waited, first.replaced) == ([], [])
        assert (await first.lease())["agent"] == "a"
        again = Agent(sim, LocalClient(api, field_manager="kubelet"), "a")  # it was restarted
        await again.settle()
        await again.beat()
        assert (again.waited, again.replaced) == ([], [])


@virtual()
async def test_a_second_agent_is_refused_as_soon_as_the_first_beats(sim: Sim) -> None:
    async with api_program.serving(sim) as api:
        first, second = (
            Agent(sim, LocalClient(api, field_manager="kubelet"), name) for name in "ab"
        )
        await first.settle()
        await first.beat()
        began = sim.clock.monotonic()
        beating = asyncio.ensure_future(after(sim, 10, first))
        with pytest.raises(Taken):
            await second.settle()
        await beating
        assert sim.clock.monotonic() - began < 20
        assert first.replaced == []


@virtual()
async def test_a_second_agent_runs_the_node_when_the_first_is_silent(sim: Sim) -> None:
    async with api_program.serving(sim) as api:
        first, second = (
            Agent(sim, LocalClient(api, field_manager="kubelet"), name) for name in "ab"
        )
        await first.settle()
        await first.beat()
        began = sim.clock.monotonic()
        await second.settle()
        assert second.waited == [LEASE_SECONDS]
        assert sim.clock.monotonic() - began >= LEASE_SECONDS
        await second.beat()
        await first.beat()  # it returns, and finds out
        assert (first.replaced, second.replaced) == (["n1"], [])
        assert (await second.lease())["agent"] == "b"
        await second.beat()
        await first.beat()
        assert (first.replaced, second.replaced) == (["n1"], [])


@virtual()
async def test_a_node_of_a_kubelet_is_not_taken(sim: Sim) -> None:
    async with api_program.serving(sim) as api:
        kubelet, agent = (
            Agent(sim, LocalClient(api, field_manager="kubelet"), name) for name in ("", "b")
        )
        await kubelet.beat()
        beating = asyncio.ensure_future(after(sim, 10, kubelet))
        with pytest.raises(Taken):
            await agent.settle()
        await beating


@virtual()
async def test_two_agents_that_begin_at_once_are_one_too_many(sim: Sim) -> None:
    async with api_program.serving(sim) as api:
        first, second = (
            Agent(sim, LocalClient(api, field_manager="kubelet"), name) for name in "ab"
        )
        assert await first.claim._read() is None
        assert await second.claim._read() is None
        made = [await each.claim._made() for each in (first, second)]
        assert [(each.metadata.annotations or {})[AGENT] for each in made] == ["a", "a"]
        await first.beat()
        await second.beat()
        assert (first.replaced, second.replaced) == ([], ["n1"])


@virtual()
async def test_a_renewal_whose_answer_was_lost_is_ones_own(sim: Sim) -> None:
    async with api_program.serving(sim) as api:
        first = Agent(sim, LocalClient(api, field_manager="kubelet"), "a")
        await first.settle()
        await first.beat()
        await sim.clock.sleep(10)
        first.client.lose = True
        with pytest.raises(errors.Unavailable):
            await first.beat()
        await sim.clock.sleep(1)
        with pytest.raises(errors.Conflict):
            await first.beat()
        await first.beat()
        assert first.replaced == []


@virtual()
async def test_a_copy_of_an_agents_folder_is_found_out(sim: Sim) -> None:
    async with api_program.serving(sim) as api:
        first, copy = (Agent(sim, LocalClient(api, field_manager="kubelet"), "a") for _ in range(2))
        await first.settle()
        await first.beat()
        await sim.clock.sleep(10)
        await copy.settle()
        await copy.beat()
        await sim.clock.sleep(10)
        await first.beat()
        await copy.beat()
        assert (first.replaced, copy.replaced) == (["n1"], [])


@virtual()
async def test_nobody_minds_where_nobody_has_an_instance(sim: Sim) -> None:
    async with api_program.serving(sim) as api:
        first, second = (
            Agent(sim, LocalClient(api, field_manager="kubelet"), "") for _ in range(2)
        )
        for _ in range(2):
            await first.beat()
            await second.beat()
        assert (first.replaced, second.replaced) == ([], [])


@virtual()
async def test_an_api_server_that_is_away_is_asked_again(sim: Sim) -> None:
    asked: list[float] = []

    async def attempt() -> None:
        asked.append(sim.clock.monotonic())
        if len(asked) < 3:
            raise errors.Unreachable("no connection")

    await claim.persist(attempt, sim.clock, 2.0)
    assert [at - asked[0] for at in asked] == [0.0, 2.0, 4.0]
