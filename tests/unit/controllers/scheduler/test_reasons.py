# SPDX-License-Identifier: Apache-2.0
"""What a waiting pod says of why it waits stays true, and costs a bounded number of writes."""

import dataclasses

from refloat.client import kinds
from refloat.client.requests import Request
from refloat.sim.run import Sim
from tests.simulation.scheduler_world import SETTINGS, World, world
from tests.virtual import virtual

SOON = SETTINGS.reason_seconds + 1
NO_NODES = "no nodes available to schedule pods"


def insufficient(count: int) -> str:
    return f"0/{count} nodes are available: {count} Insufficient cpu."


async def reason(here: World, name: str = "p") -> str:
    """What the pod says, without what preemption says."""
    return (await here.why(name)).split(" no new claims")[0]


def count_writes(here: World) -> list[str]:
    """Fills with the paths of the scheduler's writes from now on."""
    paths: list[str] = []

    async def note(request: Request) -> None:
        paths.append(request.path)

    here.process.client.before = note
    return paths


@virtual()
async def test_nodes_that_join_and_do_not_fit_replace_that_there_are_none(sim: Sim) -> None:
    async with world(sim) as here:
        await here.pod(cpu="100")
        await here.settle()
        assert await reason(here) == NO_NODES
        for name in ("a", "b", "c"):
            await here.node(name, cpu="1")
        await here.settle(SOON)
        assert await reason(here) == insufficient(3)


@virtual()
async def test_a_node_that_leaves_or_is_cordoned_is_in_the_reason(sim: Sim) -> None:
    async with world(sim) as here:
        for name in ("a", "b"):
            await here.node(name, cpu="1")
        await here.pod(cpu="100")
        await here.settle()
        assert await reason(here) == insufficient(2)
        await here.client.patch(kinds.NODES, "a", {"spec": {"unschedulable": True}})
        await here.settle(SOON)
        assert await reason(here) == (
            "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable."
        )
        await here.client.delete(kinds.NODES, "a")
        await here.settle(SOON)
        assert await reason(here) == insufficient(1)
        await here.client.delete(kinds.NODES, "b")
        await here.settle(SOON)
        assert await reason(here) == NO_NODES


@virtual()
async def test_many_waiting_pods_get_their_new_reason_a_few_at_a_time(sim: Sim) -> None:
    settings = dataclasses.replace(SETTINGS, reasons_at_once=3)
    async with world(sim, settings) as here:
        names = [f"p{number}" for number in range(10)]
        for name in names:
            await here.pod(name, cpu="100")
        await here.settle(SOON)
        paths = count_writes(here)
        await here.node("a", cpu="1")
        await here.settle(SOON)
        assert len(paths) == 3
        await here.settle(4 * SOON)
        assert {await reason(here, name) for name in names} == {insufficient(1)}
        assert len(paths) == len(names)


@virtual()
async def test_a_node_that_changes_often_costs_no_write_while_the_reason_is_the_same(
    sim: Sim,
) -> None:
    async with world(sim) as here:
        await here.node("a", cpu="1")
        for number in range(10):
            await here.pod(f"p{number}", cpu="100")
        await here.settle(SOON)
        paths = count_writes(here)
        for number in range(20):
            await here.client.patch(kinds.NODES, "a", {"metadata": {"labels": {"n": str(number)}}})
            await here.settle(SOON)
        assert paths == []


@virtual()
async def test_pods_that_wait_cost_nothing_while_nothing_changes(sim: Sim) -> None:
    async with world(sim) as here:
        await here.node("a", cpu="1")
        await here.pod(cpu="100")
        await here.settle(60)
        before = here.process.scheduler.controller.queue.adds
        await here.settle(3600)
        assert here.process.scheduler.controller.queue.adds == before
