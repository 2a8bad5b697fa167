# SPDX-License-Identifier: Apache-2.0
"""A wall clock that is set back or ahead does not change how long a Job waits after a failure."""

import pytest

from refloat.api.meta import Object
from refloat.sim.run import Sim
from tests.simulation import job_world
from tests.simulation.job_scenarios import indexed
from tests.simulation.job_world import FAILS, OK, World
from tests.virtual import virtual

HOUR = 3600.0
SPECS: dict[str, Object] = {"of a Job": {}, "of an index": indexed(1, backoffLimitPerIndex=3)}


async def second_pod_after(world: World, sim: Sim, spec: Object) -> float:
    """Seconds from the end of a pod, directly after which the clock is set back, to the next."""
    await world.submit(**spec)
    while not any(pod.is_terminal for pod in await world.pods()):
        await world.sleep(0.1)
    ended = sim.clock.monotonic()
    await world.sleep(2)
    sim.clock.set_ahead(-HOUR)
    while len(world.kubelet.created) < 2:
        assert sim.clock.monotonic() - ended < HOUR / 2
        await world.sleep(0.1)
    return sim.clock.monotonic() - ended


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@virtual(seeds=3)
async def test_a_clock_that_goes_back_by_an_hour_costs_no_hour(sim: Sim, spec: Object) -> None:
    """Ten seconds after the failure was seen, which is a second or two after its end."""
    async with job_world.world(sim, job_world.in_turn(FAILS, OK)) as world:
        assert 9 <= await second_pod_after(world, sim, spec) <= 15
        await world.finished()


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@virtual(seeds=3)
async def test_after_a_restart_a_failure_in_the_future_costs_one_delay_at_most(
    sim: Sim, spec: Object
) -> None:
    async with job_world.world(sim, job_world.in_turn(FAILS, OK)) as world:
        await world.submit(**spec)
        while not any(pod.is_terminal for pod in await world.pods()):
            await world.sleep(0.1)
        await world.process.stop()
        sim.clock.set_ahead(-HOUR)
        await world.restart()
        await world.sleep(15)
        assert len(world.kubelet.created) == 2
