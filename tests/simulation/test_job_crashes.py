# SPDX-License-Identifier: Apache-2.0
"""The controller is killed at each of its writes, and nobody can tell afterwards."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from refloat.policy import pod_state
from refloat.sim.run import Sim, run
from tests.simulation import job_world
from tests.simulation.job_world import FAILS, FOREVER, OK, Process, Script, World
from tests.virtual import virtual

MIXED: dict[str, Any] = {"completions": 3, "parallelism": 2}
INDEXED: dict[str, Any] = {
    "completions": 3,
    "parallelism": 2,
    "completionMode": "Indexed",
    "backoffLimitPerIndex": 1,
}
LIMITED: dict[str, Any] = {"completions": 2, "parallelism": 2, "backoffLimit": 1}

# With the policy `Failed`: else a kill between the deletion of the stragglers and
# the condition makes failures of them, as in Kubernetes (behaviour H12).
ENOUGH: dict[str, Any] = {
    "completions": 3,
    "parallelism": 3,
    "completionMode": "Indexed",
    "podReplacementPolicy": "Failed",
    "successPolicy": {"rules": [{"succeededIndexes": "0"}]},
}

# Orders of events for each write.
SEEDS = 3

SCENARIOS: dict[str, tuple[dict[str, Any], Callable[[], Script]]] = {
    "failures and successes": (MIXED, lambda: job_world.in_turn(FAILS, OK, FAILS, OK)),
    "an index that fails": (INDEXED, lambda: job_world.by_index(i1=FAILS)),
    "stragglers of a success": (ENOUGH, lambda: job_world.by_index(i1=FOREVER, i2=FOREVER)),
    "a limit that is exceeded": (LIMITED, lambda: job_world.in_turn(FAILS)),
}

Ending = dict[str, Any]


async def ending(world: World) -> Ending:
    """How a Job ended, without the times."""
    status = (await world.finished()).status
    await world.sleep(10)
    assert not any(pod_state.is_tracked(pod) for pod in await world.pods())
    return {
        "conditions": [(each.type, each.reason) for each in status.conditions or ()],
        "counts": (status.succeeded, status.failed, status.active, status.terminating),
        "indexes": (status.completed_indexes, status.failed_indexes),
        "pods": len(world.kubelet.created),
    }


def undisturbed(spec: dict[str, Any], script: Script) -> tuple[Ending, int]:
    async def program(sim: Sim) -> tuple[Ending, int]:
        async with job_world.world(sim, script) as world:
            await world.submit(**spec)
            return await ending(world), world.process.client.writes

    return run(program, seed=1)


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_kill_at_any_write_changes_nothing(name: str, *, after: bool) -> None:
    spec, script = SCENARIOS[name]
    want, writes = undisturbed(spec, script())
    for number, seed in itertools.product(range(1, writes + 1), range(SEEDS)):

        async def program(sim: Sim, number: int = number) -> Ending:
            async with job_world.world(sim, script()) as world:
                client = world.process.client
                client.dies_at, client.dies_after = number, after
                await world.submit(**spec)
                await client.died.wait()
                await world.restart()
                return await ending(world)

        assert run(program, seed=seed) == want, f"killed at write {number}, seed {seed}"


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_answer_that_is_lost_changes_nothing(name: str) -> None:
    spec, script = SCENARIOS[name]
    want, writes = undisturbed(spec, script())
    for number, seed in itertools.product(range(1, writes + 1), range(SEEDS)):

        async def program(sim: Sim, number: int = number) -> Ending:
            async with job_world.world(sim, script()) as world:
                world.process.client.loses = number
                await world.submit(**spec)
                return await ending(world)

        assert run(program, seed=seed) == want, f"lost answer {number}, seed {seed}"


@virtual(seeds=20)
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
