# SPDX-License-Identifier: Apache-2.0
"""The controller is killed at each of its writes, or hears nothing of it: nobody can tell."""

import functools
from typing import Any

import pytest

from refloat.policy import pod_state
from refloat.sim.run import Sim, run
from tests.simulation import job_world
from tests.simulation.job_scenarios import RACES, SCENARIOS, Ending, checked
from tests.simulation.job_world import OK, Process, Run, World
from tests.virtual import virtual

SEED = 1

ALL = SCENARIOS | RACES


@functools.cache
def undisturbed(name: str) -> tuple[Ending, int]:
    """How it ends, and the number of writes until then."""

    async def program(sim: Sim) -> tuple[Ending, int]:
        async with job_world.world(sim, ALL[name].script) as world:
            return await checked(world, ALL[name]), world.process.client.writes

    return run(program, seed=SEED)


def killed(name: str, number: int, *, after: bool) -> Ending:
    async def program(sim: Sim) -> Ending:
        async with job_world.world(sim, ALL[name].script) as world:
            client = world.process.client
            client.dies_at, client.dies_after = number, after
            world.restart_when_dead(client)
            return await checked(world, ALL[name])

    return run(program, seed=SEED)


def unanswered(name: str, number: int) -> Ending:
    async def program(sim: Sim) -> Ending:
        async with job_world.world(sim, ALL[name].script) as world:
            world.process.client.loses = {number}
            return await checked(world, ALL[name])

    return run(program, seed=SEED)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", ALL)
def test_a_kill_at_any_write_changes_nothing(name: str, *, after: bool) -> None:
    want, writes = undisturbed(name)
    for number in range(1, writes + 1):
        assert killed(name, number, after=after) == want, f"killed at write {number}"


@pytest.mark.parametrize("name", ALL)
def test_an_answer_that_is_lost_changes_nothing(name: str) -> None:
    want, writes = undisturbed(name)
    for number in range(1, writes + 1):
        assert unanswered(name, number) == want, f"lost answer {number}"


@virtual(seeds=8)
async def test_a_restart_at_any_moment_makes_no_pod_twice(sim: Sim) -> None:
    async with job_world.world(sim) as world:
        await world.submit(completions=6, parallelism=3)
        for _ in range(8):
            await world.sleep(sim.rand.random() * 3)
            await world.process.stop()
            world.process = Process(world, None)
            await world.sleep(sim.rand.random())
            await world.process.start()
        job = await world.finished()
        assert (job.status.succeeded, len(world.kubelet.created)) == (6, 6)


# -- between the removal of a finalizer and the deletion (behaviour A9.1) -----------


async def killed_before_the_deletion(world: World, **change: Any) -> None:
    """A change makes the controller release pods; then it is killed, and deletes none."""
    await world.sleep(3)
    client = world.process.client
    client.dies_on = lambda request: request.method == "DELETE"
    await world.change(**change)
    await client.died.wait()


@pytest.mark.parametrize("change", [{"suspend": True}, {"parallelism": 0}], ids=["stop", "shrink"])
def test_a_pod_that_runs_on_after_a_kill_is_counted(change: dict[str, Any]) -> None:
    """The successor gives it the finalizer again, and the Job wants it again."""

    @virtual(seeds=3)
    async def test(sim: Sim) -> None:
        async with job_world.world(sim, job_world.in_turn(Run(seconds=30))) as world:
            await world.submit(completions=2, parallelism=2)
            await killed_before_the_deletion(world, **change)
            await world.change(suspend=False, parallelism=2)
            await world.restart()
            job = await world.finished()
            assert (job.status.succeeded, len(world.kubelet.created)) == (2, 2)

    test()


@pytest.mark.parametrize("change", [{"suspend": True}, {"parallelism": 0}], ids=["stop", "shrink"])
def test_a_pod_that_ended_before_the_successor_saw_it_run_is_replaced(
    change: dict[str, Any],
) -> None:
    """As in Kubernetes: nothing that users cannot write says that it was not counted."""

    @virtual(seeds=3)
    async def test(sim: Sim) -> None:
        async with job_world.world(sim, job_world.in_turn(OK)) as world:
            await world.submit(completions=2, parallelism=2)
            await killed_before_the_deletion(world, **change)
            await world.sleep(10)
            lost = sum(not pod_state.is_tracked(pod) for pod in await world.pods())
            assert (len(world.kubelet.done), lost) in [(2, 1), (2, 2)]
            await world.restart()
            await world.change(suspend=False, parallelism=2)
            job = await world.finished()
            assert (job.status.succeeded, len(world.kubelet.created)) == (2, 2 + lost)

    test()


@virtual(seeds=3)
async def test_a_job_that_wants_a_pod_back_counts_it(sim: Sim) -> None:
    """Suspended, killed, resumed: the pods go on, and one is deleted by hand."""
    async with job_world.world(sim, job_world.in_turn(Run(seconds=30), OK)) as world:
        await world.submit(completions=1, parallelism=1, podReplacementPolicy="Failed")
        await killed_before_the_deletion(world, suspend=True)
        await world.change(suspend=False)
        await world.restart()
        await world.sleep(3)
        await world.delete_pod(world.kubelet.created[0].metadata.name)
        job = await world.finished()
        assert (job.status.succeeded, job.status.failed) == (1, 1)


@virtual(seeds=3)
async def test_a_job_that_does_not_want_the_pod_deletes_it_uncounted(sim: Sim) -> None:
    """As if the controller had not been killed (behaviour A9.1)."""
    async with job_world.world(sim, job_world.in_turn(Run(seconds=30), OK)) as world:
        await world.submit(completions=1, parallelism=1)
        await killed_before_the_deletion(world, suspend=True)
        await world.restart()
        await world.sleep(10)
        assert await world.pods() == []
        await world.change(suspend=False)
        job = await world.finished()
        assert (job.status.succeeded, job.status.failed) == (1, 0)


@virtual(seeds=3)
async def test_a_pod_that_ends_while_it_is_released_is_counted(sim: Sim) -> None:
    """It changed, so it is not deleted: without any crash."""
    async with job_world.world(sim, job_world.in_turn(Run(seconds=30))) as world:
        await world.submit(completions=1, parallelism=1)
        await world.sleep(3)
        [pod] = await world.pods()
        world.process.client.before = world.kubelet.ends_when_deleted(pod)
        await world.change(suspend=True)
        await world.sleep(10)
        job = await world.finished()
        assert (job.status.succeeded, len(world.kubelet.created)) == (1, 1)
        assert "FailedDelete" not in world.told.reasons()
