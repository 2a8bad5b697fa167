# SPDX-License-Identifier: Apache-2.0
"""Several processes that take care of one Job: each pod is counted once at most.

That is so after a change of leaders, when the old one's writes come late, and when
managers run without an election.
"""

import pytest

from refloat.api.meta import Object
from refloat.sim.run import Sim
from tests.simulation import job_cluster
from tests.simulation.job_cluster import OK, JobCluster, Run, Script
from tests.virtual import virtual

FAILS_AT_ONCE = Run(seconds=0.1, exit_code=1)

JOBS: dict[str, tuple[Object, Script]] = {
    "fails": ({"backoffLimit": 2}, job_cluster.in_turn(FAILS_AT_ONCE)),
    "succeeds": ({"completions": 5, "parallelism": 2}, job_cluster.in_turn(OK)),
}


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("lag", [3.0, 10.0])
@virtual(seeds=8)
async def test_no_pod_is_counted_by_two_processes(sim: Sim, lag: float, name: str) -> None:
    spec, script = JOBS[name]
    async with JobCluster(sim, script) as cluster:
        others = [cluster.new_process() for _ in range(2)]
        for each in others:
            await each.start()
        cluster.watch_faults.lag = lag
        await cluster.submit(**spec)
        status = (await cluster.finished()).status
        for each in others:
            await each.stop()
        assert status.succeeded + status.failed <= len(cluster.kubelet.created)
