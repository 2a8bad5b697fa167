# SPDX-License-Identifier: Apache-2.0
"""The scheduler killed, cut off, behind and refused: the same end, and never too much on a node."""

from collections import Counter

import pytest

from refloat.client import errors
from refloat.client.requests import Request
from refloat.sim.run import Sim
from tests.simulation.scheduler_world import World, until, world
from tests.virtual import virtual

LOW, HIGH = 8, 4


async def _begin(here: World) -> None:
    """Two nodes of four cpus, eight pods that fill them, and then four that are more important."""
    await here.classes(high=1000)
    for name in ("a", "b"):
        await here.node(name)
    await here.settle()


async def _submit(here: World) -> None:
    for number in range(LOW):
        await here.pod(f"low-{number}", cpu="1", grace=3)
    await here.settle(5)
    for number in range(HIGH):
        await here.pod(f"high-{number}", cpu="1", priority="high")


async def _is_over(here: World) -> bool:
    places = await here.places()
    return all(places.get(f"high-{number}") for number in range(HIGH))


async def _check(here: World) -> None:
    """All that are important run, no node was ever overfilled, no mark came after its delete."""
    places = await here.places()
    assert await _is_over(here)
    bound = Counter(node for node in places.values() if node)
    assert all(count <= 4 for count in bound.values()), bound
    assert all(here.most[name] <= 4000 for name in ("a", "b")), here.most
    for name in {each.split()[0] for each in here.seen}:
        steps = [each.split()[1] for each in here.seen if each.split()[0] == name]
        assert steps in (["condition", "deletion"], ["condition"]), here.seen


async def _writes_of_a_good_day(sim: Sim) -> int:
    async with world(sim) as here:
        await _begin(here)
        await _submit(here)
        await here.settle(30)
        await _check(here)
        assert len({each.split()[0] for each in here.seen}) == HIGH
        return here.process.client.writes


def _counted() -> int:
    found: list[int] = []

    @virtual()
    async def look(sim: Sim) -> None:
        found.append(await _writes_of_a_good_day(sim))

    look()
    return found[0]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_scheduler_killed_at_any_write_is_replaced_by_one_that_ends_the_same(after: bool) -> None:
    count = _counted()
    assert count >= LOW + 3 * HIGH
    for number in range(1, count + 1):

        @virtual(shuffle=number % 2 == 0)
        async def look(sim: Sim, number: int = number) -> None:
            async with world(sim) as here:
                await _begin(here)
                here.process.client.dies_at = number
                here.process.client.dies_after = after
                await _submit(here)
                await here.settle(5)
                await here.restart()
                await until(here, lambda: _is_over(here))
                await here.settle(30)
                await _check(here)

        look()


def _sometimes(sim: Sim, *kinds_of_failure: type[errors.ClientError]) -> object:
    def refuse(request: Request, number: int) -> errors.ClientError | None:
        if sim.rand.random() < 0.3:
            return sim.rand.choice(kinds_of_failure)("not now")
        return None

    return refuse


@virtual(seeds=12)
async def test_writes_that_fail_are_done_in_the_end(sim: Sim) -> None:
    async with world(sim) as here:
        await _begin(here)
        failures = (errors.Unreachable, errors.Unavailable, errors.Timeout, errors.TooManyRequests)
        here.process.client.refuses = _sometimes(sim, *failures)  # type: ignore[assignment]
        await _submit(here)
        await until(here, lambda: _is_over(here))
        await here.settle(30)
        await _check(here)


@virtual(seeds=12)
async def test_a_scheduler_that_is_behind_fills_no_node_twice(sim: Sim) -> None:
    async with world(sim) as here:
        await _begin(here)
        here.lag = 4.0
        await _submit(here)
        await until(here, lambda: _is_over(here))
        here.lag = 0.0
        await here.settle(60)
        await _check(here)


@virtual(seeds=12)
async def test_a_restart_while_behind_changes_nothing(sim: Sim) -> None:
    async with world(sim) as here:
        await _begin(here)
        here.lag = 2.0
        await _submit(here)
        for _ in range(3):
            await here.settle(3 * sim.rand.random())
            await here.restart()
        await until(here, lambda: _is_over(here))
        here.lag = 0.0
        await here.settle(60)
        await _check(here)


@virtual(seeds=10)
async def test_a_promise_outlives_the_scheduler_that_made_it(sim: Sim) -> None:
    async with world(sim) as here:
        await here.classes(high=1000)
        await here.node("a")
        await here.pod("low", cpu="4", grace=20)
        await here.settle()
        await here.pod("p", cpu="4", priority="high")
        await here.settle()
        await here.restart()
        await here.pod("sneaky", cpu="4")
        await here.settle(30)
        assert await here.places() == {"p": "a", "sneaky": ""}
        assert here.seen == ["low condition", "low deletion"]


@virtual(seeds=12)
async def test_answers_that_are_lost_do_no_harm(sim: Sim) -> None:
    async with world(sim) as here:
        await _begin(here)
        here.process.client.loses = [n for n in range(60) if sim.rand.random() < 0.4]
        await _submit(here)
        await until(here, lambda: _is_over(here))
        await here.settle(30)
        await _check(here)


@virtual(seeds=3)
async def test_a_lost_answer_keeps_its_place_until_the_watch_tells(sim: Sim) -> None:
    """Else another pod is given the place of one that was bound after all."""
    async with world(sim) as here:
        await here.node("a", pods=1)
        await here.settle()
        here.lag = 5.0
        here.process.client.loses = (1,)
        for name in ("p", "q"):
            await here.pod(name)
        await here.settle(60)
        assert Counter((await here.places()).values()) == {"a": 1, "": 1}


@virtual(seeds=10)
async def test_pods_that_end_and_come_at_random_are_all_served(sim: Sim) -> None:
    async with world(sim) as here:
        await _begin(here)
        here.lag = 0.5
        for number in range(40):
            cpu = sim.rand.choice(["500m", "1", "2", "4"])
            await here.pod(f"p{number}", cpu=cpu, priority=sim.rand.choice(["", "high"]))
            await here.settle(sim.rand.random())
        for _ in range(400):
            places = await here.places()
            if not places:
                break
            for name in [each for each, node in places.items() if node][:1]:
                await here.delete(name, grace=0)
            await here.settle(2)
        assert await here.places() == {}
        assert all(here.most[name] <= 4000 for name in ("a", "b"))
