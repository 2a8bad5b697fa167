# SPDX-License-Identifier: Apache-2.0
"""Settings that change while the Job controller runs."""

from refloat.controllers.job.settings import Settings
from refloat.sim.run import Sim
from tests.simulation import job_world
from tests.virtual import virtual


@virtual(seeds=10)
async def test_jobs_are_looked_at_anew_when_settings_are_taken_up(sim: Sim) -> None:
    async with job_world.world(sim, settings=Settings(takes_default=False)) as world:
        await world.submit()
        await world.sleep(10)
        assert (await world.job()).status.start_time is None
        world.process.job_controller.take_up(Settings())
        job = await world.finished()
        assert job.status.succeeded == 1
