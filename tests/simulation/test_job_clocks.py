# SPDX-License-Identifier: Apache-2.0
"""A wall clock that is set back or ahead does not change how long a Job waits after a failure."""

import pytest

from refloat.api.meta import Object
from refloat.sim.run import Sim
from tests.simulation import job_cluster
from tests.simulation.job_cluster import FAILS, OK, JobCluster
from tests.simulation.job_scenarios import indexed
from tests.virtual import virtual

HOUR = 3600.0
SPECS: dict[str, Object] = {"of a Job": {}, "of an index": indexed(1, backoffLimitPerIndex=3)}


async def second_pod_after(cluster: JobCluster, sim: Sim, spec: Object) -> float:
    """Seconds from the end of a pod, directly after which the clock is set back, to the next."""
    await cluster.submit(**spec)
    while not any(pod.is_terminal for pod in await cluster.pods()):
        await cluster.sleep(0.1)
    end = sim.clock.monotonic()
    await cluster.sleep(2)
    sim.clock.set_ahead(-HOUR)
    while len(cluster.kubelet.created) < 2:
        assert sim.clock.monotonic() - end < HOUR / 2
        await cluster.sleep(0.1)
    return sim.clock.monotonic() - end


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@virtual(JobCluster, job_cluster.in_turn(FAILS, OK), seeds=3)
async def test_clock_set_back_an_hour_costs_no_hour(cluster: JobCluster, spec: Object) -> None:
    """Ten seconds after the failure was seen, which is a second or two after its end."""
    assert 9 <= await second_pod_after(cluster, cluster.sim, spec) <= 15
    await cluster.finished()


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@virtual(JobCluster, job_cluster.in_turn(FAILS, OK), seeds=3)
async def test_after_a_restart_a_failure_in_the_future_costs_one_delay_at_most(
    cluster: JobCluster, spec: Object
) -> None:
    await cluster.submit(**spec)
    while not any(pod.is_terminal for pod in await cluster.pods()):
        await cluster.sleep(0.1)
    await cluster.stop()
    cluster.sim.clock.set_ahead(-HOUR)
    await cluster.restart()
    await cluster.sleep(15)
    assert len(cluster.kubelet.created) == 2


@virtual(JobCluster, job_cluster.in_turn(OK), seeds=3)
async def test_job_completes_although_clock_went_back_behind_its_start(cluster: JobCluster) -> None:
    await cluster.submit()
    while not (job := await cluster.job()).status.start_time:
        await cluster.sleep(0.1)
    cluster.sim.clock.set_ahead(-HOUR)
    await cluster.sleep(60)
    status = (await cluster.job()).status
    assert "Complete" in [each.type for each in status.conditions or ()]
    assert status.completion_time == job.status.start_time
