# SPDX-License-Identifier: Apache-2.0
"""Settings that change while the Job controller runs."""

from refloat.controllers.job.settings import JobSettings
from tests.simulation.job_cluster import JobCluster
from tests.virtual import virtual


@virtual(JobCluster, settings=JobSettings(takes_default=False), seeds=10)
async def test_jobs_are_looked_at_anew_when_settings_are_taken_up(cluster: JobCluster) -> None:
    await cluster.submit()
    await cluster.sleep(10)
    assert (await cluster.job()).status.start_time is None
    cluster.process.env.update(JobSettings())
    job = await cluster.finished()
    assert job.status.succeeded == 1
