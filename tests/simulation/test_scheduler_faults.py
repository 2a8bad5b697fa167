# SPDX-License-Identifier: Apache-2.0
"""The scheduler killed, cut off, behind and refused: the same end, and never too much on a node."""

from collections import Counter

import pytest

from refloat.client import errors
from refloat.client.requests import Request
from refloat.sim.run import Sim
from tests.simulation.scheduler_cluster import SchedulerCluster, until
from tests.virtual import virtual

LOW, HIGH = 8, 4


async def _begin(cluster: SchedulerCluster) -> None:
    """Two nodes of four cpus, eight pods that fill them, and then four that are more important."""
    await cluster.classes(high=1000)
    for name in ("a", "b"):
        await cluster.node(name)
    await cluster.settle()


async def _submit(cluster: SchedulerCluster) -> None:
    for number in range(LOW):
        await cluster.pod(f"low-{number}", cpu="1", grace=3)
    await cluster.settle(5)
    for number in range(HIGH):
        await cluster.pod(f"high-{number}", cpu="1", priority="high")


async def _is_over(cluster: SchedulerCluster) -> bool:
    places = await cluster.places()
    return all(places.get(f"high-{number}") for number in range(HIGH))


async def _check(cluster: SchedulerCluster) -> None:
    """All that are important run, no node was ever overfilled, no mark came after its delete."""
    places = await cluster.places()
    assert await _is_over(cluster)
    bound = Counter(node for node in places.values() if node)
    assert all(count <= 4 for count in bound.values()), bound
    assert all(cluster.most[name] <= 4000 for name in ("a", "b")), cluster.most
    for name in {each.split()[0] for each in cluster.seen}:
        steps = [each.split()[1] for each in cluster.seen if each.split()[0] == name]
        assert steps in (["condition", "deletion"], ["condition"]), cluster.seen


async def _finish(cluster: SchedulerCluster) -> None:
    await until(cluster, lambda: _is_over(cluster))
    cluster.watch_faults.lag = 0.0
    await cluster.settle(60)
    await _check(cluster)


async def _writes_of_a_good_day(sim: Sim) -> int:
    async with SchedulerCluster(sim) as cluster:
        await _begin(cluster)
        await _submit(cluster)
        await cluster.settle(30)
        await _check(cluster)
        assert len({each.split()[0] for each in cluster.seen}) == HIGH
        return cluster.faulty.writes


def _counted() -> int:
    counts: list[int] = []

    @virtual()
    async def look(sim: Sim) -> None:
        counts.append(await _writes_of_a_good_day(sim))

    look()
    return counts[0]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_scheduler_killed_at_any_write_is_replaced_by_one_that_ends_the_same(after: bool) -> None:
    count = _counted()
    assert count >= LOW + 3 * HIGH
    for number in range(1, count + 1):

        @virtual(shuffle=number % 2 == 0)
        async def look(sim: Sim, number: int = number) -> None:
            async with SchedulerCluster(sim) as cluster:
                await _begin(cluster)
                cluster.faulty.dies_at = number
                cluster.faulty.dies_after = after
                await _submit(cluster)
                await cluster.settle(5)
                await cluster.restart()
                await _finish(cluster)

        look()


def _sometimes(sim: Sim, *kinds_of_failure: type[errors.ClientError]) -> object:
    def refuse(request: Request, number: int) -> errors.ClientError | None:
        if sim.rand.random() < 0.3:
            return sim.rand.choice(kinds_of_failure)("not now")
        return None

    return refuse


@virtual(SchedulerCluster, seeds=12)
async def test_writes_that_fail_are_done_in_the_end(cluster: SchedulerCluster) -> None:
    await _begin(cluster)
    failures = (errors.Unreachable, errors.Unavailable, errors.Timeout, errors.TooManyRequests)
    cluster.faulty.refuses = _sometimes(cluster.sim, *failures)  # type: ignore[assignment]
    await _submit(cluster)
    await _finish(cluster)


@virtual(SchedulerCluster, seeds=12)
async def test_a_scheduler_that_is_behind_fills_no_node_twice(cluster: SchedulerCluster) -> None:
    await _begin(cluster)
    cluster.watch_faults.lag = 4.0
    await _submit(cluster)
    await _finish(cluster)


@virtual(SchedulerCluster, seeds=12)
async def test_a_restart_while_behind_changes_nothing(cluster: SchedulerCluster) -> None:
    await _begin(cluster)
    cluster.watch_faults.lag = 2.0
    await _submit(cluster)
    for _ in range(3):
        await cluster.settle(3 * cluster.sim.rand.random())
        await cluster.restart()
    await _finish(cluster)


@virtual(SchedulerCluster, seeds=10)
async def test_a_promise_outlives_the_scheduler_that_made_it(cluster: SchedulerCluster) -> None:
    await cluster.classes(high=1000)
    await cluster.node("a")
    await cluster.pod("low", cpu="4", grace=20)
    await cluster.settle()
    await cluster.pod("p", cpu="4", priority="high")
    await cluster.settle()
    await cluster.restart()
    await cluster.pod("sneaky", cpu="4")
    await cluster.settle(30)
    assert await cluster.places() == {"p": "a", "sneaky": ""}
    assert cluster.seen == ["low condition", "low deletion"]


@virtual(SchedulerCluster, seeds=12)
async def test_answers_that_are_lost_do_no_harm(cluster: SchedulerCluster) -> None:
    await _begin(cluster)
    cluster.faulty.loses = [n for n in range(60) if cluster.sim.rand.random() < 0.4]
    await _submit(cluster)
    await _finish(cluster)


@virtual(SchedulerCluster, seeds=3)
async def test_lost_answer_keeps_its_place_until_the_watch_tells(cluster: SchedulerCluster) -> None:
    """Else another pod is given the place of one that was bound after all."""
    await cluster.node("a", pods=1)
    await cluster.settle()
    cluster.watch_faults.lag = 5.0
    cluster.faulty.loses = (1,)
    for name in ("p", "q"):
        await cluster.pod(name)
    await cluster.settle(60)
    assert Counter((await cluster.places()).values()) == {"a": 1, "": 1}


@virtual(SchedulerCluster, seeds=10)
async def test_pods_that_end_and_come_at_random_are_all_served(cluster: SchedulerCluster) -> None:
    await _begin(cluster)
    cluster.watch_faults.lag = 0.5
    for number in range(40):
        cpu = cluster.sim.rand.choice(["500m", "1", "2", "4"])
        await cluster.pod(f"p{number}", cpu=cpu, priority=cluster.sim.rand.choice(["", "high"]))
        await cluster.settle(cluster.sim.rand.random())
    for _ in range(400):
        places = await cluster.places()
        if not places:
            break
        for name in [each for each, node in places.items() if node][:1]:
            await cluster.delete(name, grace=0)
        await cluster.settle(2)
    assert await cluster.places() == {}
    assert all(cluster.most[name] <= 4000 for name in ("a", "b"))
